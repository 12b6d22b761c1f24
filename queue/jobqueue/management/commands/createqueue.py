"""`manage.py createqueue NAME`: a new queue, from a preset and settings."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobqueue import policies
from jobqueue.models import Queue
from jobsplatform.commands import VerbCommand, actor, assigned, key_value


class Command(VerbCommand):
    help = "Make a queue that all tenants may use. What is not set has the default of the API's contract."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "name", metavar="NAME", help="lower-case letters, digits, dot, hyphen, underscore"
        )
        parser.add_argument(
            "--preset", default="five", help=f"its bands: {', '.join(policies.PRESETS)} (five)"
        )
        parser.add_argument(
            "--set",
            dest="assignments",
            type=key_value,
            action="extend",
            nargs="+",
            default=[],
            metavar="key=value",
            help=f"{', '.join(sorted(policies.SETTABLE))}; none where a setting can be off",
        )

    def act(self, options: dict[str, Any]) -> None:
        queue = policies.create_queue(
            options["name"],
            preset=options["preset"],
            settings=assigned(Queue, options["assignments"]),
            actor=actor(),
        )
        bands = ", ".join(band.name for band in queue.bands)
        self.stdout.write(f"Queue {queue.name} made, with the bands {bands}.")
