"""Tenant × role × page: who gets in, what is refused, and that foreign and absent cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.urls.resolvers import URLPattern
from django.utils import timezone

from dlq.campaigns import CampaignFilter
from dlq.portal import urls
from jobqueue.ids import format_id
from jobqueue.schedules import register
from tenants import access, registry
from tests import cast
from tests.cast import OPS, acme, globex
from tests.portal_cast import ROLES, client_of, person

pytestmark = pytest.mark.django_db

LOOK, REVEAL, ACT, MANAGE = "look", "reveal", "act", "manage"
LOWEST = {LOOK: "viewer", REVEAL: "operator", ACT: "operator", MANAGE: "admin"}

# Every page below a tenant: what it needs to be opened. A route that is missing here fails the first test.
PAGES = {
    "overview": LOOK,
    "jobs": LOOK,
    "job": LOOK,
    "payload": REVEAL,
    "cancel": ACT,
    "retry": ACT,
    "letters": LOOK,
    "campaign": ACT,
    "progress": LOOK,
    "letter": LOOK,
    "correct": ACT,
    "redrive": ACT,
    "limits": LOOK,
    "schedules": LOOK,
    "schedule": LOOK,
    "run": ACT,
    "pause": ACT,
    "resume": ACT,
    "tokens": MANAGE,
    "token_new": MANAGE,
    "token_rotate": MANAGE,
    "token_revoke": MANAGE,
    "people": MANAGE,
    "start": LOOK,
}
OUTSIDE = {"login", "logout", "own"}
FORMS = {
    "payload": {"reason": "x"},
    "cancel": {"reason": "x"},
    "retry": {"reason": "x"},
    "campaign": {"note": "x", "rate_per_s": "10"},
    "progress": {"verb": "abort"},
    "correct": {"note": "x", "payload": "{}"},
    "redrive": {"note": "x", "redrive_key": "k"},
    "run": {"reason": "x"},
    "pause": {"reason": "x"},
    "resume": {"reason": "x"},
    "token_new": {"scopes": ["read"], "name": "x"},
    "token_rotate": {"overlap_s": "0"},
    "token_revoke": {"reason": "x"},
}


@dataclass
class Things:
    """What a tenant has, as the arguments of addresses."""

    slug: str
    job: str
    delayed: str
    dead: str
    error: str
    schedule: int
    campaign: int
    token: str

    def address(self, name: str, slug: str | None = None) -> str:
        argument: dict[str, Any] = {
            "job": self.job,
            "payload": self.job,
            "cancel": self.job,
            "retry": self.delayed,
            "letter": self.dead,
            "correct": self.dead,
            "redrive": self.dead,
            "progress": self.campaign,
            **dict.fromkeys(("schedule", "run", "pause", "resume"), self.schedule),
            **dict.fromkeys(("token_rotate", "token_revoke"), self.token),
        }
        more = [argument[name]] if name in argument else []
        query = f"?error={self.error}" if name == "campaign" else ""
        return reverse(f"portal:{name}", args=[slug or self.slug, *more]) + query


def things_of(slug: str) -> Things:
    from dlq import campaigns, reads

    owner = cast.tenant(slug)
    scope = cast.scope_of(owner)
    dead = cast.buried(tenant_id=owner.pk, kind=f"{slug}-kind")
    made = campaigns.create(
        campaigns.NewCampaign(chosen=CampaignFilter(kind="none"), note="x", actor=OPS), scope=scope
    )
    new = register.NewSchedule(
        tenant_id=owner.pk,
        queue=cast.queue(),
        name=f"{slug}-nightly",
        kind="noop",
        cron="0 3 * * *",
        priority=2,
    )
    return Things(
        slug,
        job=format_id(cast.enqueue(tenant_id=owner.pk)),
        delayed=format_id(cast.enqueue(tenant_id=owner.pk, not_before=cast.at(1_000))),
        dead=format_id(dead),
        error=reads.dead_letter(dead, scope=scope).fingerprint,
        schedule=register.create(new, actor=OPS).id,
        campaign=made.pk,
        token=access.create_token(tenant=owner, scopes=["read"], actor=OPS)[0].public_id,
    )


def routes() -> Iterator[str]:
    for pattern in urls.urlpatterns:
        assert isinstance(pattern, URLPattern)
        yield str(pattern.name)


def test_every_page_stands_in_the_table() -> None:
    assert set(routes()) == set(PAGES) | OUTSIDE


@pytest.mark.parametrize("role", ROLES)
def test_each_role_opens_what_the_table_allows_and_nothing_more(role: str) -> None:
    things = things_of("acme")
    client = client_of("ann", of="acme", role=role)
    for name, needs in PAGES.items():
        allowed = ROLES.index(role) >= ROLES.index(LOWEST[needs])
        response = client.get(things.address(name))
        assert response.status_code == (200 if allowed else 403), (name, role)


@pytest.mark.parametrize("role", ROLES)
def test_forms_that_are_sent_anyway_are_refused_below_the_role(role: str) -> None:
    things = things_of("acme")
    client = client_of("ann", of="acme", role=role)
    for name, form in FORMS.items():
        needs = ACT if name == "progress" else PAGES[name]
        if ROLES.index(role) >= ROLES.index(LOWEST[needs]):
            continue
        with cast.changes_nothing():
            response = client.post(things.address(name), form)
        assert response.status_code == 403, (name, role)


@pytest.mark.parametrize("role", ROLES)
def test_what_is_of_another_tenant_is_as_if_it_were_not_there(role: str) -> None:
    """Both ways: their page under their own name, and their ids under the name of one's own tenant."""
    own, theirs = things_of("acme"), things_of("globex")
    client = client_of("ann", of="acme", role=role)
    absent = Things("nobody", "0-999999", "0-999999", "0-999999", "0" * 16, 999_999, 999_999, "0" * 12)
    for name in PAGES:
        foreign = client.get(theirs.address(name))
        missing = client.get(absent.address(name))
        assert (foreign.status_code, missing.status_code) == (404, 404), name
        assert _same(foreign, missing), name
        if theirs.address(name, "acme") == own.address(name):
            continue
        forged = client.get(theirs.address(name, "acme"))
        unknown = client.get(absent.address(name, "acme"))
        assert forged.status_code == unknown.status_code, name
        assert forged.status_code in ((200,) if name == "campaign" else (404, 403)) or role == "viewer", name
        assert _same(forged, unknown), name


