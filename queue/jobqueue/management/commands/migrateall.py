"""`manage.py migrateall`: every database up to date, beside whatever runs on it."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import OperationalError

from jobsplatform import migrating
from jobsplatform.commands import StrictCommand
from jobsplatform.wording import one_line


class Command(StrictCommand):
    """Exit code: 1 when a lock was not to be had in time; what was done until then stays, and a repeat goes on."""

    help = "Migrate the control database and every shard beside live work: no lock is waited for over half a second."
    requires_system_checks: list[str] = []  # the tables may not be there yet

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--patience",
            type=_seconds,
            default=migrating.PATIENCE_SECONDS,
            metavar="SECONDS",
            help=f"how long to try for a lock that others hold ({migrating.PATIENCE_SECONDS:.0f})",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.check(databases=list(settings.DATABASES))  # an unsafe server is refused before it is written to
        for alias in settings.DATABASES:
            try:
                count = migrating.migrate(
                    alias,
                    patience_s=options["patience"],
                    tell=partial(self._tell, alias),
                )
            except OperationalError as error:
                raise CommandError(f"{alias}: {one_line(error)}") from None
            self.stdout.write(f"{alias}: {count} migrations applied")

    def _tell(self, alias: str, line: str) -> None:
        self.stderr.write(f"{alias}: {line}")


def _seconds(text: str) -> float:
    if not text.isdecimal() or not 1 <= int(text) <= 86_400:
        raise argparse.ArgumentTypeError("1 to 86400 seconds")
    return float(text)
