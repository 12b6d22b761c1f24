"""`manage.py bench`: what this machine does, in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandParser

from jobqueue import bench
from jobsplatform.commands import StrictCommand

INSIDE = "--inside"


class Command(StrictCommand):
    """Runs itself once more on a database of its own."""

    help = "Measure jobs a second of this machine in a database of its own (1 KB payloads, fsync on)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--jobs", type=int, default=20_000, help="jobs for each figure (default 20,000)")
        parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
        parser.add_argument(INSIDE, action="store_true", help="==SUPPRESS==")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["jobs"] < 1_000 or options["jobs"] % 1_000:
            sys.exit("bench: --jobs is a multiple of 1,000.")
        if options["inside"]:
            self._measure(options)
            return
        with bench.scratch_database(f"jobsplatform_bench_{os.getpid()}") as url:
            sys.exit(self._run_inside(url, options))

    def _run_inside(self, url: str, options: dict[str, Any]) -> int:
        command = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), "bench", INSIDE]
        command += ["--jobs", str(options["jobs"])] + (["--json"] if options["json"] else [])
        environment = os.environ | {
            "JOBSPLATFORM_DATABASE_URL": url,
            "JOBSPLATFORM_SHARDS": "",
            "JOBSPLATFORM_SECRET_KEY": settings.SECRET_KEY,
            "JOBSPLATFORM_TOKEN_PEPPER": settings.TOKEN_PEPPER.decode(),
            "JOBS_PREPARED_STATEMENTS": str(settings.JOBS_PREPARED_STATEMENTS),
        }
        return subprocess.run(command, env=environment).returncode

    def _measure(self, options: dict[str, Any]) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        figures = []
        for figure in bench.measure(options["jobs"]):
            figures.append(figure)
            if not options["json"]:
                self.stdout.write(f"{figure.name:34} {figure.rate:10,.0f} jobs/s  ({figure.jobs:,} jobs)")
        if options["json"]:
            rates = {f.name: {"jobs_per_s": round(f.rate, 1), "jobs": f.jobs} for f in figures}
            self.stdout.write(json.dumps(rates))
