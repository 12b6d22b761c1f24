"""`manage.py migrateshards`: brings every database up to date, control first."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandParser
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from jobsplatform.commands import StrictCommand
from jobsplatform.wording import one_line


class Command(StrictCommand):
    help = "Migrate the control database and every shard; those that cannot be reached are named at the end."
    requires_system_checks: list[str] = []  # each database is checked before it is migrated

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--plan", action="store_true", help="say what would be done, and do nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        failed = [alias for alias in settings.DATABASES if not self._migrate(alias, options["plan"])]
        if failed:
            self.stderr.write(f"Not migrated: {', '.join(failed)}. Repeat it when they can be reached.")
            sys.exit(1)

    def _migrate(self, alias: str, only_plan: bool) -> bool:
        name = "control" if alias == "default" else alias
        try:
            executor = MigrationExecutor(connections[alias])
            plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
            if plan and not only_plan:
                call_command("migrate", database=alias, verbosity=0, interactive=False)
        except DatabaseError as error:
            self.stderr.write(f"{name}: {one_line(error)}")
            return False
        word = "to be applied" if only_plan else "applied"
        self.stdout.write(f"{name}: {len(plan)} {word}")
        return True
