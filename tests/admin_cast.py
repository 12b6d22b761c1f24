"""Who uses the admin in the tests, and what every page of it must be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.cast import SHARD

_INLINE = re.compile(
    rb"<script(?![^>]*\bsrc=)(?![^>]*type=\"application/json\")[^>]*>|<style|\sstyle=|\son\w+=", re.IGNORECASE
)


def operator() -> Client:
    """A client of somebody who may do everything."""
    return _client(User.objects.create_superuser("ops", "", "x"))


def staff(*permissions: str) -> Client:
    """A client of somebody who may do what is named (`app.verb_model`), and no more."""
    user = User.objects.create_user("clerk", is_staff=True)
    for name in permissions:
        app, codename = name.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    return _client(user)


def _client(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, address: str) -> str:
    """A page that answers, counts nothing, and holds no inline script or style."""
    with statements() as seen:
        response = client.get(address)
    assert response.status_code == 200, (address, response.status_code, response.headers.get("Location"))
    assert [text for text in seen if "COUNT(" in text.upper()] == []
    assert len(seen) < 20, address
    return checked(response)


def checked(response: Any) -> str:
    """The text of a page, which must hold no inline script or style."""
    assert _INLINE.findall(response.content) == []
    return str(response.content.decode())


@contextmanager
def statements() -> Iterator[list[str]]:
    """What Django's own queries on both databases said inside the block."""
    seen: list[str] = []
    with ExitStack() as stack:
        captured = [stack.enter_context(CaptureQueriesContext(connections[a])) for a in ("default", SHARD)]
        yield seen
    for context in captured:
        seen += [query["sql"] for query in context.captured_queries]
