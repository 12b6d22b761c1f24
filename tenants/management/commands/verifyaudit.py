"""`manage.py verifyaudit`: walk every chain of the audit, and name what was tampered with."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandParser

from jobsplatform import database
from jobsplatform.commands import VerbCommand
from tenants import audit
from tenants.audit import Tampered

NAMED_MAX = 1_000  # entries that one run names


class Command(VerbCommand):
    """Exit 0: every seal holds; 1: each entry that was changed or cut off, or whose neighbour is missing, is named."""

    help = "Check the audit: every entry's seal, and that it follows the one before it of its tenant."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--quiet", action="store_true", help="only name what is wrong")

    def act(self, options: dict[str, Any]) -> None:
        aliases = list(dict.fromkeys(["default", *database.aliases().values()]))
        broken = sum(self._verify(alias) for alias in aliases) + self._verify_seals()
        if broken:
            counted = "1 entry was" if broken == 1 else f"{broken:,} entries were"
            self.stderr.write(f"{counted} tampered with.")
            sys.exit(1)
        if not options["quiet"]:
            self.stdout.write(f"Every seal holds, in {', '.join(aliases)}.")

    def _verify(self, alias: str) -> int:
        """Returns how many entries of a database are broken."""
        broken = 0
        for found in audit.verify(alias):
            if isinstance(found, Tampered):
                broken += 1
                if broken <= NAMED_MAX:
                    self.stdout.write(str(found))
        return broken

    def _verify_seals(self) -> int:
        """Returns how many entries are missing that the control database has sealed."""
        missing = 0
        for missing, found in enumerate(audit.verify_seals(), 1):
            if missing <= NAMED_MAX:
                self.stdout.write(str(found))
        return missing
