"""The admin's screens of tenants, tokens and the audit."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from jobsplatform.errors import Unauthenticated
from tenants import access
from tenants.models import ApiToken, AuditEntry, Tenant, TenantState
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import SHARD, acme

pytestmark = pytest.mark.django_db

TENANTS = "admin:tenants_tenant_changelist"
TOKENS = "admin:tenants_apitoken_changelist"


def test_a_tenant_is_made_by_the_verb_and_known_to_the_shard() -> None:
    client = admin_cast.operator()
    assert (
        client.post(reverse("admin:tenants_tenant_add"), {"slug": "initech", "name": ""}).status_code == 302
    )
    tenant = Tenant.objects.get(slug="initech")
    assert TenantState.objects.using(SHARD).filter(tenant_id=tenant.pk).exists()
    assert AuditEntry.objects.get(action="tenant.create").actor == "user:ops"
    assert LogEntry.objects.get().object_id == str(tenant.pk)


@pytest.mark.parametrize("slug", ["acme", "A B", ""])
def test_a_wrong_slug_is_refused_in_the_form(slug: str) -> None:
    acme()
    response = admin_cast.operator().post(reverse("admin:tenants_tenant_add"), {"slug": slug, "name": ""})
    assert "errorlist" in admin_cast.checked(response)


def test_a_tenant_is_not_deleted() -> None:
    address = reverse("admin:tenants_tenant_delete", args=[acme().pk])
    assert admin_cast.operator().post(address, {"post": "yes"}).status_code == 403
    assert Tenant.objects.count() == 1


# Tokens


def _make(**changes: object) -> tuple[str, Client]:
    for name in ("a", "b"):
        cast.queue(name)
    form = {"tenant": acme().pk, "name": "w", "scopes": ["read", "work"], "queues": "a, b", **changes}
    client = admin_cast.operator()
    text = admin_cast.checked(client.post(reverse("admin:tenants_apitoken_add"), form))
    return text, client


def test_a_tokens_text_is_shown_once_and_works() -> None:
    text, client = _make()
    found = re.search(r"jp_[0-9a-z]{12}_[\w-]{32}", text)
    assert found is not None
    caller = access.authenticate(f"Bearer {found[0]}")
    assert (caller.scopes, caller.queue_names) == (frozenset({"read", "work"}), frozenset({"a", "b"}))
    assert AuditEntry.objects.get(action="token.create").actor == "user:ops"
    secret = found[0].split("_", 2)[2]
    token = ApiToken.objects.get()
    for address in (reverse(TOKENS), reverse("admin:tenants_apitoken_change", args=[token.pk]), "/admin/"):
        assert secret not in page(client, address)
    assert secret not in str(client.cookies)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": []},
        {"scopes": ["all"]},
        {"queues": "Bad Name"},
        {"queues": "a, nowhere"},
        {"tenant": 999},
        {"expires_at": "2001-01-01 00:00"},
        {"name": "x" * 201},
    ],
)
def test_a_wrong_token_is_refused_in_the_form(wrong: dict[str, object]) -> None:
    text, _ = _make(**wrong)
    assert "errorlist" in text
    assert not ApiToken.objects.exists()


def test_a_token_is_revoked_for_good() -> None:
    token, text = access.create_token(tenant=acme(), scopes=["read"], actor=cast.OPS)
    client = admin_cast.operator()
    assert (
        client.post(reverse(TOKENS), {"action": "revoke", "_selected_action": [token.pk]}).status_code == 302
    )
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {text}")
    assert "state-revoked" in page(client, reverse(TOKENS))


def test_who_may_only_look_cannot_revoke() -> None:
    token, _ = access.create_token(tenant=acme(), scopes=["read"], actor=cast.OPS)
    client = admin_cast.staff("tenants.view_apitoken")
    client.post(reverse(TOKENS), {"action": "revoke", "_selected_action": [token.pk]})
    token.refresh_from_db()
    assert token.revoked_at is None


# Audit


def test_the_audit_is_read_of_control_and_of_each_shard() -> None:
    cast.redriven(cast.buried(), now=cast.at(9))
    client, address = admin_cast.operator(), reverse("admin:tenants_auditentry_changelist")
    assert "tenant.create" in page(client, address)
    on_shard = page(client, f"{address}?shard=0")
    assert "job.redrive" in on_shard
    assert "tenant.create" not in on_shard
    link = re.search(r'<a href="([^"]+[?;&]shard=0[^"]*)"', on_shard.split('id="result_list"')[1])
    assert link is not None
    assert "job.redrive" in page(client, link[1].replace("&amp;", "&"))


def test_the_audit_is_never_changed() -> None:
    acme()
    entry = AuditEntry.objects.get()
    address = reverse("admin:tenants_auditentry_change", args=[entry.pk])
    assert admin_cast.operator().post(address, {"reason": "x"}).status_code == 403
