"""What a dependency costs a claim: `python benchmarks/dependencies.py [jobs]`, on a PostgreSQL of its own.

Drains the same jobs in batches of 10 by turns: without a dependency, with one that has no limit, and with one whose
limit is never reached, so that the row is held and counted by every claim. Told is the tenth percentile, which other
work on the machine disturbs least. Only figures of one run compare.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TURNS, BATCH = 4, 10


def main(jobs: int) -> None:
    from jobsplatform.embedded import Server

    with tempfile.TemporaryDirectory(prefix="jobsplatform-bench-") as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "jobsplatform.settings",
            "JOBSPLATFORM_DATA": folder,
            "JOBSPLATFORM_LOG_LEVEL": "WARNING",
        }
        server = Server(Path(folder))
        server.ensure_running()
        try:
            import django

            django.setup()
            _measure(jobs)
        finally:
            server.stop()


def _measure(jobs: int) -> None:
    from django.core.management import call_command

    from jobqueue import dependencies, policies
    from tenants import registry

    call_command("migrate", verbosity=0, interactive=False)
    tenant = registry.create_tenant("bench", actor="bench")
    queue = policies.by_name("default")
    dependencies.set_dependency("limited", {"max_running": 1_000}, actor="bench")
    seconds: dict[str | None, list[float]] = {None: [], "free": [], "limited": []}
    for turn in range(TURNS + 1):
        for name in seconds:
            took = _drained(tenant.pk, queue, name, jobs // TURNS)
            seconds[name] += took if turn else []  # the first turn warms up
    for label, times in seconds.items():
        low = sorted(times)[len(times) // 10]
        print(f"{label or 'without':10} {low * 1e3:8.2f} ms, claim + complete of {BATCH}")


def _drained(tenant_id: int, queue: object, dependency: str | None, jobs: int) -> list[float]:
    from jobqueue import claiming, judging, leases
    from jobqueue.enqueue import NewJob, enqueue
    from jobqueue.policies import QueuePolicy

    assert isinstance(queue, QueuePolicy)
    one = NewJob(
        tenant_id=tenant_id, queue=queue, kind="noop", priority=2, payload="null", dependency=dependency
    )
    enqueue([one] * jobs)
    request = claiming.ClaimRequest(queues=(queue,), limit=BATCH)
    took = []
    start = time.perf_counter()
    while held := claiming.claim(request):
        leases.complete([leases.Complete(lease.job_id, lease.generation, lease.token) for lease in held])
        took.append(time.perf_counter() - start)
        start = time.perf_counter()
    judging.judge()
    return took


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4_000)
