"""The edge that every API call passes: who calls, what it holds, whether it may, then one `act`.

Refusals come in the order of the contract, and only here: 401, 415 and 413, 400, 403, and what `act` raises
(404, 409, 429). An `Endpoint` is one method of one route; `route` puts those of one path together. What a
call needs is in the table of `jobsplatform.scopes`; a route without a row is served to nobody.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Final, Protocol, cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from rest_framework.views import APIView
from structlog.contextvars import bound_contextvars

from jobsplatform import acting, database, parking, problem, requestid, scopes, strictjson, tracing
from jobsplatform.errors import (
    FieldError,
    InsufficientScope,
    Invalid,
    TenantRequired,
    TenantSuspended,
    TooLarge,
    UnsupportedMediaType,
)
from jobsplatform.fields import Fault, Schema, normal_key
from jobsplatform.openapi import EndpointSchema
from jobsplatform.requestbody import read_body
from jobsplatform.shapes import Checked, Shape

OTHER_BODY_BYTES_MAX: Final = 64 * 1024
REQUEST_ID_CHARS_MAX: Final = 100
TENANT_HEADER: Final = "Jobsplatform-Tenant"
NOTHING: Final = Shape("Nothing")
METHODS_WITH_BODY: Final = ("POST", "PUT", "PATCH")

_log = logging.getLogger("jobsplatform.http")
_SLUG = re.compile("[a-z0-9][a-z0-9-]{0,62}").fullmatch
_REQUEST_ID = re.compile(rf"[\x21-\x7e]{{1,{REQUEST_ID_CHARS_MAX}}}").fullmatch


class Tenant(Protocol):
    """A tenant as the edge needs it."""

    @property
    def id(self) -> int: ...
    @property
    def slug(self) -> str: ...
    @property
    def is_suspended(self) -> bool: ...


class Caller(Protocol):
    """Who calls: a token of one tenant, or of the platform (`tenant` is None)."""

    @property
    def token_id(self) -> int: ...
    @property
    def tenant(self) -> Tenant | None: ...
    @property
    def scopes(self) -> frozenset[str]: ...
    @property
    def queue_names(self) -> frozenset[str] | None: ...
    @property
    def actor(self) -> str: ...


class Callers(Protocol):
    """The module that knows tokens and tenants (`settings.API_CALLERS`)."""

    def authenticate(self, header: str | None) -> Caller:
        """Raises Unauthenticated."""
        ...

    def tenant_by_slug(self, slug: str) -> Tenant | None: ...


@cache
def callers() -> Callers:
    return cast(Callers, import_module(getattr(settings, "API_CALLERS", "tenants.access")))


@dataclass(slots=True)
class Call:
    """One request, checked. `tenant` is whom it acts for: None is the whole fleet."""

    request: HttpRequest
    path: Mapping[str, str]
    access: scopes.Access
    caller: Caller | None = None
    tenant: Tenant | None = None
    body: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None

    @property
    def known(self) -> Caller:
        """The caller of a route that is not open."""
        assert self.caller is not None
        return self.caller

    def ask_again(self) -> None:
        """Whether the caller is still let in, for calls that wait. Raises as at the door: 401, 403."""
        self.caller = callers().authenticate(self.request.headers.get("Authorization"))
        if self.caller.tenant is not None:
            self.tenant = self.caller.tenant
        _admit(self.access, self)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call answers: a status, a body (members, or JSON text already made), and headers."""

    status: int
    body: Mapping[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that must be waited for. `undo` is called instead of `answer` when the client went away."""

    waiting: parking.Waiting
    answer: Callable[[], Reply]
    undo: Callable[[], None]


class Endpoint:
    """One method of one route. The docstring's first line is its summary in the OpenAPI document."""

    body: ClassVar[Shape | None] = None
    body_bytes_max: ClassVar[int] = OTHER_BODY_BYTES_MAX
    query: ClassVar[Shape] = NOTHING
    needs_tenant: ClassVar[bool] = False  # a fleet token must name the tenant
    takes_idempotency_key: ClassVar[bool] = False
    refusals: ClassVar[frozenset[int]] = (
        frozenset()
    )  # statuses that it may answer beside those of every route
    replies: ClassVar[Mapping[int, Schema]] = {}

    def check(self, call: Call) -> None:
        """Refuse with 400 what shapes cannot see; runs before scopes are looked at."""

    def act(self, call: Call) -> Reply | Later:
        raise NotImplementedError


class ApiView(APIView):
    """Serves the endpoints of one path. Sessions and cookies mean nothing here: only a token does."""

    endpoints: ClassVar[Mapping[str, type[Endpoint]]] = {}
    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    schema = EndpointSchema()

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer one request; whatever is no refusal goes on to Django, which logs it and answers 500."""
        request.COOKIES = {}  # no middleware may find a session on the way out, or touch its cookie
        try:
            return self._answer(request, kwargs)
        except Exception as exc:
            error = problem.translated(exc)
            if error is None:
                raise
            response = problem.respond(error, request)
            if isinstance(error, problem.MethodNotAllowed):
                response["Allow"] = ", ".join(self.allowed_methods)
            if isinstance(error, (TooLarge, UnsupportedMediaType)):
                response["Connection"] = "close"  # part of the body may be unread
            return response

    @property
    def allowed_methods(self) -> list[str]:
        return sorted(self.endpoints)

    # steps, in the order of refusals

    def _answer(self, request: HttpRequest, path: Mapping[str, str]) -> HttpResponse:
        method = "GET" if request.method == "HEAD" else request.method or ""
        kind = self.endpoints.get(method)
        if kind is None:
            raise problem.MethodNotAllowed
        access = scopes.access(method, request.resolver_match.route if request.resolver_match else "")
        endpoint, call = kind(), Call(request, path, access)
        if not access.is_open and not (access.is_open_on_loopback and is_loopback(request)):
            call.caller = callers().authenticate(request.headers.get("Authorization"))
        text = read_body(request, kind.body_bytes_max) if method in METHODS_WITH_BODY else b""
        _check(endpoint, call, text)
        if call.caller is not None:
            _admit(access, call)
        outcome = endpoint.act(call)
        return _wait(request, outcome) if isinstance(outcome, Later) else _response(outcome)


def route(**endpoints: type[Endpoint]) -> Callable[..., HttpResponse]:
    """The view of one path, from its endpoints by method: `route(GET=ListJobs, POST=Enqueue)`."""
    # DRF and its schema generator look for a handler by each method's name.
    handlers = {method.lower(): ApiView.dispatch for method in endpoints}
    view: type[ApiView] = type("Route", (ApiView,), {"endpoints": endpoints, **handlers})
    return cast(Callable[..., HttpResponse], view.as_view())


# 400


def _check(endpoint: Endpoint, call: Call, text: bytes) -> None:
    body, query = _checked_body(endpoint, text), endpoint.query.check_query(dict(call.request.GET.lists()))
    refusal = Checked({}, [*body.errors, *query.errors]).refusal
    if refusal is not None:
        raise refusal
    call.body, call.query = body.values, query.values
    call.tenant = _tenant(endpoint, call)
    call.idempotency_key = _idempotency_key(endpoint, call.request)
    endpoint.check(call)


def _checked_body(endpoint: Endpoint, text: bytes) -> Checked:
    shape = endpoint.body
    if shape is None:
        return Checked({})
    if not text and shape.is_optional:
        return shape.check(strictjson.Node())
    return shape.check(strictjson.read(text, shape.template))


def _tenant(endpoint: Endpoint, call: Call) -> Tenant | None:
    slug = call.request.headers.get(TENANT_HEADER)
    if call.caller is None:
        return None
    if call.caller.tenant is not None:
        if slug is not None:
            raise Invalid(f"A tenant's token must not send {TENANT_HEADER}.")
        return call.caller.tenant
    if slug is None:
        if endpoint.needs_tenant:
            raise TenantRequired
        return None
    tenant = callers().tenant_by_slug(slug) if _SLUG(slug) else None
    if tenant is None:
        raise TenantRequired(f"{TENANT_HEADER} names no tenant.")
    return tenant


def _idempotency_key(endpoint: Endpoint, request: HttpRequest) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is None or not endpoint.takes_idempotency_key:
        return None
    try:
        return normal_key(key.encode("latin-1").decode("utf-8"))  # WSGI hands headers over as Latin-1
    except UnicodeError:
        raise Invalid("Idempotency-Key is not UTF-8.") from None
    except Fault as fault:
        raise Invalid(errors=[FieldError("", fault.code, f"Idempotency-Key: {fault.detail}")]) from None


# 403


def _admit(access: scopes.Access, call: Call) -> None:
    wants_payload = call.query.get("include") == "payload"
    needed = access.with_payload if wants_payload else access.scopes
    if not needed & call.known.scopes:
        raise InsufficientScope(f"This call needs the scope {' or '.join(sorted(needed))}.")
    if call.tenant is not None and call.tenant.is_suspended and needed & scopes.STOPPED_BY_SUSPENSION:
        raise TenantSuspended


def is_loopback(request: HttpRequest) -> bool:
    """Whether the caller is on this machine. A proxy's request never counts: it may speak for anyone."""
    if any(name in request.META for name in ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


# Waiting


def _wait(request: HttpRequest, later: Later) -> HttpResponse:
    """Where the server can, let go of this thread until the answer is there; else sleep in it."""
    if parking.can_park(request):
        return parking.Parked(later.waiting, lambda: _answered(request, later), lambda: _undone(later))
    database.give_connections_back()
    later.waiting.wait()
    return _response(later.answer())


def _answered(request: HttpRequest, later: Later) -> HttpResponse:
    """The answer of a parked request, in whatever thread sends it."""
    try:
        return _response(later.answer())
    except Exception as exc:
        error = problem.translated(exc)
        if error is None:
            _log.exception("a parked request failed")
            error = problem.Internal()
        return problem.respond(error, request)
    finally:
        database.give_connections_back()


def _undone(later: Later) -> None:
    try:
        later.undo()
    finally:
        database.give_connections_back()


# Replies


def _response(reply: Reply) -> HttpResponse:
    text = reply.body if isinstance(reply.body, str) else ("" if reply.body is None else dump(reply.body))
    content = text.encode("utf-8", "replace")  # an echoed name may hold a lone surrogate: never a 500
    headers = {"Cache-Control": "no-store", **reply.headers}
    return HttpResponse(content, status=reply.status, content_type=reply.media_type, headers=headers)


def dump(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def splice(members: Mapping[str, Any], raw: Mapping[str, str]) -> str:
    """JSON text of an object with further members whose values are JSON text already."""
    inner = dump(members)[1:-1]
    parts = [inner] if inner else []
    parts.extend(f'"{name}":{text}' for name, text in raw.items())
    return "{" + ",".join(parts) + "}"


def listing(name: str, items: Iterable[str], members: Mapping[str, Any]) -> str:
    """JSON text of an object whose member `name` is a list of JSON texts."""
    return splice(members, {name: f"[{','.join(items)}]"})


# Middleware


Handler = Callable[[HttpRequest], HttpResponse]
API: Final = "/v1/"


class RequestIdMiddleware:
    """Every answer names its request: by the id that the caller sent, or by a new one; so does what is recorded."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        sent = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = sent if _REQUEST_ID(sent) else uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]
        token, served = requestid.current.set(request_id), acting.serving.set(request)
        try:
            trace = tracing.logged(tracing.sent(request.META.get("HTTP_TRACEPARENT")))
            with bound_contextvars(
                request_id=request_id, **trace
            ):  # every log line of this request names them
                response = self.get_response(request)
        finally:
            requestid.current.reset(token)
            acting.serving.reset(served)
        response["X-Request-ID"] = request_id
        return response


class ApiMiddleware:
    """Calls of the API pass by what stands further in, which is for people: sessions, forms, codes, messages."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response, self.innermost = get_response, _innermost(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return (self.innermost if request.path_info.startswith(API) else self.get_response)(request)


def _innermost(handler: Handler) -> Handler:
    """The handler behind all middleware, which turns exceptions into responses as each of them would."""
    while (inner := getattr(getattr(handler, "__wrapped__", handler), "get_response", None)) is not None:
        handler = inner
    return handler


def address_of(request: HttpRequest | None) -> str:
    """Where a request comes from; behind our proxy, what the proxy says. IPv6: its network, of which one has many."""
    if request is None:
        return ""
    named = request.META.get("HTTP_X_FORWARDED_FOR", "") if settings.HTTPS else ""
    text = named.split(",")[-1].strip() or request.META.get("REMOTE_ADDR", "")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


REPORTS: Final = "/csp-report"  # where browsers say what a page was kept from doing


class SecurityHeadersMiddleware:
    """Headers that keep browsers from running, framing, guessing or storing what they should not."""

    HEADERS: ClassVar[Mapping[str, str]] = {
        "Content-Security-Policy": (
            "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'self'; "
            f"form-action 'self'; frame-ancestors 'none'; report-uri {REPORTS}"
        ),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        for name, value in self.HEADERS.items():
            response.headers.setdefault(name, value)
        return response
