"""Refusals on the wire: every error becomes one RFC 9457 problem document, and nothing of the inside leaks.

Routes that nobody serves and requests that Django itself refuses are answered here too; only the pages for
people (admin, static files) keep their HTML.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import psycopg
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.views import defaults
from psycopg import errors as pg
from rest_framework import exceptions as drf

from jobsplatform import errors
from jobsplatform.errors import FieldError, JobsPlatformError

Translation = Callable[[BaseException], JobsPlatformError]

MEDIA_TYPE: Final = "application/problem+json"
UNREADABLE: Final = "The request cannot be read."
PAGES: Final = ("/admin/", "/static/", "/t/", "/login/", "/logout/")  # whose errors are pages for people


class MethodNotAllowed(JobsPlatformError):
    code, status, title = "method_not_allowed", 405, "The route does not offer this method."


class Internal(JobsPlatformError):
    code, status, title = "internal", 500, "The platform failed; its log names this request."


def respond(error: JobsPlatformError, request: HttpRequest) -> HttpResponse:
    """The response that answers a request with an error."""
    headers = {"Cache-Control": "no-store"}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, error.retry_after))
    body = json.dumps(document(error, instance_of(request)), separators=(",", ":"))
    return HttpResponse(body, status=error.status, content_type=MEDIA_TYPE, headers=headers)


def document(error: JobsPlatformError, instance: str | None = None) -> dict[str, Any]:
    """The problem document; without `instance` for an item of a batch."""
    content: dict[str, Any] = {
        "type": f"urn:jobsplatform:problem:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
    }
    if instance is not None:
        content["instance"] = instance
    content["code"] = error.code
    faults = error.errors if isinstance(error, errors.Invalid) else None
    for name, value in error.extra.items():
        if name == "errors":
            faults = value
        else:
            content[name] = value
    if faults is not None:
        content["errors"] = [FieldError(*fault)._asdict() for fault in faults]
    return content


def instance_of(request: HttpRequest) -> str:
    """The request's id, as the middleware took or made it."""
    return str(getattr(request, "request_id", ""))


def translated(exc: BaseException) -> JobsPlatformError | None:
    """The platform's error for an exception of Django, DRF or the database; None for a fault of our own."""
    if isinstance(exc, JobsPlatformError):
        return exc
    if isinstance(exc, _NOT_NOW) or isinstance(exc.__cause__, _NOT_NOW):
        return errors.Unavailable()
    for kinds, make in _TRANSLATIONS:
        if isinstance(exc, kinds):
            return make(exc)
    return None


def handle(exc: Exception, context: Mapping[str, Any]) -> HttpResponse | None:
    """DRF's exception handler. None lets Django log the fault and answer 500."""
    error = translated(exc)
    return None if error is None else respond(error, context["request"])


# Handlers that urls.py names; Django calls them for what no view answered.


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page_or_problem(request, exception, errors.Invalid(UNREADABLE))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page_or_problem(request, exception, errors.InsufficientScope())


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page_or_problem(request, exception, errors.NotFound())


def server_error(request: HttpRequest) -> HttpResponse:
    if _is_page(request):
        return defaults.server_error(request)
    return respond(Internal(), request)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form without its token. Forms are pages for people, so is the answer."""
    return defaults.permission_denied(request, PermissionDenied(reason))


def _page_or_problem(request: HttpRequest, exception: Exception, error: JobsPlatformError) -> HttpResponse:
    if not _is_page(request):
        return respond(error, request)
    page = {400: defaults.bad_request, 403: defaults.permission_denied, 404: defaults.page_not_found}
    return page[error.status](request, exception)


def _is_page(request: HttpRequest) -> bool:
    return request.path.startswith(PAGES)


def _throttled(exc: BaseException) -> JobsPlatformError:
    return errors.RateLimited(retry_after=int(getattr(exc, "wait", None) or 1))


# A server that became a standby, or gave up on us: no fault of ours, though PostgreSQL files them under such.
_NOT_NOW: Final = (pg.ReadOnlySqlTransaction, pg.IdleInTransactionSessionTimeout)

# The first line that fits decides: special kinds stand before the kinds that they specialise.
_TRANSLATIONS: Final[Sequence[tuple[tuple[type[BaseException], ...], Translation]]] = (
    ((OperationalError, InterfaceError), lambda exc: errors.Unavailable()),
    ((psycopg.OperationalError, psycopg.InterfaceError), lambda exc: errors.Unavailable()),
    ((Http404, drf.NotFound), lambda exc: errors.NotFound()),
    ((drf.NotAuthenticated, drf.AuthenticationFailed), lambda exc: errors.Unauthenticated()),
    ((PermissionDenied, drf.PermissionDenied), lambda exc: errors.InsufficientScope()),
    ((drf.MethodNotAllowed,), lambda exc: MethodNotAllowed()),
    ((drf.UnsupportedMediaType,), lambda exc: errors.UnsupportedMediaType()),
    ((drf.Throttled,), _throttled),
    ((RequestDataTooBig,), lambda exc: errors.TooLarge()),
    ((SuspiciousOperation, UnreadablePostError, drf.APIException), lambda exc: errors.Invalid(UNREADABLE)),
)
