"""People of the tenants' pages: who belongs where, and what their pages say."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from tenants import members
from tests import cast
from tests.admin_cast import checked

ROLES = ("viewer", "operator", "admin")


def person(name: str) -> User:
    return User.objects.filter(username=name).first() or User.objects.create_user(name)


def client_of(name: str, *, of: str = "", role: str = "viewer") -> Client:
    """A browser in which that person is logged in; a member of tenant `of`, if it is given."""
    user = person(name)
    if of:
        members.set_member(cast.tenant(of).slug, name, role, actor=cast.OPS)
    client = Client(enforce_csrf_checks=False)
    client.force_login(user)
    return client


def text_of(client: Client, address: str, status: int = 200) -> str:
    """The text of a page, which must hold no inline script or style."""
    response = client.get(address)
    assert response.status_code == status, (address, response.status_code, response.headers.get("Location"))
    return checked(response)


def sent(client: Client, address: str, **form: Any) -> str:
    """Send a form that is taken: the text of the page that it leads to."""
    response = client.post(address, form)
    assert response.status_code == 302, (response.status_code, response.content.decode()[-3_000:])
    return text_of(client, response.headers["Location"])
