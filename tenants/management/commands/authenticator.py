"""`manage.py authenticator list|reset USER`: whose log-ins ask for a code, and the way back for a lost app."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobsplatform.commands import VerbCommand, actor, reason, verb_parser
from tenants import authenticators


class Command(VerbCommand):
    help = (
        "List the accounts with an authenticator; take one off whose owner has lost it. Resets are audited."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|reset")
        verb_parser(verbs, "list", help="accounts with an authenticator, by name")
        reset = verb_parser(verbs, "reset", help="let the password be enough until a new one is set up")
        reset.add_argument("user", metavar="USER", help="the account's name")
        reset.add_argument("--reason", type=reason, default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        if options["verb"] == "reset":
            authenticators.reset(options["user"], actor=actor(), reason=options["reason"])
            self.stdout.write(f"{options['user']} logs in by password alone.")
            return
        found = authenticators.in_use()
        for one in found:
            since = f"since {one.confirmed_at:%Y-%m-%d}" if one.confirmed_at else "not confirmed yet"
            self.stdout.write(f"{one.user.get_username():<20} {since}")
        if not found:
            self.stdout.write("No account has an authenticator.")
