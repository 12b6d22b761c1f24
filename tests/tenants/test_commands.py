"""`createtenant` and `createtoken`: what they make works, and what they refuse is one line."""

from __future__ import annotations

import json

import pytest

from tenants import access
from tenants.models import ApiToken, AuditEntry, Tenant, TenantState
from tests.cast import SHARD, acme
from tests.commands_cast import refused, run, run_apart

pytestmark = pytest.mark.django_db


def test_createtenant_makes_a_tenant_that_the_shard_knows() -> None:
    assert run("createtenant", "initech", "--name", "Initech").code == 0
    tenant = Tenant.objects.get(slug="initech")
    assert TenantState.objects.using(SHARD).filter(tenant_id=tenant.pk).exists()
    assert AuditEntry.objects.get(action="tenant.create").actor.startswith("cli:")


def test_createtenant_refuses_a_taken_slug() -> None:
    acme()
    assert "already exists" in refused("createtenant", "acme")


@pytest.mark.parametrize("slug", ["Acme", "a b", "", "a" * 64, "ä"])
def test_createtenant_refuses_a_bad_slug(slug: str) -> None:
    assert "slug" in refused("createtenant", slug)
    assert not Tenant.objects.exists()


def test_createtoken_prints_a_token_that_works() -> None:
    acme()
    ran = run("createtoken", "--tenant", "acme", "--scopes", "produce,read", "--queues", "a,b", "--name", "w")
    caller = access.authenticate(f"Bearer {ran.out.strip()}")
    assert caller.tenant is not None
    assert (caller.tenant.slug, caller.scopes) == ("acme", frozenset({"produce", "read"}))
    assert caller.queue_names == frozenset({"a", "b"})


def test_createtoken_json_is_one_line_and_nothing_else() -> None:
    acme()
    ran = run("createtoken", "--tenant", "acme", "--scopes", "work", "--json")
    assert (ran.code, ran.err) == (0, "")
    (line,) = ran.out.splitlines()
    told = json.loads(line)
    caller = access.authenticate(f"Bearer {told.pop('token')}")
    assert told == {"id": caller.public_id, "tenant": "acme", "scopes": ["work"]}


def test_createtoken_makes_fleet_tokens_that_end() -> None:
    ran = run("createtoken", "--fleet", "--scopes", "admin", "--expires-in-s", "60", "--json")
    assert json.loads(ran.out)["tenant"] is None
    token = ApiToken.objects.get()
    assert token.expires_at is not None
    assert 55 < (token.expires_at - token.created_at).total_seconds() < 65


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tenant", "nope", "--scopes", "read"),
        ("--fleet", "--scopes", "all"),
        ("--fleet", "--scopes", ","),
        ("--fleet", "--scopes", "read", "--queues", "A B"),
        ("--fleet", "--scopes", "read", "--queues", ","),
        ("--fleet", "--scopes", "read", "--name", "x" * 201),
        ("--fleet", "--scopes", "read", "--expires-in-s", "0"),
        ("--fleet", "--scopes", "read", "--expires-in-s", "soon"),
        ("--fleet", "--tenant", "acme", "--scopes", "read"),
        ("--scopes", "read"),
        ("--fleet",),
    ],
    ids=" ".join,
)
def test_createtoken_refuses_wrong_input_with_one_line(arguments: tuple[str, ...]) -> None:
    refused("createtoken", *arguments)
    assert not ApiToken.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_shell_sees_one_line_and_an_exit_code(process_environment: dict[str, str]) -> None:
    made = run_apart(process_environment, "createtenant", "initech")
    assert (made.code, made.err) == (0, "")
    again = run_apart(process_environment, "createtenant", "initech")
    unreadable = run_apart(process_environment, "createtoken", "--scopes", "read")
    assert (again.code, again.out, again.err.count("\n")) == (1, "", 1)
    assert (unreadable.code, unreadable.out, unreadable.err.count("\n")) == (2, "", 1)
    token = run_apart(process_environment, "createtoken", "--tenant", "initech", "--scopes", "read", "--json")
    assert access.authenticate(f"Bearer {json.loads(token.out)['token']}").tenant is not None
