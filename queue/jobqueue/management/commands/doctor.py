"""`manage.py doctor`: what an operator would look at first, in one table."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandParser

from jobqueue.doctor import work_is_moved
from jobsplatform.commands import VerbCommand
from jobsplatform.doctor import Finding, Verdict, examine

WORDS: Final = {Verdict.OK: "ok", Verdict.LOOK: "LOOK", Verdict.WRONG: "WRONG"}


class Command(VerbCommand):
    """Exit code: the worst verdict."""

    help = "Examine the databases and what runs on them. Exit 0: all is well; 1: worth a look; 2: something is wrong."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")

    def act(self, options: dict[str, Any]) -> None:
        findings = list(examine(work_is_moved))
        worst = max((finding.verdict for finding in findings), default=Verdict.OK)
        if options["json"]:
            lines = [asdict(finding) | {"verdict": finding.verdict.name.lower()} for finding in findings]
            self.stdout.write(json.dumps({"verdict": worst.name.lower(), "findings": lines}))
        else:
            self._write_table(findings)
        if worst:
            sys.exit(worst)

    def _write_table(self, findings: list[Finding]) -> None:
        for finding in findings:
            self.stdout.write(
                f"{finding.place:9} {finding.check:16} {WORDS[finding.verdict]:6} {finding.value}"
            )
            if finding.fix:
                self.stdout.write(f"{'':33} → {finding.fix}")
