"""What the doctor looks at in a shard's work: whether dispatcher and reaper do theirs, and vacuum its."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jobqueue.models import Lane, Lease, ReadyJob, ScheduledJob
from jobsplatform import sql
from jobsplatform.doctor import Finding, Verdict, judged

LATE_SECONDS: Final = (5.0, 30.0)  # a pass comes once a second
HOT: Final = [model._meta.db_table for model in (ReadyJob, ScheduledJob, Lease, Lane)]
DEAD_ROWS: Final = 100_000  # of one hot table, beside its live ones


def work_is_moved(place: str, alias: str) -> Iterator[Finding]:
    """Due jobs are promoted and lapsed leases taken back within seconds, or nobody does it."""
    ((due_s, lapsed_s, table, dead, live),) = sql.rows(
        "jobqueue/doctor_work", {"hot": HOT, "now": None}, alias=alias
    )
    yield _late(place, "dispatcher", due_s, "job is due", "Start manage.py rundispatcher.")
    yield _late(place, "reaper", lapsed_s, "lease has lapsed", "Start manage.py runreaper.")
    many = (dead or 0) > DEAD_ROWS + (live or 0)
    fix = "Vacuum does not keep up: see the horizon, then the server's autovacuum settings." if many else ""
    yield Finding(place, "dead rows", f"{dead or 0:,} in {table}", Verdict.LOOK if many else Verdict.OK, fix)


def _late(place: str, check: str, seconds: float | None, words: str, fix: str) -> Finding:
    verdict = judged(seconds or 0, LATE_SECONDS)
    value = "nothing waits for it" if seconds is None else f"the oldest {words} since {seconds:.1f} s"
    return Finding(place, check, value, verdict, fix if verdict else "")
