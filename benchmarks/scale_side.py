"""One case of `benchmarks.scale` in a process of its own: enqueue, then claim and complete, by the verbs.

Takes a JSON object (see `scale.verbs`) and prints one: rates, processor microseconds, log and disk bytes, per job.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import django

from benchmarks import bed as beds

TENANT_FIRST = 1_000_000  # numbers of tenants that a shard meets in jobs alone
KIND = "bench.tick"
POSTMASTER = int(os.environ.get("BENCH_POSTMASTER", "0"))


@dataclass(frozen=True, slots=True)
class Mark:
    """An instant: clock, processor seconds here and in the server, log."""

    wall_s: float
    client_s: float
    server_s: float
    wal: int


def main() -> None:
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    django.setup()
    from jobqueue import policies

    queue = policies.by_name("bench")
    _enqueue(
        queue, wanted | {"jobs": wanted["batch"]}
    )  # plans, lanes and connections are there when the clock starts
    _finish(queue, wanted["batch"])
    _sql("VACUUM ANALYZE")
    disk = _disk()
    start = _mark()
    _enqueue(queue, wanted)
    figures = _costs("enqueue", start, _mark(), wanted["jobs"])
    figures["disk_waiting"] = (_disk() - disk) / wanted["jobs"]
    _sql("VACUUM ANALYZE")
    start = _mark()
    done = _finish(queue, wanted["batch"])
    figures |= _costs("finish", start, _mark(), wanted["jobs"])
    if done != wanted["jobs"]:
        sys.exit(f"{done} of {wanted['jobs']} jobs were finished.")
    _sql("VACUUM")
    figures["disk_finished"] = (_disk() - disk) / wanted["jobs"]
    print(json.dumps(figures))


def _enqueue(queue: Any, wanted: dict[str, Any]) -> None:
    from jobqueue.enqueue import Accepted, NewJob, enqueue

    texts = [
        json.dumps({"t": 0, "pad": _noise(wanted["size"])}) for _ in range(16)
    ]  # noise does not compress
    loud = round(wanted["loudest"] * 1_000) if wanted["tenants"] > 1 else 1_000

    def job(number: int) -> NewJob:
        place = number * 7_919 % 1_000  # 7,919 is prime: every thousand jobs have each place once
        tenant = 0 if place < loud else 1 + place % (wanted["tenants"] - 1)
        return NewJob(
            tenant_id=TENANT_FIRST + tenant,
            queue=queue,
            kind=KIND,
            priority=2,
            payload=texts[number % len(texts)],
        )

    for first in range(0, wanted["jobs"], wanted["batch"]):
        outcomes = enqueue([job(first + place) for place in range(wanted["batch"])])
        if not all(isinstance(outcome, Accepted) for outcome in outcomes):
            sys.exit("A job was refused.")


def _finish(queue: Any, batch: int) -> int:
    from jobqueue import claiming, leases

    request, done = claiming.ClaimRequest(queues=(queue,), kinds=(KIND,), limit=batch, worker="bench"), 0
    while held := claiming.claim(request):
        answers = leases.complete([leases.Complete(one.job_id, one.generation, one.token) for one in held])
        done += sum(isinstance(answer, leases.Completed) for answer in answers)
    return done


def _noise(size: int) -> str:
    """Text that makes a payload of `size` bytes."""
    wanted = max(0, size - len(json.dumps({"t": 0, "pad": ""})))
    return base64.b64encode(os.urandom(wanted)).decode()[:wanted]


def _costs(name: str, start: Mark, end: Mark, jobs: int) -> dict[str, float]:
    return {
        name: jobs / (end.wall_s - start.wall_s),
        f"{name}_client_us": (end.client_s - start.client_s) / jobs * 1e6,
        f"{name}_server_us": (end.server_s - start.server_s) / jobs * 1e6,
        f"{name}_wal": (end.wal - start.wal) / jobs,
    }


def _mark() -> Mark:
    wal = int(_sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))
    return Mark(time.perf_counter(), time.process_time(), beds.cpu_s([POSTMASTER]), wal)


def _disk() -> int:
    _sql("CHECKPOINT")
    return int(_sql("SELECT pg_database_size(current_database())"))


def _sql(statement: str) -> Any:
    from django.db import connections

    from jobsplatform import database

    with connections[next(iter(database.aliases().values()))].cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


if __name__ == "__main__":
    main()
