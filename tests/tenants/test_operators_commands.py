"""`tenant`, `member` and `token`: the verbs of people and tokens on a shell, and what they refuse."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from jobsplatform.errors import Unauthenticated
from tenants import access
from tenants.models import AuditEntry, Membership
from tests.cast import OPS, acme
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


def test_tenant_suspends_with_a_reason_and_reinstates() -> None:
    acme()
    assert "suspended" in run("tenant", "suspend", "acme", "--reason", "unpaid").out
    entry = AuditEntry.objects.get(action="tenant.suspend")
    assert (entry.reason, entry.actor.startswith("cli:")) == ("unpaid", True)
    assert run("tenant", "reinstate", "acme").out.startswith("acme  active")
    assert run("tenant", "list").out == "acme  active, weight 1\n"


def test_member_takes_in_changes_and_puts_out() -> None:
    acme()
    User.objects.create_user("ann")
    assert run("member", "set", "acme", "ann", "viewer").out == "viewer    ann\n"
    assert run("member", "set", "acme", "ann", "admin", "--reason", "runs it").out == "admin     ann\n"
    assert "admin     ann" in run("tenant", "show", "acme").out
    assert run("member", "remove", "acme", "ann").out == "acme has no members.\n"
    assert not Membership.objects.exists()
    assert [entry.reason for entry in AuditEntry.objects.filter(target="user:ann")] == ["", "runs it", ""]


def test_token_rotates_and_revokes_by_the_id_in_its_text() -> None:
    token, old = access.create_token(tenant=acme(), scopes=["read"], name="app", actor=OPS)
    assert "read in every queue, never used  app" in run("token", "list", "--tenant", "acme").out
    new = run("token", "rotate", str(token), "--reason", "leaked").out.strip()
    assert access.authenticate(f"Bearer {new}").token_id == token.pk
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {old}")
    assert run("token", "revoke", token.public_id, "--reason", "over").code == 0
    access.forget()
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {new}")
    assert AuditEntry.objects.get(action="token.rotate").reason == "leaked"
    assert AuditEntry.objects.get(action="token.revoke").reason == "over"
    assert "There is no live token" in refused("token", "revoke", token.public_id)
    secret = new.split("_", 2)[2]
    assert not any(secret in str(entry.details) for entry in AuditEntry.objects.all())


@pytest.mark.parametrize(
    "arguments",
    [
        ("tenant", "suspend", "nobody"),
        ("member", "set", "nobody", "ann", "viewer"),
        ("member", "set", "acme", "ann", "viewer"),
        ("member", "remove", "acme", "ann"),
        ("token", "list", "--tenant", "nobody"),
        ("token", "rotate", "jp_absent"),
        ("token", "rotate", "'; DROP TABLE"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(arguments: tuple[str, ...]) -> None:
    acme()
    assert refused(*arguments)
