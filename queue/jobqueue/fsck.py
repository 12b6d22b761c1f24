"""Proves the promises about jobs on a live system, and puts back what a damaged database lost.

Each range of ids is judged by one statement, so work that moves meanwhile is never taken for a fault.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from jobqueue.ids import format_id
from jobqueue.lanes import LaneKey, lane_ids
from jobqueue.lanes import forget as forget_lanes
from jobqueue.models import Job
from jobsplatform import database, sql
from jobsplatform.errors import Unavailable, UnknownOutcome
from tenants import audit

RANGE_JOBS: Final = 10_000  # jobs that one statement judges
REPAIR_BATCH: Final = 100  # jobs that one transaction puts back
REPAIR_PAUSE_SECONDS: Final = 0.1  # between two of them, so that repair does not flood the queue
NOWHERE: Final = "nowhere"


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken promise."""

    alias: str
    job_id: int
    fault: str
    detail: str

    def __str__(self) -> str:
        return f"{format_id(self.job_id)} {self.fault}: {self.detail}"


def check(unknown: list[int] | None = None) -> Iterator[Fault]:
    """Every fault of every shard, range by range.

    `unknown` gets the shards that could not be looked through to their end; without it, or when they are all, they are
    an error.
    """
    missed = 0
    for number, alias in database.aliases().items():
        try:
            yield from _faults_on(alias)
        except (Unavailable, UnknownOutcome):
            missed += 1
            if unknown is None or missed == len(database.aliases()):
                raise
            unknown.append(number)


def _faults_on(alias: str) -> Iterator[Fault]:
    for low, high in _ranges(alias):
        params = {"low": low, "high": high}
        for statement in ("jobqueue/fsck_jobs", "jobqueue/fsck_keys"):
            for job_id, fault, detail in sql.rows(statement, params, alias=alias):
                yield Fault(alias, job_id, fault, detail)


def _ranges(alias: str) -> Iterator[tuple[int | None, int | None]]:
    low: int | None = None
    while True:
        rows = sql.rows("jobqueue/fsck_range", {"low": low, "size": RANGE_JOBS}, alias=alias)
        high = rows[0][0] if rows else None
        yield low, high
        if high is None:
            return
        low = high


def repair(faults: Sequence[Fault], *, actor: str, pause_seconds: float = REPAIR_PAUSE_SECONDS) -> set[int]:
    """Put jobs that stand nowhere back to scheduled, each audited, in paced batches. Returns their ids."""
    repaired: set[int] = set()
    for alias in database.aliases().values():
        lost = [fault.job_id for fault in faults if fault.alias == alias and fault.fault == NOWHERE]
        for start in range(0, len(lost), REPAIR_BATCH):
            if start:
                time.sleep(pause_seconds)
            batch = lost[start : start + REPAIR_BATCH]
            repaired |= sql.in_transaction(alias, partial(_put_back, batch, alias, actor))
    return repaired


def _put_back(job_ids: Sequence[int], alias: str, actor: str) -> set[int]:
    jobs = Job.objects.using(alias).in_bulk(list(job_ids))
    keys = {
        job.pk: LaneKey(job.queue_id, job.priority, job.tenant_id, job.kind, job.dependency or "")
        for job in jobs.values()
    }
    forget_lanes()  # those of jobs that stand nowhere may be forgotten
    lanes = lane_ids(keys.values(), alias=alias, is_bounded=False)
    sql.rows("jobqueue/fsck_lock", {}, alias=alias)
    sql.rows("jobqueue/lane_hold", {"lane_ids": sorted(set(lanes.values()))}, alias=alias)
    params = {"job_ids": list(keys), "lane_ids": [lanes[key] for key in keys.values()], "now": None}
    rows = sql.rows("jobqueue/fsck_repair", params, alias=alias)
    for job_id, tenant_id, generation in rows:
        audit.record(
            "job.repair",
            f"job:{format_id(job_id)}",
            actor=actor,
            tenant_id=tenant_id,
            reason="the job stood in no place",
            details={"generation": generation},
            alias=alias,
        )
    return {row[0] for row in rows}
