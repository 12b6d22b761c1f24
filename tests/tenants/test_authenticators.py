"""Codes of the second step: each works once, guesses are slowed down, and no page opens without one that is owed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyotp
import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobsplatform.errors import Invalid, RateLimited
from tenants import authenticators, logins
from tenants.models import AuditEntry, Authenticator
from tests import cast
from tests.admin_cast import checked
from tests.cast import OPS, at
from tests.commands_cast import refused, run
from tests.portal_cast import client_of

PASSWORD = "correct horse battery"
HERE = "192.0.2.1"


def ops() -> User:
    return User.objects.create_superuser("ops", "", PASSWORD)


def code_at(user: User, instant: datetime) -> str:
    """What the app of an account shows."""
    held = Authenticator.objects.get(user=user)
    return pyotp.TOTP(authenticators.secret(held)).at(instant)


def with_authenticator(user: User) -> Authenticator:
    """In use since long ago."""
    held = authenticators.begin(user)
    Authenticator.objects.filter(pk=held.pk).update(confirmed_at=at(-86_400))
    return held


def code_now(user: User) -> str:
    """One that is good now, whatever was used before it."""
    Authenticator.objects.filter(user=user).update(last_step=0)
    code: str = pyotp.TOTP(authenticators.secret(Authenticator.objects.get(user=user))).now()
    return code


def log_in(door: str = "/admin/login/", then: str = "/admin/queues/") -> Client:
    client = Client()
    response = client.post(f"{door}?next={then}", {"username": "ops", "password": PASSWORD, "next": then})
    assert response.status_code == 302, response.content
    return client


# The verbs


@pytest.mark.django_db
def test_a_code_works_once_and_those_before_it_no_more() -> None:
    user = ops()
    held = with_authenticator(user)
    assert authenticators.check(user, code_at(user, at(60)), HERE, now=at(60)) == held.pk
    for stale in (60, 30):
        with pytest.raises(Invalid):
            authenticators.check(user, code_at(user, at(stale)), HERE, now=at(60))
    assert authenticators.check(user, code_at(user, at(90)), HERE, now=at(90)) == held.pk


@pytest.mark.django_db
def test_a_clock_may_be_half_a_minute_off_and_no_more() -> None:
    user = ops()
    with_authenticator(user)
    for off in (-60, 60):
        with pytest.raises(Invalid):
            authenticators.check(user, code_at(user, at(600 + off)), HERE, now=at(600))
    assert authenticators.check(user, code_at(user, at(570)), HERE, now=at(600))
    assert authenticators.check(user, code_at(user, at(630)), HERE, now=at(600))


@pytest.mark.django_db(transaction=True)
def test_of_many_that_send_one_code_at_once_one_is_in() -> None:
    user = ops()
    with_authenticator(user)
    code = code_at(user, at(60))

    def send(number: int) -> bool:
        try:
            return bool(authenticators.check(user, code, f"192.0.2.{number}", now=at(60)))
        except (Invalid, RateLimited):
            return False

    answers = cast.together(*[lambda number=number: send(number) for number in range(8)])
    assert answers.count(True) == 1


@pytest.mark.django_db
def test_the_sixth_wrong_code_is_not_looked_at_and_from_anywhere_not_the_eleventh() -> None:
    user = ops()
    with_authenticator(user)
    for _ in range(logins.ATTEMPTS_MAX):
        with pytest.raises(Invalid):
            authenticators.check(user, "x", HERE, now=at(0))
    with pytest.raises(RateLimited) as refusal:
        authenticators.check(user, code_at(user, at(1)), HERE, now=at(1))
    assert "Try again in 15 minutes" in str(refusal.value)
    for number in range(logins.CODES_OF_NAME_MAX - logins.ATTEMPTS_MAX):
        with pytest.raises(Invalid):
            authenticators.check(user, "x", f"192.0.2.{10 + number}", now=at(2))
    with pytest.raises(RateLimited):
        authenticators.check(user, code_at(user, at(3)), "192.0.2.99", now=at(3))
    later = at(logins.WINDOW_SECONDS + 3)
    assert authenticators.check(user, code_at(user, later), HERE, now=later)


@pytest.mark.parametrize("code", ["", "000", "١٢٣٤٥٦", "\ud800", "1" * 20, "-1", "%00"])
@pytest.mark.django_db
def test_odd_codes_are_wrong_codes(code: str) -> None:
    user = ops()
    with_authenticator(user)
    with pytest.raises(Invalid):
        authenticators.check(user, code, HERE, now=at(0))


@pytest.mark.django_db
def test_a_code_of_another_account_opens_nothing() -> None:
    user, other = ops(), User.objects.create_superuser("other", "", PASSWORD)
    with_authenticator(user)
    with_authenticator(other)
    with pytest.raises(Invalid):
        authenticators.check(user, code_at(other, at(0)), HERE, now=at(0))


@pytest.mark.django_db
def test_the_database_does_not_hold_the_secret(settings: Any) -> None:
    held = with_authenticator(ops())
    before = authenticators.secret(held)
    row = " ".join(
        str(value) for value in cast.read("SELECT * FROM tenants_authenticator", alias="default")[0]
    )
    assert before not in row
    assert pyotp.TOTP(before).byte_secret().hex() not in row
    settings.TOKEN_PEPPER = b"another pepper" * 4
    assert authenticators.secret(held) != before


@pytest.mark.django_db
def test_the_address_for_apps_names_installation_and_account(settings: Any) -> None:
    settings.ENVIRONMENT = "a&b"
    user = User.objects.create_superuser("o+p@s", "", PASSWORD)
    parsed = pyotp.parse_uri(authenticators.uri(authenticators.begin(user)))
    assert (parsed.name, parsed.issuer) == ("o+p@s", "Jobs Platform (a&b)")


# Setting up and giving up


@pytest.mark.django_db
def test_an_operator_sets_codes_up_and_other_open_sessions_have_to_give_one() -> None:
    user = ops()
    client, other = client_of("ops"), client_of("ops")
    assert "Set up codes" in checked(client.get("/admin/codes/"))
    client.post("/admin/codes/", {"begin": "1"})
    text = checked(client.get("/admin/codes/"))
    secret = authenticators.secret(Authenticator.objects.get())
    assert secret in text.replace(" ", "")
    picture = client.get("/admin/codes/picture.svg")
    assert (picture.status_code, picture["Content-Type"]) == (200, "image/svg+xml")
    assert b"style" not in picture.content
    assert "no-store" in picture["Cache-Control"]
    assert other.get("/admin/queues/").status_code == 200, "until it is confirmed nothing changes"
    assert "wrong" in checked(client.post("/admin/codes/", {"code": "000000"}))
    assert client.post("/admin/codes/", {"code": code_now(user)}).status_code == 302
    assert client.get("/admin/queues/").status_code == 200
    assert client.get("/admin/codes/picture.svg").status_code == 404
    assert secret not in checked(client.get("/admin/codes/")).replace(" ", "")
    assert other.get("/admin/queues/").headers["Location"] == "/login/code/?next=/admin/queues/"
    assert AuditEntry.objects.filter(action="authenticator.add", actor="user:ops", target="user:ops").exists()


@pytest.mark.django_db
def test_a_secret_that_was_begun_anew_is_another_and_one_in_use_stays() -> None:
    user = ops()
    client = client_of("ops")
    client.post("/admin/codes/", {"begin": "1"})
    before = authenticators.secret(Authenticator.objects.get())
    client.post("/admin/codes/", {"begin": "1"})
    held = Authenticator.objects.get()
    assert authenticators.secret(held) != before
    client.post("/admin/codes/", {"code": code_now(user)})
    client.post("/admin/codes/", {"begin": "1"})
    assert authenticators.secret(Authenticator.objects.get()) == authenticators.secret(held)


@pytest.mark.django_db
def test_giving_codes_up_needs_one() -> None:
    user = ops()
    with_authenticator(user)
    client = log_in()
    client.post("/login/code/", {"code": code_now(user)})
    assert "wrong" in checked(client.post("/admin/codes/", {"code": "000000"}))
    assert Authenticator.objects.exists()
    assert client.post("/admin/codes/", {"code": code_now(user)}).status_code == 302
    assert not Authenticator.objects.exists()
    assert AuditEntry.objects.filter(action="authenticator.remove", actor="user:ops").exists()
    assert log_in().get("/admin/queues/").status_code == 200


# Logging in


@pytest.mark.parametrize("door", ["/admin/login/", "/login/"])
@pytest.mark.django_db
def test_a_password_alone_opens_no_page_by_either_door(door: str) -> None:
    user = ops()
    with_authenticator(user)
    cast.acme()
    client = log_in(door)
    for page in ("/admin/", "/admin/queues/", "/admin/codes/", "/admin/password_change/", "/t/", "/t/acme/"):
        assert client.get(page).headers["Location"].startswith("/login/code/?next=/"), page
        assert client.post(page).headers["Location"] == "/login/code/", page
    assert client.get("/admin/codes/picture.svg").status_code == 302
    assert client.get("/admin/no-such-page/").status_code == 302
    asked = checked(client.get("/login/code/?next=/admin/queues/"))
    assert "one-time-code" in asked
    key = client.session.session_key
    form = {"code": code_now(user), "next": "/admin/queues/"}
    assert client.post("/login/code/", form).headers["Location"] == "/admin/queues/"
    assert client.get("/admin/queues/").status_code == 200
    assert client.session.session_key != key, "whoever knew the half-open session has nothing of it"
    assert client.get("/login/code/?next=/admin/").headers["Location"] == "/admin/"


@pytest.mark.django_db
def test_a_code_that_was_seen_opens_no_second_session() -> None:
    user = ops()
    with_authenticator(user)
    code = code_now(user)
    first, second = log_in(), log_in()
    assert first.post("/login/code/", {"code": code}).status_code == 302
    assert "used before" in checked(second.post("/login/code/", {"code": code}))
    assert second.get("/admin/queues/").status_code == 302


@pytest.mark.django_db
def test_too_many_codes_are_told_to_wait_and_the_way_out_stays_open() -> None:
    user = ops()
    with_authenticator(user)
    client = log_in()
    for _ in range(logins.ATTEMPTS_MAX):
        assert client.post("/login/code/", {"code": "000000"}).status_code == 200
    refusal = client.post("/login/code/", {"code": code_now(user)})
    assert refusal.status_code == 429
    assert "Too many attempts" in checked(refusal)
    assert client.post("/logout/").status_code == 302
    assert client.get("/admin/queues/").headers["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("place", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", ""])
@pytest.mark.django_db
def test_the_code_leads_to_no_other_site(place: str) -> None:
    user = ops()
    with_authenticator(user)
    answer = log_in().post("/login/code/", {"code": code_now(user), "next": place})
    assert answer.headers["Location"] == "/admin/"


@pytest.mark.django_db
def test_the_page_for_codes_is_nothing_to_whoever_owes_none() -> None:
    ops()
    assert Client().get("/login/code/").headers["Location"] == "/admin/login/"
    assert log_in().get("/login/code/").headers["Location"] == "/admin/"
    client = client_of("ann", of="acme")
    assert client.get("/login/code/").headers["Location"] == "/t/"
    assert client.get("/t/acme/").status_code == 200


@pytest.mark.django_db
def test_a_new_authenticator_is_asked_for_anew() -> None:
    user = ops()
    with_authenticator(user)
    client = log_in()
    client.post("/login/code/", {"code": code_now(user)})
    Authenticator.objects.all().delete()
    with_authenticator(user)
    assert client.get("/admin/queues/").status_code == 302


@pytest.mark.django_db
def test_tokens_know_nothing_of_it() -> None:
    with_authenticator(ops())
    client = log_in()
    assert client.get("/v1/jobs").status_code == 401
    assert client.get("/livez").status_code == 200


# Where every operator needs one


@pytest.mark.django_db
def test_where_codes_are_required_an_operator_sets_them_up_before_anything_else(settings: Any) -> None:
    settings.JOBS_STAFF_CODES_REQUIRED = True
    user = ops()
    client = log_in()
    assert client.get("/admin/queues/").headers["Location"] == "/admin/codes/?next=/admin/queues/"
    assert "before you go on" in checked(client.get("/admin/codes/?next=/admin/queues/"))
    client.post("/admin/codes/?next=/admin/queues/", {"begin": "1"})
    assert client.get("/admin/codes/picture.svg").status_code == 200
    done = client.post("/admin/codes/?next=/admin/queues/", {"code": code_now(user)})
    assert done.headers["Location"] == "/admin/queues/"
    assert client.get("/admin/queues/").status_code == 200
    assert "Switch codes off" not in checked(client.get("/admin/codes/"))
    client.post("/admin/codes/", {"code": code_now(user)})
    assert authenticators.of(user) is not None


@pytest.mark.django_db
def test_members_need_none_where_operators_do(settings: Any) -> None:
    settings.JOBS_STAFF_CODES_REQUIRED = True
    assert client_of("ann", of="acme").get("/t/acme/").status_code == 200


# By command


@pytest.mark.django_db
def test_a_lost_app_is_taken_off_by_command_and_audited() -> None:
    user = ops()
    assert run("authenticator", "list").out == "No account has an authenticator.\n"
    with_authenticator(user)
    assert run("authenticator", "list").out.split() == ["ops", "since", f"{at(-86_400):%Y-%m-%d}"]
    run("authenticator", "reset", "ops", "--reason", "phone lost")
    entry = AuditEntry.objects.get(action="authenticator.reset")
    assert (entry.target, entry.reason) == ("user:ops", "phone lost")
    assert entry.actor.startswith("cli:")
    assert log_in().get("/admin/queues/").status_code == 200
    assert "'ops' has no authenticator" in refused("authenticator", "reset", "ops")
    assert "There is no user 'nobody'" in refused("authenticator", "reset", "nobody")
    assert OPS not in {entry.actor for entry in AuditEntry.objects.filter(action="authenticator.reset")}
