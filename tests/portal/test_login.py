"""The door: who comes in, where it leads, and how many guesses it bears."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tenants import logins
from tests.cast import acme
from tests.portal_cast import client_of, text_of

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"


def log_in(client: Client, password: str = PASSWORD, **more: str) -> str:
    """Where it leads; empty: nowhere."""
    response = client.post("/login/", {"username": "ann", "password": password, **more})
    return response.headers.get("Location", "")


def ann() -> Client:
    User.objects.create_user("ann", password=PASSWORD)
    client_of("ann", of="acme")
    return Client()


def test_a_member_of_one_tenant_is_led_to_it() -> None:
    client = ann()
    assert log_in(client) == "/t/"
    assert client.get("/t/").headers["Location"] == "/t/acme/"
    assert text_of(client, "/t/acme/")


def test_a_member_of_two_chooses() -> None:
    ann()
    text = text_of(client_of("ann", of="globex"), "/t/")
    assert "/t/acme/" in text
    assert "/t/globex/" in text


def test_who_belongs_nowhere_is_told_so() -> None:
    acme()
    text = text_of(client_of("eve"), "/t/")
    assert "You belong to no tenant" in text
    assert "acme" not in text


def test_one_comes_back_to_the_page_that_one_asked_for_and_to_no_other_site() -> None:
    client = ann()
    assert log_in(client, next="/t/acme/jobs/") == "/t/acme/jobs/"
    assert log_in(Client(), next="https://evil.example/") == "/t/"
    assert log_in(Client(), next="//evil.example/") == "/t/"


def test_a_wrong_password_and_an_unknown_name_say_the_same() -> None:
    client = ann()
    wrong = client.post("/login/", {"username": "ann", "password": "wrong"})
    unknown = client.post("/login/", {"username": "bob", "password": "wrong"})
    assert "errornote" in wrong.content.decode()
    assert _said(wrong) == _said(unknown)


def _said(response: object) -> str:
    text: str = response.content.decode()  # type: ignore[attr-defined]
    return text[text.index("errornote") : text.index("<fieldset")]


def test_guesses_are_slowed_down_with_the_right_password_too() -> None:
    client = ann()
    for _ in range(logins.ATTEMPTS_MAX):
        assert log_in(client, "wrong") == ""
    assert log_in(client) == ""
    assert (
        "Too many attempts"
        in client.post("/login/", {"username": "ann", "password": PASSWORD}).content.decode()
    )


def test_the_session_ends_with_log_out() -> None:
    client = ann()
    log_in(client)
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").status_code == 302
    assert client.get("/t/acme/").headers["Location"].startswith("/login/")


def test_a_session_of_the_pages_opens_no_api_and_no_admin() -> None:
    client = ann()
    log_in(client)
    assert client.get("/v1/jobs").status_code == 401
    assert client.get("/admin/tenants/tenant/").status_code == 302
