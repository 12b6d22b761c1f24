"""How much of their throughput do three shards keep while the fourth is stopped?

    .venv/bin/python -m benchmarks.shards [SECONDS]

Four databases in an embedded server of its own, in a folder that is removed at the end. Work of each shard is enqueued,
claimed and completed by four threads a shard's worth; then one database refuses its connections, and later takes them
again. Printed: jobs a second of the other three before, while and after, and how long after its healing the fourth was
claimed from again.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

THREADS = 6
BATCH = 20


def main(seconds: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="jobsplatform-shards-"))
    folder.chmod(0o755)
    from jobsplatform.embedded import Server

    server = Server(folder)
    server.ensure_running()
    server.create_shards(4)
    os.environ.update(
        DJANGO_SETTINGS_MODULE="jobsplatform.settings",
        JOBSPLATFORM_DATA=str(folder),
        JOBSPLATFORM_DATABASE_URL="",
        JOBSPLATFORM_SHARDS=",".join(server.shards()),
        JOBSPLATFORM_LOG_LEVEL="ERROR",
        JOBS_NOTIFICATIONS="false",
    )
    try:
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrateshards", verbosity=0)
        _measure(server, seconds)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(server: object, seconds: float) -> None:
    from django.db import connections

    from jobqueue import claiming, leases, policies
    from jobqueue.claiming import ClaimRequest
    from jobqueue.enqueue import NewJob, enqueue
    from jobsplatform import database
    from jobsplatform.errors import JobsPlatformError
    from tenants import registry

    tenant, queue = registry.create_tenant("acme", actor="benchmark"), policies.by_name("default")
    done: Counter[tuple[int, int]] = Counter()  # (second, shard)
    last: dict[int, float] = {}
    begins, over, lock = time.monotonic(), threading.Event(), threading.Lock()
    job = NewJob(tenant_id=tenant.pk, queue=queue, kind="noop", priority=2, payload="null")

    def work() -> None:
        while not over.is_set():
            try:
                enqueue([job] * BATCH)
                held = claiming.claim(ClaimRequest(queues=(queue,), limit=BATCH))
                calls = [leases.Complete(lease.job_id, lease.generation, lease.token) for lease in held]
                leases.complete(calls)
            except JobsPlatformError:
                continue
            now = time.monotonic()
            with lock:
                for lease in held:
                    shard = database.space_of(lease.job_id)
                    done[int(now - begins), shard] += 1
                    last[shard] = now
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    _allow(False)
    time.sleep(seconds)
    _allow(True)
    healed = time.monotonic()
    while last.get(3, 0.0) < healed and time.monotonic() < healed + 30:
        time.sleep(0.01)
    back = last.get(3, 0.0) - healed
    time.sleep(max(0.0, seconds - back))
    over.set()
    for thread in threads:
        thread.join()

    def rate(first: float, after: float, shards: set[int]) -> float:
        window = range(int(first) + 1, int(after))
        return sum(done[second, shard] for second in window for shard in shards) / max(1, len(window))

    names = ("before", "while it is away", "afterwards")
    for place, name in enumerate(names):
        others = rate(place * seconds, (place + 1) * seconds, {0, 1, 2})
        fourth = rate(place * seconds, (place + 1) * seconds, {3})
        print(f"{name:17} three shards {others:8,.0f} jobs/s   the fourth {fourth:8,.0f} jobs/s")
    print(f"the fourth is claimed from again {back:.1f} s after its healing")


def _allow(allowed: bool) -> None:
    """Let the fourth database take connections or refuse them, by a session beside it."""
    import psycopg
    from django.db import connections

    entry = connections["default"].settings_dict
    name = connections["shard3"].settings_dict["NAME"]
    with psycopg.connect(
        host=entry["HOST"],
        port=entry["PORT"],
        user=entry["USER"],
        password=entry["PASSWORD"],
        dbname="postgres",
        autocommit=True,
    ) as session:
        session.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {str(allowed).lower()}')
        if not allowed:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 8.0)
