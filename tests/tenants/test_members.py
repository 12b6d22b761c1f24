"""Members of tenants: who is one, what the role allows, and that every change is told with who and why."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from jobsplatform.errors import Forbidden, Invalid, NotFound, TenantSuspended
from tenants import members, registry
from tenants.members import RIGHTS, Member, Right, Role
from tenants.models import AuditEntry, Membership
from tests.cast import OPS, acme, globex

pytestmark = pytest.mark.django_db


def person(name: str = "ann") -> User:
    return User.objects.create_user(name)


def belongs(role: str = "operator") -> User:
    user = person()
    members.set_member(acme().slug, "ann", role, actor=OPS)
    return user


@pytest.mark.parametrize("role", Role.values)
def test_a_role_allows_what_the_table_says(role: str) -> None:
    found = members.member(belongs(role), "acme")
    assert (found.tenant, found.role, found.actor) == (acme(), role, "user:ann")
    for right in Right:
        if right in RIGHTS[role]:
            found.require(right)
        else:
            with pytest.raises(Forbidden):
                found.require(right)


def test_each_role_may_all_that_the_one_below_it_may() -> None:
    assert RIGHTS[Role.VIEWER] < RIGHTS[Role.OPERATOR] < RIGHTS[Role.ADMIN] == frozenset(Right)


def test_a_role_that_nobody_knows_allows_nothing() -> None:
    assert not any(Member(acme(), "ann", "owner").may(right) for right in Right)


def test_a_foreign_and_an_absent_tenant_are_refused_alike() -> None:
    user = belongs()
    globex()
    said = set()
    for slug in ("globex", "nobody", "", "ACME", "acme "):
        with pytest.raises(NotFound) as refusal:
            members.member(user, slug)
        said.add(refusal.value.detail)
    assert len(said) == 1


def test_who_is_switched_off_is_no_member() -> None:
    user = belongs()
    user.is_active = False
    with pytest.raises(NotFound):
        members.member(user, "acme")


def test_a_suspended_tenant_is_only_looked_at() -> None:
    user = belongs("admin")
    registry.suspend("acme", actor=OPS, reason="unpaid")
    found = members.member(user, "acme")
    found.require(Right.REVEAL)
    found.require_look(Right.MANAGE)
    for right in (Right.ACT, Right.MANAGE):
        with pytest.raises(TenantSuspended):
            found.require(right)


def test_a_change_of_role_is_one_membership_and_one_entry_each() -> None:
    belongs("viewer")
    members.set_member("acme", "ann", "admin", actor=OPS, reason="runs it now")
    assert Membership.objects.get().role == "admin"
    made, changed = AuditEntry.objects.filter(action="permission.change").order_by("id")
    assert (made.details, made.tenant_id) == ({"role": "viewer", "before": None}, acme().pk)
    assert (changed.details, changed.reason, changed.actor) == (
        {"role": "admin", "before": "viewer"},
        "runs it now",
        OPS,
    )


def test_a_member_who_is_removed_is_told_of_once_and_sees_nothing_more() -> None:
    user = belongs()
    members.remove_member("acme", "ann", actor=OPS, reason="left")
    entry = AuditEntry.objects.filter(action="permission.change").latest("id")
    assert (entry.details, entry.reason) == ({"role": None, "before": "operator"}, "left")
    assert AuditEntry.objects.filter(action="permission.change").count() == 2
    with pytest.raises(NotFound):
        members.member(user, "acme")
    with pytest.raises(NotFound):
        members.remove_member("acme", "ann", actor=OPS)


@pytest.mark.parametrize(("user", "role"), [("ann", "owner"), ("nobody", "viewer"), ("", "viewer")])
def test_a_wrong_user_or_role_changes_nothing(user: str, role: str) -> None:
    person()
    acme()
    with pytest.raises(Invalid):
        members.set_member("acme", user, role, actor=OPS)
    assert not Membership.objects.exists()


def test_lists_name_people_and_tenants_in_order() -> None:
    user = belongs()
    person("bob")
    members.set_member("acme", "bob", "viewer", actor=OPS)
    members.set_member(globex().slug, "ann", "viewer", actor=OPS)
    assert [one.user.get_username() for one in members.members_of(acme())] == ["ann", "bob"]
    assert [one.tenant.slug for one in members.tenants_of(user)] == ["acme", "globex"]
