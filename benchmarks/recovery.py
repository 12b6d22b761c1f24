"""After an outage: lapsed leases and due jobs by the hundred thousand, taken back and promoted beside live P0 work.

A dispatcher and a reaper run as they are shipped, paced by JOBS_PROMOTE_PER_SECOND and JOBS_REAP_PER_SECOND; `workers`
processes claim and complete what they bring back, a hundred a claim. Meanwhile one producer commits a P0 job every
`every` milliseconds and one consumer asks for P0 alone: the wait is from its commit to its lease. The first row is the
same without anything to catch up with. All are served when the workers have completed the last of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from benchmarks import ground, urgent

BULK: Final = 3
BASELINE_JOBS: Final = 200
LATE_SHARE: Final = 1.5  # of the paced time within which all must be done
# Not counts: those of a million rows, twice a second, would be a load of their own.
CAUGHT_UP: Final = """SELECT NOT EXISTS (SELECT FROM queue_lease WHERE expires_at <= clock_timestamp())
    AND NOT EXISTS (SELECT FROM queue_scheduledjob WHERE due_at <= clock_timestamp())"""
SERVED: Final = "SELECT NOT EXISTS (SELECT FROM queue_readyjob) AND NOT EXISTS (SELECT FROM queue_lease)"


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        _work()
        return
    asked = ground.arguments(__doc__, leases=20_000, due=100_000, workers=2, every=100)
    with ground.ground():
        tenant_id = _make(asked.leases, asked.due)
        rows = [{"what": "nothing to catch up with", **_waits(tenant_id, BASELINE_JOBS, asked.every)}]
        rows.append(_recovered(tenant_id, asked.workers, asked.every))
    ground.show("Catching up after an outage", rows, asked.json)
    latest_s = LATE_SHARE * rows[1]["paced seconds"] + 5
    if rows[1]["p99 ms"] >= 100 or max(rows[1]["caught up s"], rows[1]["all served s"]) > latest_s:
        sys.exit("P0 was starved, or the catch-up took longer than its pace.")


def _make(leases: int, due: int) -> int:
    """A queue with jobs whose leases lapsed and jobs that were due a minute ago."""
    from jobqueue import policies
    from tenants import registry

    tenant_id: int = registry.create_tenant("bench", actor="bench").pk
    policies.create_queue("bench", actor="bench")
    ground.fill("bench", [tenant_id], leases + due, priority=BULK)
    ticket = """job_id, lane_id, first_ready_at, max_attempts, deadline, payload_version, redrive_generation, crashes,
        lapses, releases, reconcile, checkpoint"""
    ground.run(
        f"""WITH moved AS (
                DELETE FROM queue_readyjob WHERE job_id IN (SELECT job_id FROM queue_readyjob ORDER BY job_id LIMIT %s)
                RETURNING *
            )
            INSERT INTO queue_lease ({ticket}, attempt, generation, position, token, worker, lease_s, is_started,
                cancel_requested, claimed_at, expires_at, max_run_at, policy_version, chosen)
            SELECT {ticket}, 1, 1, position, decode(md5(job_id::text), 'hex'), 'gone', 30, true, false,
                clock_timestamp() - interval '90 s', clock_timestamp() - interval '60 s',
                clock_timestamp() + interval '1 hour', 1, 'share'
            FROM moved""",
        [leases],
    )
    ground.run(
        f"""WITH moved AS (DELETE FROM queue_readyjob RETURNING *)
            INSERT INTO queue_scheduledjob ({ticket}, attempt, generation, due_at, reason)
            SELECT {ticket}, 0, 0, clock_timestamp() - interval '60 s', 'delayed' FROM moved"""
    )
    ground.run("VACUUM ANALYZE")
    return tenant_id


def _recovered(tenant_id: int, workers: int, every_ms: int) -> dict[str, Any]:
    from django.conf import settings

    leases, due = _left()
    paced_s = max(leases / settings.JOBS_REAP_PER_SECOND, due / settings.JOBS_PROMOTE_PER_SECOND)
    jobs = max(BASELINE_JOBS, int(paced_s * 1_000 / (every_ms + 5)))
    ends: list[float] = []
    began = time.perf_counter()
    manage = [sys.executable, str(ground.ROOT / "manage.py")]
    commands = [[*manage, "rundispatcher"], [*manage, "runreaper"]]
    commands += [[sys.executable, "-m", "benchmarks.recovery", "work"]] * workers
    with _running(commands):
        watch = threading.Thread(target=_watch, args=(began, ends), daemon=True)
        watch.start()
        waits = _waits(tenant_id, jobs, every_ms)
        watch.join(paced_s * 3 + 60)
    caught_up_s, served_s = [*ends, float("inf"), float("inf")][:2]
    what = f"{leases:,} lapsed, {due:,} due"
    return {
        "what": what,
        **waits,
        "paced seconds": paced_s,
        "caught up s": caught_up_s,
        "all served s": served_s,
    }


def _left() -> tuple[int, int]:
    (found,) = ground.run(
        """SELECT (SELECT count(*) FROM queue_lease WHERE expires_at <= clock_timestamp()),
            (SELECT count(*) FROM queue_scheduledjob WHERE due_at <= clock_timestamp())"""
    )
    return found[0], found[1]


def _watch(began: float, ends: list[float]) -> None:
    """Note when nothing is left to be taken back or promoted, and when all of it has been worked off."""
    from django.db import connections

    for statement in (CAUGHT_UP, SERVED):
        while not ground.run(statement)[0][0]:
            time.sleep(0.5)
        ends.append(time.perf_counter() - began)
    connections.close_all()


def _waits(tenant_id: int, jobs: int, every_ms: int) -> dict[str, Any]:
    waits = urgent.waits(tenant_id, jobs, every_ms / 1_000)
    p50, p99, most = (ground.percentile(waits, share) for share in (0.5, 0.99, 1.0))
    return {
        "P0 jobs": len(waits),
        "p50 ms": p50,
        "p99 ms": p99,
        "max ms": most,
        "paced seconds": 0.0,
        "caught up s": 0.0,
        "all served s": 0.0,
    }


@contextmanager
def _running(commands: Sequence[Sequence[str]]) -> Iterator[None]:
    children = [subprocess.Popen(command, cwd=ground.ROOT, env=os.environ) for command in commands]
    try:
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(60)


def _work() -> None:
    """Until it is ended: claim bulk work and complete it."""
    sys.path[:0] = [str(ground.ROOT), str(ground.ROOT / "queue")]
    import django

    django.setup()
    from jobqueue import claiming, leases, policies

    request = claiming.ClaimRequest(
        queues=(policies.by_name("bench"),), kinds=(ground.KIND,), limit=100, worker="bulk"
    )
    while True:
        held = claiming.claim(request)
        leases.complete([leases.Complete(one.job_id, one.generation, one.token) for one in held])
        if not held:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
