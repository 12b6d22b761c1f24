"""Who belongs to a tenant, and what the role allows: people of its pages, not tokens.

Rights are asked here and by nobody else. A tenant that a person does not belong to is absent to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.db import transaction

from jobsplatform.errors import Forbidden, Invalid, NotFound, TenantSuspended
from tenants import audit
from tenants.models import Membership, Tenant
from tenants.permissions import ACTION

Role = Membership.Role


class Right(StrEnum):
    """What a member may do besides looking."""

    REVEAL = "see payloads and results"
    ACT = "cancel, retry, correct and redrive jobs, and switch schedules"
    MANAGE = "make and end tokens, and see the members"


RIGHTS: Final[Mapping[str, frozenset[Right]]] = {
    Role.VIEWER: frozenset(),
    Role.OPERATOR: frozenset({Right.REVEAL, Right.ACT}),
    Role.ADMIN: frozenset(Right),
}


@dataclass(frozen=True, slots=True)
class Member:
    """A person as a tenant's pages know them."""

    tenant: Tenant
    username: str
    role: str

    @property
    def actor(self) -> str:
        """How the audit names them."""
        return f"user:{self.username}"

    def may(self, right: Right) -> bool:
        return right in RIGHTS.get(self.role, frozenset())

    def require_look(self, right: Right) -> None:
        """Raises Forbidden."""
        if not self.may(right):
            raise Forbidden(f"Only some members may {right.value}; you are {self.role} here.")

    def require(self, right: Right) -> None:
        """Raises Forbidden; TenantSuspended, for a suspended tenant is only looked at."""
        self.require_look(right)
        if self.tenant.is_suspended and right is not Right.REVEAL:
            raise TenantSuspended


def member(user: Any, slug: str) -> Member:
    """The person in that tenant. Raises NotFound: absent, and not theirs, are the same."""
    found = (
        Membership.objects.select_related("tenant").filter(user_id=user.pk, tenant__slug=slug).first()
        if user.is_active
        else None
    )
    if found is None:
        raise NotFound
    return Member(found.tenant, user.get_username(), found.role)


def tenants_of(user: Any) -> list[Membership]:
    """The tenants that a person belongs to, by slug."""
    return list(Membership.objects.filter(user_id=user.pk).select_related("tenant").order_by("tenant__slug"))


def members_of(tenant: Tenant) -> list[Membership]:
    """Who belongs to a tenant, by user name."""
    return list(Membership.objects.filter(tenant=tenant).select_related("user").order_by("user__username"))


# Changes


def set_member(slug: str, username: str, role: str, *, actor: str, reason: str = "") -> Membership:
    """Take a person in, or give them another role. Raises NotFound for the tenant, Invalid for user and role."""
    if role not in Role.values:
        raise Invalid.at("/role", f"There is no role {role!r}; there are {', '.join(Role.values)}.")
    with transaction.atomic():
        tenant = _locked(slug)
        user = get_user_model()._default_manager.filter(username=username).first()
        if user is None:
            raise Invalid.at("/user", f"There is no user {username!r}.")
        held = Membership.objects.filter(tenant=tenant, user=user).first()
        before = None if held is None else held.role
        if held is None:
            Membership.objects.bulk_create([Membership(tenant=tenant, user=user, role=role)])
        else:
            Membership.objects.filter(pk=held.pk).update(role=role)
        _record(tenant, username, before, role, actor, reason)
        return Membership.objects.select_related("user", "tenant").get(tenant=tenant, user=user)


def remove_member(slug: str, username: str, *, actor: str, reason: str = "") -> None:
    """End a person's part in a tenant; their open pages end with the next request. Raises NotFound."""
    with transaction.atomic():
        tenant = _locked(slug)
        held = Membership.objects.filter(tenant=tenant, user__username=username).first()
        if held is None:
            raise NotFound(f"{username!r} is no member of {slug}.")
        Membership.objects.filter(pk=held.pk)._raw_delete(
            "default"
        )  # the signal's entry would know no reason
        _record(tenant, username, held.role, None, actor, reason)


def _locked(slug: str) -> Tenant:
    tenant = Tenant.objects.select_for_update().filter(slug=slug).first()
    if tenant is None:
        raise NotFound(f"There is no tenant {slug!r}.")
    return tenant


def _record(
    tenant: Tenant, username: str, before: str | None, after: str | None, actor: str, reason: str
) -> None:
    details = {"role": after, "before": before}
    audit.record(ACTION, f"user:{username}", actor=actor, tenant_id=tenant.pk, reason=reason, details=details)
