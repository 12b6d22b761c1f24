"""What do ten thousand queues cost, on four shards?

    .venv/bin/python -m benchmarks.queues [QUEUES]

One process in which a consumer waits for each queue: how much of a processor it takes while nothing comes, how many
transactions a second each shard sees of it, and how soon a job is leased that is put into one of them. Then every queue
gets waiting work on every shard and no consumer: what a look at one queue's heads and a claim from it cost then, beside
what they cost when that queue was the only one with work.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

SHARDS: Final = 4
SECONDS: Final = 10.0
JOBS: Final = 100


def main(queues: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="jobsplatform-queues-"))
    folder.chmod(0o755)
    from jobsplatform.embedded import Server

    server = Server(folder)
    server.ensure_running()
    server.create_shards(SHARDS)
    os.environ.update(
        DJANGO_SETTINGS_MODULE="jobsplatform.settings",
        JOBSPLATFORM_DATA=str(folder),
        JOBSPLATFORM_DATABASE_URL="",
        JOBSPLATFORM_SHARDS=",".join(server.shards()),
        JOBSPLATFORM_LOG_LEVEL="ERROR",
        JOBS_PARKED_MAX=str(queues + 10),
    )
    try:
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrateshards", verbosity=0)
        print(f"{queues:,} queues on {SHARDS} shards; load average {os.getloadavg()[0]:.1f}")
        _measure(queues)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(count: int) -> None:
    from jobqueue import hub
    from tenants import registry

    tenant = registry.create_tenant("acme", actor="benchmark")
    _costs(tenant.pk, "default")  # connections are opened, plans made
    alone = _costs(tenant.pk, "default")
    queues = _make_queues(count)
    _waiting(tenant.pk, queues)
    hub.forget()
    _fill(tenant.pk, queues)
    beside = _costs(tenant.pk, "default")
    for name, one, other in zip(("a look at its heads", "a claim from it"), alone, beside, strict=True):
        print(f"{name:22} alone {one:6.2f} ms   beside {count:,} queues with work {other:6.2f} ms")


def _make_queues(count: int) -> list[Any]:
    """Copies of the queue `default`, in control and on each shard; as a claim takes them."""
    from jobqueue import policies
    from jobqueue.models import PolicyRow, Queue

    first = Queue.objects.get(name="default")
    made = Queue.objects.bulk_create(
        [_copy(first, pk=None, name=f"q-{number}") for number in range(count)], batch_size=1_000
    )
    for alias in _aliases():
        row = PolicyRow.objects.using(alias).get(name="default")
        rows = [_copy(row, pk=queue.pk, name=queue.name) for queue in made]
        PolicyRow.objects.using(alias).bulk_create(rows, batch_size=1_000)
    view = policies.by_name("default")
    return [replace(view, id=queue.pk, name=queue.name) for queue in made]


def _copy(row: Any, **changes: Any) -> Any:
    made = copy(row)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def _fill(tenant_id: int, queues: Sequence[Any]) -> None:
    """One waiting job in each queue on each shard."""
    from django.db import transaction

    from jobqueue.enqueue import NewJob, enqueue

    for alias in _aliases():
        for first in range(0, len(queues), 500):
            jobs = [
                NewJob(tenant_id=tenant_id, queue=queue, kind="noop", priority=2, payload="null")
                for queue in queues[first : first + 500]
            ]
            with transaction.atomic(using=alias):
                enqueue(jobs, within=alias)
        _run(alias, "VACUUM ANALYZE")


def _waiting(tenant_id: int, queues: Sequence[Any]) -> None:
    """Consumers wait for all; what that costs, and how soon one gets a job."""
    from jobqueue import hub
    from jobqueue.claiming import ClaimRequest
    from jobqueue.enqueue import NewJob, enqueue
    from jobqueue.types import FLEET

    waiters = [hub.current().park(ClaimRequest(queues=(queue,)), FLEET, wait_s=600) for queue in queues]
    time.sleep(12)  # every group has claimed once, and left word that somebody asks
    before, cpu, began = _transactions(), time.process_time(), time.monotonic()
    time.sleep(SECONDS)
    took = time.monotonic() - began
    rate = (_transactions() - before) / took / SHARDS
    print(f"while nothing comes: {100 * (time.process_time() - cpu) / took:.0f} % of one processor, ", end="")
    print(f"{rate:.0f} transactions a second and shard")
    waits = []
    for place in random.sample(range(len(queues)), JOBS):
        waiter, at = waiters[place], time.perf_counter()
        assert waiter is not None
        enqueue([NewJob(tenant_id=tenant_id, queue=queues[place], kind="noop", priority=0, payload="null")])
        waiter.wait()
        assert waiter.leases()
        waits.append((time.perf_counter() - at) * 1_000)
    waits.sort()
    print(
        f"a job to its waiting consumer: p50 {waits[JOBS // 2]:.1f} ms, p99 {waits[int(JOBS * 0.99)]:.1f} ms"
    )


def _costs(tenant_id: int, name: str) -> tuple[float, float]:
    """Milliseconds of a look at a queue's heads on one shard, and of a claim from it over all: the medians."""
    from django.db import transaction

    from jobqueue import claiming, policies
    from jobqueue.claiming import ClaimRequest, summaries
    from jobqueue.enqueue import NewJob, enqueue

    queue = policies.by_name(name)
    asked = summaries.Class((queue.id,), None, None, None)
    job = NewJob(tenant_id=tenant_id, queue=queue, kind="noop", priority=2, payload="null")
    for alias in _aliases():
        with transaction.atomic(using=alias):
            enqueue([job] * 100, within=alias)
    request = ClaimRequest(queues=(queue,), limit=1)
    looks = _median(lambda: summaries._ask(asked, _aliases()[0]))
    return looks, _median(lambda: claiming.claim(request))


def _median(action: Callable[[], object], times: int = 60) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        took.append((time.perf_counter() - began) * 1_000)
    return sorted(took)[times // 2]


def _transactions() -> int:
    """So far, over all shards."""
    return sum(
        _run(alias, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")[0][0]
        for alias in _aliases()
    )


def _aliases() -> list[str]:
    from jobsplatform import database

    return list(database.aliases().values())


def _run(alias: str, statement: str) -> list[tuple[Any, ...]]:
    from django.db import connections

    with connections[alias].cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
