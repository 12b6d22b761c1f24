"""Calls of the platform's HTTP API with a token, by the standard library alone.

A call whose answer was lost is repeated: callers only make calls that may be. Nothing is followed elsewhere, so the
token goes to the host that was named and to no other.
"""

from __future__ import annotations

import json
import random
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from jobsplatform import errors
from jobsplatform.errors import JobsPlatformError, Unavailable, UnknownOutcome

ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
FIRST_WAIT_S, WAIT_CAP_S = 0.2, 5.0
Members = dict[str, Any]


class Api:
    """One platform and one token. Safe in any thread: every call has a connection of its own.

    `timeout_s` bounds one try, `patience_s` all tries of a call together.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        tenant: str | None = None,
        timeout_s: float = 10,
        patience_s: float = 30,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of the form https://host")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if tenant is not None:
            self._headers["Jobsplatform-Tenant"] = tenant

    def get(self, path: str) -> Members:
        return self._call("GET", path, None)

    def post(self, path: str, body: str) -> Members:
        """`body` is JSON text; the call must be one that may be repeated."""
        return self._call("POST", path, body)

    def _call(self, method: str, path: str, body: str | None) -> Members:
        """The answer's members. Raises the platform's error for a refusal, Unavailable when patience has run out.

        A POST that may have been taken raises UnknownOutcome instead.
        """
        end = time.monotonic() + self._patience_s
        wait_s = FIRST_WAIT_S
        while True:
            try:
                return self._try(method, path, body)
            except (Unavailable, UnknownOutcome) as error:
                pause_s = max(wait_s * random.uniform(0.5, 1.0), error.retry_after or 0)
                if time.monotonic() + pause_s > end:
                    raise
            time.sleep(pause_s)
            wait_s = min(wait_s * 2, WAIT_CAP_S)

    def _try(self, method: str, path: str, body: str | None) -> Members:
        connection = self._connection()
        headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
        try:
            connection.request(method, self._base + path, None if body is None else body.encode(), headers)
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException) as error:
            detail = f"{self._host} cannot be reached: {error!r}"
            raise (Unavailable if body is None else UnknownOutcome)(detail, retry_after=None) from error
        finally:
            connection.close()
        return _members(answer, data)

    def _connection(self) -> HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)
        return HTTPConnection(self._host, self._port, timeout=self._timeout_s)


def _members(answer: HTTPResponse, data: bytes) -> Members:
    try:
        members = json.loads(data)
    except ValueError:
        members = None
    is_ours = isinstance(members, dict) and (answer.status < 300 or "code" in members)
    if is_ours and answer.status < 300:
        return dict(members)
    if not is_ours:  # a proxy's page, a redirect: whoever answered was not the platform
        members = {"code": "unavailable", "detail": f"an answer {answer.status} that is not the platform's"}
    raise _error(members, answer.headers.get("Retry-After"))


def _error(members: Mapping[str, Any], retry_after: str | None) -> JobsPlatformError:
    code, detail = members.get("code"), str(members.get("detail", ""))
    kind = _KINDS.get(str(code), JobsPlatformError)
    if kind is errors.Invalid:
        faults = [f"{one.get('pointer')}: {one.get('detail')}" for one in members.get("errors", [])]
        return errors.Invalid("; ".join(faults) or detail)
    seconds = int(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    return kind(detail or str(code), retry_after=seconds)


def _kinds(base: type[JobsPlatformError]) -> dict[str, type[JobsPlatformError]]:
    found = {} if base is JobsPlatformError else {base.code: base}
    for kind in base.__subclasses__():
        found = _kinds(kind) | found  # a refinement goes by its base's code
    return found


_KINDS: Final = _kinds(JobsPlatformError)
