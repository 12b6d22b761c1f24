"""django-tasks-db: one job at a time; there is no call for many, so 500 go into one transaction."""

from __future__ import annotations

import os
from typing import Any

os.environ |= {"DJANGO_SETTINGS_MODULE": "benchmarks.peers.django_site", "DJANGO_ALLOW_ASYNC_UNSAFE": "1"}

import django
from django.core.management import call_command
from django.db import transaction

django.setup()

from benchmarks.peers.adapter import Adapter, main, versions  # noqa: E402
from benchmarks.peers.django_jobs import tick  # noqa: E402

INTERVAL_S = 0.1  # its default is 1


class DjangoTasks(Adapter):
    version = versions("django-tasks-db", "django-tasks", "Django")
    settings = f"db_worker --interval {INTERVAL_S}, one job at a time; bulk is a loop in one transaction"
    unfinished = (
        "SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status IN ('READY', 'RUNNING')"
    )
    a_call = 500

    async def set_up(self) -> None:
        call_command("migrate", verbosity=0)

    async def send(self, one: dict[str, Any]) -> None:
        tick.enqueue(**one)

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        with transaction.atomic():
            for one in many:
                tick.enqueue(**one)

    async def work(self) -> None:
        call_command("db_worker", interval=INTERVAL_S, startup_delay=False, verbosity=0, reload=False)


if __name__ == "__main__":
    main(DjangoTasks())
