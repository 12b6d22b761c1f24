"""The OpenAPI document, written from the shapes and the scope table that requests are checked by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import getdoc
from typing import Any, Final

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry, ResolvedComponent

from jobsplatform import scopes
from jobsplatform.fields import Schema
from jobsplatform.schemas import PROBLEM
from jobsplatform.shapes import Shape

REFUSALS: Final[Mapping[int, str]] = {
    400: "The request is not valid.",
    401: "A valid token is required.",
    403: "The token lacks the scope, or the tenant is suspended.",
    404: "Absent, or another tenant's.",
    409: "The state of the job, or of a key, forbids it.",
    413: "Too large.",
    415: "Not application/json in UTF-8.",
    422: "The queue asks for it, and at the present drain the deadline cannot be met.",
    429: "A limit is reached; see Retry-After.",
    503: "Not available, or the outcome is unknown; see Retry-After.",
}
TENANT_PARAMETER: Final[Schema] = {
    "name": "Jobsplatform-Tenant",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The tenant that a fleet token acts for. A tenant's token must not send it.",
}
IDEMPOTENCY_PARAMETER: Final[Schema] = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "description": "A repeat with the same key and body returns the first answer.",
}


class EndpointSchema(AutoSchema):
    """Describes one endpoint of an `ApiView`."""

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, registry: ComponentRegistry
    ) -> dict[str, Any] | None:
        endpoint = getattr(self.view, "endpoints")[method]  # noqa: B009 (typed as a plain APIView)
        summary, _, rest = (getdoc(endpoint) or "").partition("\n")
        access = scopes.TABLE.get(f"{method} {path}", scopes.NOBODY)
        operation: dict[str, Any] = {
            "operationId": re.sub(r"(?<!^)(?=[A-Z])", "_", endpoint.__name__).lower(),
            "summary": summary.strip(),
            "tags": [path.split("/")[2] if path.count("/") > 1 else "health"],
            "parameters": _parameters(path, endpoint, access),
            "responses": _responses(path, endpoint, access, registry),
        }
        if rest.strip():
            operation["description"] = " ".join(rest.split())
        if endpoint.body is not None:
            operation["requestBody"] = _request_body(endpoint.body, registry)
        if access.is_open:
            operation["security"] = []
        else:
            operation["security"] = [{_bearer(registry): []}]
            operation["x-scopes"] = sorted(access.scopes)
            if access.with_payload:
                operation["x-scopes-with-payload"] = sorted(access.with_payload)
        return operation


def component(registry: ComponentRegistry, name: str, schema: Schema) -> Schema:
    """A reference to a named schema, which is registered at its first use."""
    made = ResolvedComponent(name, ResolvedComponent.SCHEMA, schema, name)  # type: ignore[no-untyped-call]
    registry.register_on_missing(made)
    return dict(made.ref)


def _parameters(path: str, endpoint: Any, access: scopes.Access) -> list[Schema]:
    found: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    for one in endpoint.query.fields.values():
        schema = one.described()
        parameter = {"name": one.name, "in": "query", "required": one.required, "schema": schema}
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        found.append(parameter)
    if not access.is_open and not access.is_open_on_loopback:
        found.append(TENANT_PARAMETER)
    if endpoint.takes_idempotency_key:
        found.append(IDEMPOTENCY_PARAMETER)
    return found


def _request_body(shape: Shape, registry: ComponentRegistry) -> Schema:
    reference = component(registry, shape.name, shape.schema())
    return {"required": not shape.is_optional, "content": {"application/json": {"schema": reference}}}


def _responses(path: str, endpoint: Any, access: scopes.Access, registry: ComponentRegistry) -> Schema:
    found: Schema = {}
    for status, schema in endpoint.replies.items():
        named = component(registry, schema["title"], schema) if "title" in schema else schema
        found[str(status)] = {"description": _PHRASES[status]}
        if schema:
            found[str(status)]["content"] = {"application/json": {"schema": named}}
    reference = component(registry, "Problem", PROBLEM)
    for status, description in REFUSALS.items():
        if status in _possible(path, endpoint, access):
            found[str(status)] = {
                "description": description,
                "content": {"application/problem+json": {"schema": reference}},
            }
    return found


def _possible(path: str, endpoint: Any, access: scopes.Access) -> set[int]:
    possible = {400, 503, *endpoint.refusals}
    if not access.is_open:
        possible |= {401, 403}
    if "{" in path:
        possible |= {404}
    if endpoint.body is not None:
        possible |= {409, 413, 415, 429}
    return possible


def _bearer(registry: ComponentRegistry) -> str:
    schema = {"type": "http", "scheme": "bearer", "bearerFormat": "jp_<id>_<secret>"}
    kind = ResolvedComponent.SECURITY_SCHEMA
    registry.register_on_missing(ResolvedComponent("token", kind, schema, "token"))  # type: ignore[no-untyped-call]
    return "token"


_PHRASES: Final[Mapping[int, str]] = {
    200: "Committed, or read.",
    201: "Accepted: the intent is durable.",
    202: "Accepted: the intent is durable.",
    204: "Done.",
}
