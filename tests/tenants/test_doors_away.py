"""Who brings a session while the database is away is told so; no page is shown to somebody who was not looked up."""

from __future__ import annotations

from django.conf import settings
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from tenants.doors import CodesMiddleware


class Unknown:
    """A session's account that cannot be read."""

    @property
    def is_authenticated(self) -> bool:
        raise OperationalError("away")


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("the page")


def test_a_session_that_cannot_be_looked_up_gets_503_and_no_page() -> None:
    request = RequestFactory().get("/admin/")
    request.COOKIES[settings.SESSION_COOKIE_NAME] = "a"
    request.user = Unknown()  # type: ignore[assignment]
    answer = CodesMiddleware(view)(request)
    assert answer.status_code == 503
    assert b"database does not answer" in answer.content
    assert answer.headers["Retry-After"]
