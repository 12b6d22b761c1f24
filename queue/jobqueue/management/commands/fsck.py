"""`manage.py fsck`: check every promise about jobs on the live tables."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import CommandParser

from jobqueue import fsck
from jobqueue.ids import format_id
from jobsplatform import everywhere
from jobsplatform.commands import VerbCommand, actor


class Command(VerbCommand):
    """Exit 0: no fault is left; 1: each fault is named."""

    help = (
        "Check that every job stands in exactly one place, and the promises about it. Safe on a live system."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
        parser.add_argument(
            "--repair",
            action="store_true",
            help="put jobs that stand nowhere back to scheduled, audited, in paced batches",
        )

    def act(self, options: dict[str, Any]) -> None:
        unknown: list[int] = []
        faults = list(fsck.check(unknown))
        repaired = fsck.repair(faults, actor=actor()) if options["repair"] else set()
        left = [f for f in faults if f.fault != fsck.NOWHERE or f.job_id not in repaired]
        if options["json"]:
            self._write_json(faults, repaired, unknown)
        else:
            self._write_lines(faults, repaired, unknown)
        if left or unknown:
            sys.exit(1)

    def _write_json(self, faults: list[fsck.Fault], repaired: set[int], unknown: list[int]) -> None:
        document = {
            "faults": [{"job_id": format_id(f.job_id), "fault": f.fault, "detail": f.detail} for f in faults],
            "repaired": [format_id(job_id) for job_id in sorted(repaired)],
            **everywhere.mark(unknown),
        }
        self.stdout.write(json.dumps(document))

    def _write_lines(self, faults: list[fsck.Fault], repaired: set[int], unknown: list[int]) -> None:
        for fault in faults:
            self.stdout.write(f"{fault}" + (" (put back to scheduled)" if fault.job_id in repaired else ""))
        self.stdout.write(f"{len(faults)} faults, {len(repaired)} jobs put back." if faults else "No faults.")
        if unknown:
            self.stdout.write(
                f"Not checked, for they cannot be reached: shards {', '.join(map(str, unknown))}."
            )
