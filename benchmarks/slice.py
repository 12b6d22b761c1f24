"""One side of `benchmarks.paired`: does the slices of work that it is told, by the verbs of the checkout it runs in.

Reads `JOBS` on a line, enqueues as many by hundreds, claims and completes them, and answers the seconds of each and
the processor seconds that the claims and completions took here and in their server process.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connections

    from jobqueue import bench, policies
    from jobsplatform import database
    from tenants import registry

    call_command("migrate", verbosity=0, interactive=False)
    tenant = registry.create_tenant(bench.TENANT, actor="bench").pk
    queue = policies.create_queue(bench.QUEUE, actor="bench")
    bench._enqueue(tenant, queue, 1_000)
    bench._drain(queue)
    with connections[next(iter(database.aliases().values()))].cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("SELECT pg_backend_pid()")
        server = int(cursor.fetchone()[0])
    print("ready", flush=True)
    for line in sys.stdin:
        marks = [_now(server)]
        bench._enqueue(tenant, queue, int(line))
        marks.append(_now(server))
        bench._drain(queue)
        marks.append(_now(server))
        (wall0, _), (wall1, cpu1), (wall2, cpu2) = marks
        print(json.dumps({"enqueue": wall1 - wall0, "drain": wall2 - wall1, "cpu": cpu2 - cpu1}), flush=True)


def _now(server: int) -> tuple[float, float]:
    """The clock, and the processor seconds of this process and of a server process."""
    nanoseconds = int(Path(f"/proc/{server}/schedstat").read_text().split()[0])
    return time.perf_counter(), time.process_time() + nanoseconds / 1e9


if __name__ == "__main__":
    main()
