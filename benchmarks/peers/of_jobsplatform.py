"""Ours: the verb `enqueue` and the command `runworker`, as they are, with every guarantee."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from typing import Any

import django

from benchmarks.bed import ROOT
from benchmarks.peers.adapter import WORKERS, Adapter, main, versions

QUEUE = "bench"
KIND = "bench.tick"
CONCURRENCY = os.environ.get("OUR_CONCURRENCY", "8")  # runworker's own default
WITH_UPKEEP = os.environ.get("OUR_UPKEEP") == "1"
UPKEEP_START_S = 4.0  # until dispatcher and reaper have started and left the processor alone


class Ours(Adapter):
    version = f"this checkout, {versions('Django', 'psycopg')}"
    settings = f"runworker --concurrency {CONCURRENCY}" + (
        ", with rundispatcher and runreaper beside it" if WITH_UPKEEP else ""
    )
    unfinished = """SELECT (SELECT count(*) FROM queue_readyjob) + (SELECT count(*) FROM queue_lease)
                         + (SELECT count(*) FROM queue_scheduledjob) + (SELECT count(*) FROM dlq_deadletter)"""

    async def set_up(self) -> None:
        from django.core.management import call_command

        from jobqueue import policies
        from tenants import registry

        call_command("migrateshards", verbosity=0, stdout=io.StringIO())
        registry.create_tenant(QUEUE, actor="bench")
        policies.create_queue(QUEUE, actor="bench")

    async def open(self) -> None:
        from jobqueue import policies
        from tenants import registry

        self.tenant_id = registry.get(QUEUE).pk
        self.queue = policies.by_name(QUEUE)

    async def send(self, one: dict[str, Any]) -> None:
        await self.send_many([one])

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        from jobqueue.enqueue import Accepted, NewJob, enqueue

        new = [
            NewJob(
                tenant_id=self.tenant_id,
                queue=self.queue,
                kind=KIND,
                priority=self.queue.default_priority,
                payload=json.dumps(one),
            )
            for one in many
        ]
        if not all(isinstance(outcome, Accepted) for outcome in enqueue(new)):
            raise RuntimeError("A job was refused.")

    async def work(self) -> None:
        """Becomes the command; who ends this session ends dispatcher and reaper as well."""
        manage = [sys.executable, str(ROOT / "manage.py")]
        if WITH_UPKEEP:
            for name in ("rundispatcher", "runreaper"):
                subprocess.Popen([*manage, name])
            time.sleep(UPKEEP_START_S)
        flags = [
            "--queues",
            QUEUE,
            "--kinds",
            KIND,
            "--concurrency",
            CONCURRENCY,
            "--processes",
            str(WORKERS),
        ]
        os.execv(sys.executable, [*manage, "runworker", *flags])


if __name__ == "__main__":
    # The producer's calls are synchronous ones in a coroutine of their own; nothing else runs in its loop.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    django.setup()
    main(Ours())
