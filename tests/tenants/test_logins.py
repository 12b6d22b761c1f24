"""Who guesses passwords has to wait; who knows theirs does not, unless a guesser sits at the same desk."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tenants import logins
from tenants.models import LoginAttempt
from tests import cast
from tests.cast import at

PASSWORD = "correct horse battery"


def _log_in(name: str, password: str, address: str = "192.0.2.1", **headers: Any) -> Any:
    return Client().post(
        "/admin/login/?next=/admin/", {"username": name, "password": password}, REMOTE_ADDR=address, **headers
    )


@pytest.mark.django_db
def test_the_sixth_guess_is_not_looked_at() -> None:
    User.objects.create_superuser("ops", "", PASSWORD)
    for _ in range(logins.ATTEMPTS_MAX):
        assert b"Please enter the correct username" in _log_in("ops", "wrong").content
    refused = _log_in("OPS ", PASSWORD)
    assert refused.status_code == 200
    assert b"Too many attempts. Try again in 15 minutes." in refused.content
    assert _log_in("ops", PASSWORD, address="192.0.2.2").status_code == 302


@pytest.mark.django_db
def test_a_success_forgets_the_errors_before_it() -> None:
    User.objects.create_superuser("ops", "", PASSWORD)
    for _ in range(3):
        for _ in range(logins.ATTEMPTS_MAX - 1):
            _log_in("ops", "wrong")
        assert _log_in("ops", PASSWORD).status_code == 302


@pytest.mark.django_db
def test_an_address_that_tries_many_names_has_to_wait() -> None:
    for number in range(logins.OF_ADDRESS_MAX):
        assert logins.attempt(f"u{number}", "192.0.2.9", now=at(0)) == 0
    assert logins.attempt("another", "192.0.2.9", now=at(1)) == pytest.approx(logins.WINDOW_SECONDS - 1)
    assert logins.attempt("another", "192.0.2.10", now=at(1)) == 0
    assert logins.attempt("another", "192.0.2.9", now=at(logins.WINDOW_SECONDS)) == 0


@pytest.mark.django_db
def test_neither_names_nor_addresses_are_stored() -> None:
    logins.attempt("ops", "192.0.2.1")
    rows = [bytes(key) for key in LoginAttempt.objects.values_list("key", flat=True)]
    assert len(rows) == 3
    assert all(len(key) == 32 and b"ops" not in key for key in rows)


@pytest.mark.django_db
def test_old_attempts_are_forgotten() -> None:
    logins.attempt("ops", "192.0.2.1", now=at(0))
    assert logins.purge(100, now=at(logins.WINDOW_SECONDS - 1)) == 0
    assert logins.purge(100, now=at(logins.WINDOW_SECONDS + 1)) == 3
    assert not LoginAttempt.objects.exists()


@pytest.mark.django_db
def test_behind_a_proxy_its_word_on_the_address_counts_and_no_one_else_s(settings: Any) -> None:
    forged: dict[str, Any] = {"HTTP_X_FORWARDED_FOR": "203.0.113.7"}
    for number in range(logins.ATTEMPTS_MAX):
        _log_in("ops", "x", HTTP_X_FORWARDED_FOR=f"203.0.113.{number}")
    assert b"Too many" in _log_in("ops", "x", **forged).content
    settings.HTTPS = True
    assert b"Too many" not in _log_in("ops", "x", **forged).content


@pytest.mark.django_db(transaction=True)
def test_many_guesses_at_once_are_no_way_around() -> None:
    answers = cast.together(*[lambda: logins.attempt("ops", "192.0.2.1")] * 12)
    assert sum(answer == 0 for answer in answers) == logins.ATTEMPTS_MAX


@pytest.mark.parametrize("address", ["", "nonsense", "::1", "2001:db8::1", "%00"])
@pytest.mark.django_db
def test_an_odd_address_is_no_fault(address: str) -> None:
    assert _log_in("nobody", "x", address=address).status_code == 200
