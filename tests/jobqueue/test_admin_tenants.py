"""The operators' page of a tenant: limits with their effect before they are stored, the way back, members, tokens."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from jobqueue.enqueue import enqueue as enqueue_jobs
from jobsplatform.errors import Unauthenticated
from tenants import access, members, registry
from tenants.models import ApiToken, AuditEntry, Membership, Quota, QuotaVersion, Tenant
from tests import admin_cast, cast
from tests.admin_cast import checked, page
from tests.cast import OPS, acme, globex

pytestmark = pytest.mark.django_db


def own(name: str, *args: object, tenant: Tenant | None = None) -> str:
    return reverse(f"admin:tenants_tenant_{name}", args=[(tenant or acme()).pk, *args])


def limits(client: Client, **form: object) -> str:
    """Send the form of limits over all queues; the page that answers."""
    response = client.post(own("quota") + "?queue=", form, follow=True)
    return checked(response)


# Limits


def test_the_page_shows_use_peak_and_refusals_beside_each_limit() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 5}, actor=OPS)
    enqueue_jobs([cast.new_job()] * 7, now=None)
    text = page(admin_cast.operator(), own("change"))
    assert "5 of 5 (100%)" in text
    assert "used up" in text
    assert re.search(r'class="number">2</td>', text), "two were refused"


def test_nothing_is_stored_before_its_effect_was_seen() -> None:
    cast.enqueue_many(8)
    client = admin_cast.operator()
    seen = limits(client, max_depth="5", reason="smaller plan", show="Show the effect")
    assert "3 jobs above the new depth stay" in seen
    assert not Quota.objects.exists()
    assert "What it would do" in limits(client, max_depth="5", save="x"), "it was not seen in this form"
    assert not Quota.objects.exists()
    said = re.search(r'name="seen" value="([^"]*)"', seen)
    assert said is not None
    limits(client, max_depth="5", reason="smaller plan", seen=said[1], save="Store these limits")
    assert Quota.objects.get().max_depth == 5
    assert AuditEntry.objects.get(action="quota.set").reason == "smaller plan"


def test_other_limits_than_those_that_were_seen_are_shown_again() -> None:
    client = admin_cast.operator()
    acme()
    assert "What it would do" in limits(client, max_depth="6", seen="max_depth=5", save="x")
    assert not Quota.objects.exists()


@pytest.mark.parametrize("wrong", [{"max_depth": "-1"}, {"weight": "0"}, {"max_depth": "many"}])
def test_wrong_limits_are_refused_in_the_form(wrong: dict[str, str]) -> None:
    acme()
    assert "errorlist" in limits(admin_cast.operator(), **wrong, show="x")


def test_an_operator_goes_back_to_a_version() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    registry.set_quota("acme", {"max_depth": 5}, actor=OPS)
    client = admin_cast.operator()
    text = page(client, own("revert", 2))
    assert "room for 10 more" in text
    client.post(own("revert", 2), {"reason": "they pay again"})
    assert Quota.objects.get().max_depth == 10
    assert AuditEntry.objects.get(action="quota.revert").actor == "user:ops"
    assert "Back to 2. they pay again" in page(client, own("change"))


@pytest.mark.parametrize("query", ["?queue=nowhere", "?queue=default&band=9", "?queue=&band=1", "?band=x"])
def test_a_place_that_there_is_not_is_absent(query: str) -> None:
    assert admin_cast.operator().get(own("quota") + query).status_code == 404


def test_a_version_of_another_tenant_is_absent() -> None:
    globex()
    registry.set_quota("globex", {"max_depth": 10}, actor=OPS)
    assert admin_cast.operator().post(own("revert", 2), {"reason": ""}).status_code == 404
    assert QuotaVersion.objects.count() == 2


# Members, tokens, suspension


def test_members_come_in_change_and_go() -> None:
    User.objects.create_user("ann")
    client = admin_cast.operator()
    client.post(own("member_add"), {"user": "ann", "role": "viewer", "reason": "new here"})
    held = Membership.objects.get()
    assert held.role == "viewer"
    client.post(own("member", held.pk), {"role": "admin", "reason": ""})
    assert Membership.objects.get().role == "admin"
    assert "ann" in page(client, own("change"))
    client.post(own("member_remove", held.pk), {"reason": "left"})
    assert not Membership.objects.exists()
    entries = AuditEntry.objects.filter(target="user:ann").order_by("id")
    assert [(entry.actor, entry.reason) for entry in entries] == [
        ("user:ops", "new here"),
        ("user:ops", ""),
        ("user:ops", "left"),
    ]


def test_an_unknown_user_is_refused_in_the_form() -> None:
    text = checked(admin_cast.operator().post(own("member_add"), {"user": "nobody", "role": "viewer"}))
    assert "There is no user" in text


def test_a_member_of_another_tenant_is_absent() -> None:
    User.objects.create_user("ann")
    held = members.set_member(globex().slug, "ann", "viewer", actor=OPS)
    client = admin_cast.operator()
    for name in ("member", "member_remove"):
        assert client.post(own(name, held.pk), {"role": "admin"}).status_code == 404
    assert Membership.objects.get().role == "viewer"


def test_a_rotated_secret_is_shown_once_and_the_old_one_ends() -> None:
    token, old = access.create_token(tenant=acme(), scopes=["read"], actor=OPS)
    client = admin_cast.operator()
    address = reverse("admin:tenants_apitoken_rotate", args=[token.pk])
    text = checked(client.post(address, {"overlap_s": "0", "reason": "leaked"}))
    found = re.search(r"jp_[0-9a-z]{12}_[\w-]{32}", text)
    assert found is not None
    assert access.authenticate(f"Bearer {found[0]}").token_id == token.pk
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {old}")
    assert found[0].split("_", 2)[2] not in page(client, own("change"))
    assert AuditEntry.objects.get(action="token.rotate").reason == "leaked"


def test_a_revoked_token_is_no_more_on_the_page() -> None:
    token, _ = access.create_token(tenant=acme(), scopes=["read"], actor=OPS)
    client = admin_cast.operator()
    assert str(token) in page(client, own("change"))
    client.post(reverse("admin:tenants_apitoken_revoke", args=[token.pk]), {"reason": "over"})
    assert AuditEntry.objects.get(action="token.revoke").reason == "over"
    assert ApiToken.objects.get().revoked_at is not None
    assert client.get(reverse("admin:tenants_apitoken_rotate", args=[token.pk])).status_code == 404


@pytest.mark.parametrize(
    ("verb", "field", "value"),
    [
        ("suspend", "is_suspended", True),
        ("reinstate", "is_suspended", False),
        ("pause", "is_paused", True),
        ("resume", "is_paused", False),
    ],
)
def test_tenants_are_switched_with_a_reason(verb: str, field: str, value: bool) -> None:
    client = admin_cast.operator()
    client.post(own("switch", verb), {"reason": "asked for"})
    assert getattr(Tenant.objects.get(slug="acme"), field) is value
    entry = AuditEntry.objects.get(action=f"tenant.{verb}")
    assert (entry.reason, entry.actor) == ("asked for", "user:ops")


def test_a_switch_that_there_is_not_is_absent() -> None:
    assert admin_cast.operator().post(own("switch", "delete-all"), {"reason": ""}).status_code == 404


# Who may what

ACTS: dict[str, tuple[str, dict[str, str]]] = {
    "tenants.change_quota": ("quota", {"max_depth": "5", "seen": "max_depth=5", "save": "x"}),
    "tenants.change_membership": ("member_add", {"user": "ann", "role": "admin"}),
    "tenants.change_tenant": ("suspend", {"reason": ""}),
}


@pytest.mark.parametrize("held", ["tenants.view_tenant", *ACTS])
def test_each_act_needs_its_own_permission(held: str) -> None:
    User.objects.create_user("ann")
    client = (
        admin_cast.staff("tenants.view_tenant", held)
        if held != "tenants.view_tenant"
        else admin_cast.staff(held)
    )
    for needed, (name, form) in ACTS.items():
        address = (
            own("switch", name) if name == "suspend" else own(name) + ("?queue=" if name == "quota" else "")
        )
        status = client.post(address, form).status_code
        assert status == (302 if needed == held else 403), (held, needed)
    assert Quota.objects.exists() is (held == "tenants.change_quota")
    assert Membership.objects.exists() is (held == "tenants.change_membership")
    assert acme().is_suspended is (held == "tenants.change_tenant")


def test_the_page_shows_only_what_one_may_see() -> None:
    User.objects.create_user("ann")
    members.set_member(acme().slug, "ann", "viewer", actor=OPS)
    registry.set_quota("acme", {"max_depth": 77}, actor=OPS)
    token, _ = access.create_token(tenant=acme(), scopes=["read"], actor=OPS)
    text = page(admin_cast.staff("tenants.view_tenant"), own("change"))
    for secret in (">ann<", "77 waiting", str(token), "quota.set", "Suspend…"):
        assert secret not in text


def test_tokens_are_rotated_and_revoked_by_those_who_may() -> None:
    token, _ = access.create_token(tenant=acme(), scopes=["read"], actor=OPS)
    client = admin_cast.staff("tenants.view_apitoken")
    for verb in ("rotate", "revoke"):
        assert client.post(reverse(f"admin:tenants_apitoken_{verb}", args=[token.pk]), {}).status_code == 403
    assert access.live_token(token.public_id)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>=cmd|'/c'!A1"


def test_hostile_names_and_reasons_are_inert() -> None:
    tenant = registry.create_tenant("evil", name=HOSTILE, actor=OPS)
    registry.set_quota("evil", {"max_depth": 5}, actor=OPS, reason=HOSTILE)
    access.create_token(tenant=tenant, scopes=["read"], name=HOSTILE, actor=OPS)
    User.objects.create_user(HOSTILE[:150])
    members.set_member("evil", HOSTILE[:150], "viewer", actor=OPS, reason=HOSTILE)
    registry.suspend("evil", actor=OPS, reason=HOSTILE)
    client = admin_cast.operator()
    for address in (own("change", tenant=tenant), reverse("admin:tenants_tenant_changelist")):
        text = client.get(address).content.decode()
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;alert(1)" in text