def test_forged_forms_change_nothing_of_another_tenant() -> None:
    things_of("acme")
    theirs = things_of("globex")
    client = client_of("ann", of="acme", role="admin")
    jobs = [cast_id(theirs.job), cast_id(theirs.delayed), cast_id(theirs.dead)]
    for name, form in FORMS.items():
        with cast.changes_nothing(*jobs):
            for slug in ("globex", "acme"):
                if slug == "acme" and name in ("token_new", "campaign"):
                    continue
                assert client.post(theirs.address(name, slug), form).status_code == 404, (name, slug)
    assert access.live_token(theirs.token).revoked_at is None
    assert not cast.audited("job.payload_shown")


def test_a_campaign_over_anothers_error_finds_nothing() -> None:
    from dlq import campaigns, reads
    from dlq.models import Campaign

    (dead,) = cast.graveyard(1, now=timezone.now() - timedelta(minutes=5), tenant_id=globex().pk)
    theirs = cast.scope_of(globex())
    error = reads.dead_letter(dead, scope=theirs).fingerprint
    assert campaigns.preview(CampaignFilter(fingerprint=error), scope=theirs).matches == 1
    client = client_of("ann", of="acme", role="admin")
    client.post(f"/t/acme/dead/redrive/?error={error}", FORMS["campaign"])
    made = Campaign.objects.get()
    assert (made.tenant_id, made.first_matches) == (acme().pk, 0)


