"""What clients and operators read of jobs. Who asks is an argument of every function: foreign and absent are one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from jobqueue.enqueue import Accepted, NewJob
from jobqueue.limits import REREADS_MAX
from jobqueue.states import State
from jobqueue.types import Scope
from jobsplatform import database, everywhere, sql
from jobsplatform.errors import NotFound, Unavailable


class JobView(NamedTuple):
    """A job as a client sees it; instants are aware, hashes hex."""

    job_id: int
    tenant_id: int
    queue_id: int
    kind: str
    priority: int
    state: str | None
    request_key: str | None
    payload_sha256: str | None
    payload_bytes: int | None
    payload_ref: str | None
    dependency: str | None
    attempts_used: int
    max_attempts: int
    generation: int
    crashes: int
    redrive_generation: int
    not_before: datetime | None
    deadline: datetime | None
    created_at: datetime
    due_at: datetime | None
    claimed_at: datetime | None
    expires_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    error_class: str | None
    error_message: str | None
    error_at: datetime | None
    dead_reason: str | None
    waited_s: float  # how long it has stood in line, by the database's clock; 0 unless it is ready


class AttemptView(NamedTuple):
    generation: int
    attempt: int
    worker: str
    claimed_at: datetime
    ended_at: datetime | None
    outcome: str | None
    error_class: str | None
    message: str | None
    service_ms: int | None


class ResultView(NamedTuple):
    outcome: str
    body: str | None
    payload_hash: str | None
    generation: int
    finished_at: datetime


CLOCK_SECONDS: Final = 10.0

_clock_read: tuple[float, datetime] | None = None  # when, and what it said


def clock() -> datetime:
    """The database's clock, as one shard tells it."""
    at: datetime = everywhere.first(lambda alias: sql.rows("jobqueue/clock", {}, alias=alias))[0][0]
    return at


def clock_for_show() -> datetime:
    """The database's clock for an answer that only tells it: read at most ten seconds ago, and run on since.

    A thousand polls that end at once must not cost a thousand reads.
    """
    global _clock_read
    held = _clock_read
    if held is None or time.monotonic() - held[0] > CLOCK_SECONDS:
        before = time.monotonic()
        held = _clock_read = (before, clock())
    return held[1] + timedelta(seconds=time.monotonic() - held[0])


def forget() -> None:
    """Drop what is remembered."""
    global _clock_read
    _clock_read = None


def job(job_id: int, *, scope: Scope) -> JobView:
    """One job. Raises NotFound; Unavailable when it kept moving while it was read."""
    alias = _alias(job_id)
    for _ in range(REREADS_MAX):
        views = _views([job_id], alias, scope)
        if not views:
            raise NotFound
        if views[0].state is not None:
            return views[0]
    raise Unavailable("The job is moving; repeat.")


def just_enqueued(accepted: Accepted, asked: NewJob) -> JobView | None:
    """The view of a job that this call made, without reading it back. None: an earlier call had made it."""
    stored = accepted.stored
    if stored is None:
        return None
    text = None if asked.payload is None else asked.payload.encode()
    return JobView(
        job_id=accepted.job_id,
        tenant_id=asked.tenant_id,
        queue_id=asked.queue.id,
        kind=asked.kind,
        priority=asked.priority,
        state=State.SCHEDULED if stored.is_delayed else State.READY,
        request_key=asked.request_key,
        payload_sha256=None if text is None else hashlib.sha256(text).hexdigest(),
        payload_bytes=None if text is None else len(text),
        payload_ref=asked.payload_ref,
        dependency=stored.dependency,
        attempts_used=0,
        max_attempts=stored.max_attempts,
        generation=0,
        crashes=0,
        redrive_generation=0,
        not_before=stored.due_at,
        deadline=stored.deadline,
        created_at=stored.at,
        due_at=stored.due_at if stored.is_delayed else None,
        claimed_at=None,
        expires_at=None,
        finished_at=None,
        cancel_requested=False,
        error_class=None,
        error_message=None,
        error_at=None,
        dead_reason=None,
        waited_s=0.0,
    )


def jobs(job_ids: Sequence[int], *, scope: Scope) -> dict[int, JobView]:
    """Those of `job_ids` that exist for the caller."""
    by_alias: dict[str, list[int]] = {}
    for job_id in job_ids:
        if (alias := database.alias_of(job_id)) is not None:
            by_alias.setdefault(alias, []).append(job_id)
    views = (view for alias, ids in by_alias.items() for view in _views(ids, alias, scope))
    return {view.job_id: view for view in views}


def views_of(job_ids: Collection[int], *, alias: str, scope: Scope) -> list[JobView]:
    """The views of jobs of one shard, newest first; those between two places are left out."""
    found = _views(list(job_ids), alias, scope) if job_ids else []
    return [view for view in found if view.state is not None]


def attempts(
    job_id: int, *, scope: Scope, before: int | None, limit: int
) -> tuple[list[AttemptView], int | None]:
    """A page of a job's attempts, newest first, and the generation to go on below. Raises NotFound."""
    job(job_id, scope=scope)
    params = {"job_id": job_id, "before": before, "limit": limit + 1, **scope.params()}
    rows = [AttemptView(*row) for row in sql.rows("jobqueue/attempts", params, alias=_alias(job_id))]
    return rows[:limit], rows[limit - 1].generation if len(rows) > limit else None


def result(job_id: int, *, scope: Scope) -> ResultView:
    """How a job ended. Raises NotFound until it has a result."""
    rows = sql.rows("jobqueue/result", {"job_id": job_id, **scope.params()}, alias=_alias(job_id))
    if not rows:
        raise NotFound
    return ResultView(*rows[0])


def payload(job_id: int, *, scope: Scope) -> tuple[str | None, str | None]:
    """(payload text, payload_ref): exactly one of them. Raises NotFound."""
    rows = sql.rows("jobqueue/job_payload", {"job_id": job_id, **scope.params()}, alias=_alias(job_id))
    if not rows:
        raise NotFound
    return rows[0][0], rows[0][1]


def _alias(job_id: int) -> str:
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    return alias


def _views(job_ids: Sequence[int], alias: str, scope: Scope) -> list[JobView]:
    params = {"job_ids": list(job_ids), **scope.params()}
    return [JobView(*row) for row in sql.rows("jobqueue/job_views", params, alias=alias)]
