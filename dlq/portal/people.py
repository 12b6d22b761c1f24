"""Who belongs to the tenant. Operators of the platform take people in and put them out."""

from __future__ import annotations

from django.http import HttpResponse

from dlq.portal.door import Visit
from tenants import members
from tenants.members import RIGHTS, Right, Role


def people(visit: Visit) -> HttpResponse:
    """The members and what their roles allow; for admins."""
    visit.member.require_look(Right.MANAGE)
    roles = [(role.value, [right.value for right in Right if right in RIGHTS[role]]) for role in Role]
    context = {"people": members.members_of(visit.member.tenant), "roles": roles}
    return visit.page("portal/people.html", context, title="Members")
