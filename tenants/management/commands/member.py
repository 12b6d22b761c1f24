"""`manage.py member list|set|remove TENANT …`: who belongs to a tenant, and as what."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobsplatform.commands import VerbCommand, actor, reason, verb_parser
from tenants import members, registry
from tenants.members import Role


class Command(VerbCommand):
    help = (
        "List the members of a tenant; take a user in or change the role; put one out. Changes are audited."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|set|remove")
        for verb, text in (
            ("list", "members, by user name"),
            ("set", "take a user in, or change the role"),
            ("remove", "put a member out"),
        ):
            one = verb_parser(verbs, verb, help=text)
            one.add_argument("tenant", metavar="TENANT", help="its slug")
            if verb != "list":
                one.add_argument("user", metavar="USER", help="the user's name")
            if verb == "set":
                one.add_argument("role", metavar="ROLE", choices=Role.values, help=", ".join(Role.values))
            if verb != "list":
                one.add_argument("--reason", type=reason, default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        slug, verb = options["tenant"], options["verb"]
        if verb == "set":
            members.set_member(
                slug, options["user"], options["role"], actor=actor(), reason=options["reason"]
            )
        elif verb == "remove":
            members.remove_member(slug, options["user"], actor=actor(), reason=options["reason"])
        found = members.members_of(registry.get(slug))
        for membership in found:
            self.stdout.write(f"{membership.role:<9} {membership.user.get_username()}")
        if not found:
            self.stdout.write(f"{slug} has no members.")