def cast_id(name: str) -> int:
    from jobqueue.ids import parse_id

    return parse_id(name)


def _same(one: Any, other: Any) -> bool:
    def told(response: Any) -> tuple[Any, ...]:
        headers = {k: v for k, v in response.headers.items() if k not in ("X-Request-ID", "Content-Length")}
        return response.content, headers

    first, second = told(one), told(other)
    if one.status_code == 404:
        return bool(first == second)
    return bool(first[1] == second[1])


# Outside


@pytest.mark.parametrize("slug", ["acme", "globex", "nobody"])
def test_who_is_not_logged_in_is_sent_to_the_door_whatever_is_named(slug: str) -> None:
    acme()
    for name in PAGES:
        address = Things(slug, "0-1", "0-1", "0-1", "e", 1, 1, "t").address(name)
        response = Client().get(address)
        assert response.status_code == 302, name
        assert response.headers["Location"].startswith("/login/?next=/t/"), name


@pytest.mark.parametrize("kind", ["nobody", "staff", "superuser", "switched off"])
def test_who_is_no_member_gets_nothing(kind: str) -> None:
    things = things_of("acme")
    user = person("eve")
    user.is_staff, user.is_superuser = kind in ("staff", "superuser"), kind == "superuser"
    user.save()
    client = Client()
    client.force_login(user)
    if kind == "switched off":
        client = client_of("eve", of="acme", role="admin")
        user.refresh_from_db()
        user.is_active = False
        user.save()
    for name in PAGES:
        response = client.get(things.address(name))
        assert response.status_code == (302 if kind == "switched off" else 404), name


def test_a_membership_that_ends_closes_the_next_page() -> None:
    from tenants import members

    things = things_of("acme")
    client = client_of("ann", of="acme", role="admin")
    assert client.get(things.address("tokens")).status_code == 200
    members.set_member("acme", "ann", "viewer", actor=OPS)
    assert client.get(things.address("tokens")).status_code == 403
    members.remove_member("acme", "ann", actor=OPS)
    assert client.get(things.address("overview")).status_code == 404


def test_pages_of_a_suspended_tenant_show_and_do_nothing() -> None:
    things = things_of("acme")
    client = client_of("ann", of="acme", role="admin")
    registry.suspend("acme", actor=OPS)
    assert "is suspended" in client.get(things.address("overview")).content.decode()
    for name, form in FORMS.items():
        if name == "payload":
            continue
        assert client.post(things.address(name), form).status_code == 403, name
    assert client.get(things.address("tokens")).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_pages_that_only_show_take_no_other_method(method: str) -> None:
    things = things_of("acme")
    client = client_of("ann", of="acme", role="admin")
    for name in set(PAGES) - set(FORMS):
        assert getattr(client, method)(things.address(name)).status_code == 405, name


def test_a_form_without_its_token_is_refused() -> None:
    things = things_of("acme")
    client_of("ann", of="acme", role="admin")
    client = Client(enforce_csrf_checks=True)
    client.force_login(person("ann"))
    for name, form in FORMS.items():
        assert client.post(things.address(name), form).status_code == 403, name
    assert client.post(reverse("portal:logout")).status_code == 403
    assert globex()


def test_every_page_carries_the_headers_that_keep_it_in_bounds() -> None:
    things = things_of("acme")
    client = client_of("ann", of="acme", role="admin")
    addresses = [things.address(name) for name in PAGES]
    for address in (*addresses, "/login/", "/t/", "/t/nobody/", "/t/acme/jobs/x/"):
        headers = client.get(address).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy, address
        assert "frame-ancestors 'none'" in policy, address
        assert "unsafe" not in policy, address
        assert headers["Cache-Control"].startswith(("no-store", "max-age=0")), address
        assert "no-store" in headers["Cache-Control"], address
        assert headers["X-Content-Type-Options"] == "nosniff", address
        assert headers["Referrer-Policy"] == "same-origin", address
