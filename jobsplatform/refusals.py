"""A refusal on a page for people: the platform's word in the frame, with a status that says the same."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string

from jobsplatform import problem
from jobsplatform.errors import Forbidden, JobsPlatformError, NotFound, Unavailable
from jobsplatform.wording import describe


class RefusalsMiddleware:
    """What verbs refuse becomes a page: absent is 404, forbidden 403, a database that is away or too slow 503."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not request.path.startswith(problem.PAGES):
            return None
        if isinstance(exception, NotFound):
            raise Http404 from exception
        if isinstance(exception, Forbidden):
            raise PermissionDenied(exception.detail) from exception
        if isinstance(exception, (OperationalError, InterfaceError)):
            return unanswered()
        if isinstance(exception, JobsPlatformError):
            return _page(exception)
        return None


def unanswered() -> HttpResponse:
    """The page for a database that is away or too slow; for what is asked before any view, too."""
    return _page(Unavailable("The database does not answer, or took too long for a page."))


def _page(error: JobsPlatformError) -> HttpResponse:
    """Without the menu and the user: both would ask the database that may be away."""
    text = render_to_string("frame/refused.html", {"title": error.title, "text": describe(error)})
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return HttpResponse(text, status=error.status, headers=headers)
