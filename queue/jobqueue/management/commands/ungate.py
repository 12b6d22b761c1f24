"""`manage.py ungate TENANT KIND`: let the lanes go on that poisons hold back."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobqueue import poisons
from jobqueue.limits import REASON_CHARS_MAX
from jobsplatform.commands import VerbCommand, actor
from jobsplatform.errors import Invalid


class Command(VerbCommand):
    help = "Let the jobs of a tenant's kind start again that poisons hold back; poisons are counted anew."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="its slug")
        parser.add_argument("kind", metavar="KIND")
        parser.add_argument("--reason", default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        tenant, kind, reason = options["tenant"], options["kind"], options["reason"]
        if len(reason) > REASON_CHARS_MAX:
            raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
        held = poisons.release(tenant, kind, actor=actor(), reason=reason)
        lanes = "1 lane goes" if held == 1 else f"{held} lanes go"
        self.stdout.write(f"{lanes} on: {kind} of {tenant}.")
