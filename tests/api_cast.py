"""Callers of tenants and of the fleet, and how they call the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.test import Client

from jobqueue import lanes, policies
from jobqueue.api import names
from jobsplatform.scopes import ALL
from tenants import access, registry
from tenants.models import Tenant


class Api:
    """Calls as one token's holder. Bodies are members, or bytes to be sent as they are."""

    def __init__(self, token: str | None, headers: Mapping[str, str] | None = None) -> None:
        self.token = token
        self.headers = {
            f"HTTP_{name.upper().replace('-', '_')}": value for name, value in (headers or {}).items()
        }
        self.client = Client(raise_request_exception=False)

    def call(self, method: str, url: str, body: Any = None, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        environ = self.headers | {f"HTTP_{name.upper()}": value for name, value in headers.items()}
        if self.token is not None:
            environ["HTTP_AUTHORIZATION"] = f"Bearer {self.token}"
        media_type = "application/json" if content else ""
        return self.client.generic(method, url, content, content_type=media_type, **environ)  # type: ignore[arg-type]

    def get(self, url: str, **headers: str) -> Any:
        return self.call("GET", url, **headers)

    def post(self, url: str, body: Any = None, **headers: str) -> Any:
        return self.call("POST", url, body, **headers)

    def delete(self, url: str) -> Any:
        return self.call("DELETE", url)

    # Steps that many tests take

    def enqueue(self, **members: Any) -> str:
        """The id of a new job; `payload` defaults to an empty object."""
        response = self.post("/v1/jobs", {"kind": "a", "payload": {}} | members)
        assert response.status_code == 201, response.content
        return str(response.json()["job_id"])

    def claim(self, **members: Any) -> list[dict[str, Any]]:
        response = self.post("/v1/leases/claim", members)
        assert response.status_code == 200, response.content
        leases: list[dict[str, Any]] = response.json()["leases"]
        return leases

    def end(self, lease: dict[str, Any], verb: str, **members: Any) -> Any:
        """Call renew, complete, fail or release as the lease's holder."""
        receipt = {"generation": lease["generation"], "lease_token": lease["lease_token"]}
        return self.post(f"/v1/jobs/{lease['job_id']}/{verb}", receipt | members)

    def kill(self, **members: Any) -> str:
        """The id of a job that is a dead letter now (reason `invalid`)."""
        job_id = self.enqueue(**members)
        (lease,) = [one for one in self.claim(limit=100) if one["job_id"] == job_id]
        assert self.end(lease, "fail", error_class="permanent", message="boom").json()["state"] == "dead"
        return job_id


def forget() -> None:
    """Drop what this process remembers of rows that another test's rollback took away."""
    for module in (access, lanes, policies):
        module.forget()
    names.forget()


def tenant(slug: str) -> Tenant:
    """The tenant of that slug, made when it is not there."""
    found = Tenant.objects.filter(slug=slug).first()
    if found is None:
        forget()
        found = registry.create_tenant(slug, actor="test")
    return found


def caller(
    slug: str | None,
    *scopes: str,
    queues: list[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Api:
    """Somebody with a new token of a tenant (None: of the fleet); without scopes named, with all of them."""
    owner = None if slug is None else tenant(slug)
    _, text = access.create_token(tenant=owner, scopes=scopes or sorted(ALL), queues=queues, actor="test")
    return Api(text, headers or {})


def code(response: Any) -> tuple[int, str]:
    """Status and code of a refusal."""
    assert response["Content-Type"] == "application/problem+json", (
        response.status_code,
        response.content[:500],
    )
    return response.status_code, response.json()["code"]


def pointers(response: Any) -> list[str]:
    """Where an invalid request was at fault."""
    assert code(response) == (400, "invalid"), response.content
    return [error["pointer"] for error in response.json()["errors"]]
