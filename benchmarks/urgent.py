"""From the commit of a P0 job to its lease, while eight processes claim bulk work, a hundred a claim.

Bulk claimers complete what they claim and enqueue as much again: `rate` jobs a second together, and then without a
pause, so that 16 processes wait for the cores. One consumer waits in the hub for P0 alone, as workers do; one producer
in the same process commits a P0 job every `every` milliseconds.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from typing import Any

from benchmarks import ground

BULK = 3
LIMIT = 100
URGENT = "bench.urgent"  # a kind that bulk claimers do not name, so that they cannot help


def main() -> None:
    if sys.argv[1:2] == ["bulk"]:
        _claim_bulk()
        return
    asked = ground.arguments(__doc__, jobs=1_000, claimers=8, every=20, rate=4_000)
    rows = []
    with ground.ground():
        tenant_id = _make()
        for claimers, rate in ((0, 0), (asked.claimers, asked.rate), (asked.claimers, 0)):
            rows.append(_measured(tenant_id, asked.jobs, claimers, rate, asked.every / 1_000))
    ground.show("Commit to lease of P0", rows, asked.json)


def _make() -> int:
    from jobqueue import policies
    from tenants import registry

    tenant_id: int = registry.create_tenant("bench", actor="bench").pk
    policies.create_queue("bench", actor="bench")
    ground.fill("bench", [tenant_id], 50_000, priority=BULK)
    ground.run("VACUUM ANALYZE")
    return tenant_id


def _measured(tenant_id: int, jobs: int, claimers: int, rate: int, every_s: float) -> dict[str, Any]:
    pace_s = claimers * LIMIT / rate if rate else 0.0
    command = [sys.executable, "-m", "benchmarks.urgent", "bulk", str(tenant_id), str(pace_s)]
    children = [
        subprocess.Popen(command, cwd=ground.ROOT, env=os.environ, stdout=subprocess.PIPE)
        for _ in range(claimers)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()  # it has claimed
        before, start = _bulk_starts(), time.perf_counter()
        found = waits(tenant_id, jobs, every_s)
        reached = (_bulk_starts() - before) / (time.perf_counter() - start)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(60)
    p50, p99, most = (ground.percentile(found, share) for share in (0.5, 0.99, 1.0))
    return {
        "bulk claimers": claimers,
        "P0 jobs": len(found),
        "p50 ms": p50,
        "p99 ms": p99,
        "max ms": most,
        "bulk/s": round(reached),
    }


def _bulk_starts() -> int:
    return int(
        ground.run(
            "SELECT count(*) FROM queue_attempt a JOIN queue_job j ON j.id = a.job_id WHERE j.priority = 3"
        )[0][0]
    )


def waits(tenant_id: int, jobs: int, every_s: float) -> list[float]:
    """Milliseconds from the return of the enqueue, at which it is committed, to the return of the claim."""
    from django.db import connections

    from jobqueue import hub, policies
    from jobqueue.enqueue import NewJob, enqueue

    committed: dict[int, float] = {}
    leased: dict[int, float] = {}
    is_over = threading.Event()

    def consume() -> None:
        try:
            _consume(leased, jobs, is_over)
        finally:
            connections.close_all()

    hub.current()  # it hears from here on
    consumer = threading.Thread(target=consume)
    consumer.start()
    queue = policies.by_name("bench")
    try:
        for _ in range(jobs):
            job = NewJob(tenant_id=tenant_id, queue=queue, kind=URGENT, priority=0, payload=ground.PAYLOAD)
            [made] = enqueue([job])
            committed[made.job_id] = time.perf_counter()  # type: ignore[union-attr]
            time.sleep(every_s)
    finally:
        if len(committed) < jobs:
            is_over.set()
        consumer.join()
        hub.forget()
    return [max(0.0, leased[job_id] - at) * 1_000 for job_id, at in committed.items()]


def _consume(leased: dict[int, float], jobs: int, is_over: threading.Event) -> None:
    from jobqueue import hub, leases, policies
    from jobqueue.claiming import ClaimRequest
    from jobqueue.types import FLEET

    queue = policies.by_name("bench")
    request = ClaimRequest(queues=(queue,), kinds=(URGENT,), limit=1, max_priority=0, worker="p0")
    while len(leased) < jobs and not is_over.is_set():
        waiter = hub.current().park(request, FLEET, wait_s=1)
        assert waiter is not None
        waiter.wait()
        for one in waiter.leases():
            leased[one.job_id] = time.perf_counter()
            leases.complete([leases.Complete(one.job_id, one.generation, one.token)])


def _claim_bulk() -> None:
    """Until it is ended: claim, complete, enqueue as many again, as often as it was told."""
    sys.path[:0] = [str(ground.ROOT), str(ground.ROOT / "queue")]
    import django

    django.setup()
    from jobqueue import claiming, leases, policies
    from jobqueue.enqueue import NewJob, enqueue

    tenant_id, pace_s, queue = int(sys.argv[2]), float(sys.argv[3]), policies.by_name("bench")
    request = claiming.ClaimRequest(queues=(queue,), kinds=(ground.KIND,), limit=LIMIT, worker="bulk")
    job = NewJob(tenant_id=tenant_id, queue=queue, kind=ground.KIND, priority=BULK, payload=ground.PAYLOAD)
    is_first = True
    time.sleep(random.uniform(0, pace_s))  # they do not march in step
    while True:
        due_at = time.monotonic() + pace_s
        held = claiming.claim(request)
        leases.complete([leases.Complete(one.job_id, one.generation, one.token) for one in held])
        enqueue([job] * max(1, len(held)))
        if is_first:
            print("ready", flush=True)
            is_first = False
        time.sleep(max(0.0, due_at - time.monotonic()))


if __name__ == "__main__":
    main()
