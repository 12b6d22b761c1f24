"""`manage.py restored SHARD`: a shard that was restored begins a new epoch."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobqueue import restoring
from jobqueue.ids import format_id
from jobqueue.limits import REASON_CHARS_MAX
from jobsplatform.commands import VerbCommand, actor
from jobsplatform.errors import Invalid


class Command(VerbCommand):
    help = (
        "After a restore, or a failover that may have lost commits, and before anything else is started: leases and "
        "tokens of the past are refused from then on, generations and ids go on above all that were given out."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("shard", type=int, metavar="SHARD", help="its number")
        parser.add_argument("--reason", default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        if len(options["reason"]) > REASON_CHARS_MAX:
            raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
        epoch = restoring.restored(options["shard"], actor=actor(), reason=options["reason"])
        self.stdout.write(
            f"Shard {options['shard']} begins anew: {epoch.leases:,} leases taken back, {epoch.jobs:,} jobs raised, "
            f"new ids from {format_id(epoch.first_id)}."
        )
