"""Who may do what is audited, whoever changes it and however."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.urls import reverse

from tenants.models import AuditEntry, Membership
from tests import admin_cast, cast
from tests.cast import acme

pytestmark = pytest.mark.django_db


def _told() -> list[tuple[str, dict[str, Any]]]:
    entries = AuditEntry.objects.filter(action="permission.change").order_by("pk")
    return [(entry.target, entry.details) for entry in entries]


def _permission() -> Permission:
    return Permission.objects.get(codename="add_redrive")


def test_groups_and_permissions_of_a_user_are_told() -> None:
    user, group = User.objects.create_user("clerk"), Group.objects.create(name="desk")
    user.groups.add(group)
    user.user_permissions.add(_permission())
    user.groups.remove(group)
    user.user_permissions.clear()
    assert _told() == [
        ("user:clerk", {"what": "groups", "added": ["desk"]}),
        ("user:clerk", {"what": "permissions", "added": [str(_permission())]}),
        ("user:clerk", {"what": "groups", "removed": ["desk"]}),
        ("user:clerk", {"what": "permissions", "cleared": ["all"]}),
    ]


def test_rights_that_end_with_a_group_or_a_user_are_told() -> None:
    user, group = User.objects.create_user("clerk"), Group.objects.create(name="desk")
    group.user_set.add(user)
    group.delete()
    user.delete()
    assert _told() == [
        ("group:desk", {"what": "users", "added": ["clerk"]}),
        ("group:desk", {"deleted": True}),
        ("user:clerk", {"deleted": True}),
    ]


def test_permissions_of_a_group_are_told() -> None:
    Group.objects.create(name="desk").permissions.set([_permission()])
    assert _told() == [("group:desk", {"what": "permissions", "added": [str(_permission())]})]


def test_powers_are_told_when_they_change_and_only_then() -> None:
    user = User.objects.create_user("clerk")
    user.email = "c@example.org"
    user.save()
    assert _told() == []
    user.is_superuser = user.is_staff = True
    user.save()
    user.is_active = False
    user.save()
    assert _told() == [
        ("user:clerk", {"is_staff": True, "is_superuser": True}),
        ("user:clerk", {"is_active": False}),
    ]


def test_a_member_s_role_is_in_its_tenant_s_chain() -> None:
    member = Membership.objects.create(tenant=acme(), user=User.objects.create_user("clerk"), role="admin")
    member.delete()
    entries = AuditEntry.objects.filter(action="permission.change").order_by("pk")
    assert [(entry.tenant_id, entry.details["role"]) for entry in entries] == [
        (acme().pk, "admin"),
        (acme().pk, None),
    ]


def test_a_change_in_the_admin_names_who_made_it() -> None:
    client, user = admin_cast.operator(), User.objects.create_user("clerk")
    group = Group.objects.create(name="desk")
    form = {
        "username": "clerk",
        "is_active": "on",
        "groups": [group.pk],
        "date_joined_0": "2026-01-01",
        "date_joined_1": "00:00:00",
    }
    assert client.post(reverse("admin:auth_user_change", args=[user.pk]), form).status_code == 302
    entry = AuditEntry.objects.filter(action="permission.change", target="user:clerk").latest("pk")
    assert (entry.actor, entry.details) == ("user:ops", {"what": "groups", "added": ["desk"]})


def test_a_change_outside_a_request_names_the_process() -> None:
    User.objects.create_superuser("boss")
    entry = AuditEntry.objects.get(action="permission.change")
    assert entry.actor.startswith("cli:")
    assert cast.read(
        "SELECT count(*) FROM tenants_auditentry WHERE target = 'user:boss'", alias="default"
    ) == [(1,)]
