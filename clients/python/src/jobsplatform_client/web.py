"""The one place that knows httpx: how a `Request` becomes a call of it, and which of its errors mean no reply."""

from __future__ import annotations

from typing import Any, Final

import httpx

from jobsplatform_client.exchange import NoReply, Reply, Request

CONNECT_S: Final = 5.0
LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=32)

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LOST: Final = (
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.RemoteProtocolError,
    httpx.ProxyError,
    httpx.DecodingError,
)
NO_REPLY: Final = (
    *_NEVER_SENT,
    *_LOST,
)  # every other error of httpx is a mistake of the caller's and is raised


def options(base_url: str, token: str, tenant: str | None) -> dict[str, Any]:
    """What both kinds of httpx client are made with. `base_url` may end with `/v1`."""
    if not token:
        raise ValueError("a token is needed")
    headers = {"Authorization": f"Bearer {token}", "User-Agent": "jobsplatform-client/0.1.0"}
    if tenant is not None:
        headers["Jobsplatform-Tenant"] = tenant
    root = base_url.rstrip("/").removesuffix("/v1")
    return {"base_url": root, "headers": headers, "limits": LIMITS}


def arguments(request: Request, timeout_s: float) -> dict[str, Any]:
    """One call of httpx. `timeout_s` bounds a read, a write, and with them a server that hangs."""
    timeout = httpx.Timeout(timeout_s, connect=CONNECT_S, read=timeout_s + request.wait_s, pool=None)
    found: dict[str, Any] = {"method": request.method, "url": request.path, "timeout": timeout}
    if request.query:
        found["params"] = dict(request.query)
    if request.body is not None:
        found |= {"content": request.body, "headers": {"Content-Type": "application/json"}}
    return found


def reply(response: httpx.Response) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, response.content, headers)


def no_reply(error: Exception) -> NoReply:
    return NoReply(not isinstance(error, _NEVER_SENT), f"{type(error).__name__}: {error}")
