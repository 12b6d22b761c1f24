"""Who acts in this thread, for whatever records a change that no caller announced (a model's signal)."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from django.http import HttpRequest, HttpResponse

_request: Final[ContextVar[HttpRequest | None]] = ContextVar("acting_request", default=None)


def present() -> str:
    """`user:<name>` of whoever is logged in where this request came from, else who runs this process."""
    request = _request.get()
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return f"user:{user.get_username()}"
    return process_owner()


def process_owner() -> str:
    """How the audit names whoever runs a program on this machine."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name
        return f"cli:{os.getuid()}"


class ActingMiddleware:
    """Keeps the request at hand while it is served; who sends it is asked only when something is recorded."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = _request.set(request)
        try:
            return self.get_response(request)
        finally:
            _request.reset(token)
