"""Who acts in this thread, for whatever records a change that no caller announced (a model's signal)."""

from __future__ import annotations

import getpass
import os
from contextvars import ContextVar
from typing import Any, Final

from django.http import HttpRequest

ADMIN: Final = "/admin/"

# The request that this thread serves; who sent it is asked only when something is recorded.
serving: Final[ContextVar[HttpRequest | None]] = ContextVar("serving", default=None)


def present() -> str:
    """`user:<name>` of whoever is logged in where this request came from, else who runs this process."""
    request = serving.get()
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return f"user:{user.get_username()}"
    return process_owner()


def operator() -> Any:
    """The user of the admin for whom this thread acts; None: a program, or an edge that has rules of its own."""
    request = serving.get()
    if request is None or not request.path.startswith(ADMIN):
        return None
    return getattr(request, "user", None)


def process_owner() -> str:
    """How the audit names whoever runs a program on this machine."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name
        return f"cli:{os.getuid()}"
