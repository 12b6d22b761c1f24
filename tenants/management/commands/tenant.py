"""`manage.py tenant list|show|suspend|reinstate`: the tenants, and who is refused."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobsplatform.commands import VerbCommand, actor, reason, verb_parser
from tenants import members, registry
from tenants.models import Tenant

LIST_MAX = 1_000


class Command(VerbCommand):
    help = "List tenants; suspend one, which refuses its producing and working calls, or reinstate it."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|show|suspend|reinstate")
        verb_parser(verbs, "list", help=f"the first {LIST_MAX:,}, by slug")
        for verb, text in (
            ("show", "one tenant and its members"),
            ("suspend", "refuse its calls until reinstated; what it has stays"),
            ("reinstate", "answer its calls again"),
        ):
            one = verb_parser(verbs, verb, help=text)
            one.add_argument("slug", metavar="SLUG")
            if verb != "show":
                one.add_argument("--reason", type=reason, default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        verb = options["verb"]
        if verb == "list":
            for tenant in Tenant.objects.order_by("slug")[:LIST_MAX]:
                self.stdout.write(_line(tenant))
            return
        slug = options["slug"]
        if verb in ("suspend", "reinstate"):
            change = registry.suspend if verb == "suspend" else registry.reinstate
            change(slug, actor=actor(), reason=options["reason"])
        tenant = registry.get(slug)
        self.stdout.write(_line(tenant))
        if verb == "show":
            for membership in members.members_of(tenant):
                self.stdout.write(f"  {membership.role:<9} {membership.user.get_username()}")


def _line(tenant: Tenant) -> str:
    states = [
        word for word, holds in (("suspended", tenant.is_suspended), ("paused", tenant.is_paused)) if holds
    ]
    name = f"  {tenant.name}" if tenant.name else ""
    return f"{tenant.slug}  {', '.join(states) or 'active'}, weight {tenant.weight}{name}"
