"""django-q2 with its ORM broker: one cluster command starts all worker processes; no call for many."""

from __future__ import annotations

import logging
import os
from typing import Any

os.environ |= {
    "DJANGO_SETTINGS_MODULE": "benchmarks.peers.django_site",
    "DJANGO_ALLOW_ASYNC_UNSAFE": "1",
    "BENCH_DJANGO": "q2",
}

import django
from django.core.management import call_command
from django.db import transaction

django.setup()
logging.getLogger("django-q").setLevel(logging.ERROR)

from django_q.tasks import async_task  # noqa: E402

from benchmarks.peers.adapter import Adapter, main, versions  # noqa: E402

BODY = "benchmarks.peers.django_jobs.tick_of_q2"


class DjangoQ2(Adapter):
    version = versions("django-q2", "Django")
    settings = (
        "ORM broker, bulk=50, queue_limit=500, poll=0.2, keeps all results; bulk is a loop in one transaction"
    )
    unfinished = "SELECT count(*) FROM django_q_ormq"
    a_call = 500

    async def set_up(self) -> None:
        call_command("migrate", verbosity=0)

    async def send(self, one: dict[str, Any]) -> None:
        async_task(BODY, **one)

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        with transaction.atomic():
            for one in many:
                async_task(BODY, **one)

    async def work(self) -> None:
        call_command("qcluster", verbosity=0)


if __name__ == "__main__":
    main(DjangoQ2())
