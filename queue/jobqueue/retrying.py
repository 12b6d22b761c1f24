"""Retry now: an operator lets a job that waits for an instant become ready at once; audited in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from jobqueue import wakeup
from jobqueue.ids import format_id
from jobqueue.limits import REREADS_MAX
from jobqueue.states import State
from jobqueue.types import FLEET, Scope
from jobqueue.whereabouts import find
from jobsplatform import database, sql
from jobsplatform.errors import AlreadyFinished, DeadlineInPast, NotFound, NotScheduled, Unavailable
from tenants import audit


@dataclass(frozen=True, slots=True)
class Hastened:
    """Why the job waited (`delayed`, `retry`, …), and until when it would have."""

    reason: str
    due_at: datetime


def retry_now(
    job_id: int, *, actor: str, reason: str = "", scope: Scope = FLEET, now: datetime | None = None
) -> Hastened:
    """Make a scheduled job ready. Its attempts are what they were.

    Raises NotFound, AlreadyFinished, NotScheduled (it is ready or runs), DeadlineInPast.
    """
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    params = {"job_id": job_id, "now": now, **scope.params()}
    for _ in range(REREADS_MAX):
        done = sql.in_transaction(alias, partial(_retry_now, params, alias, actor, reason))
        if done is not None:
            return done
        place = find([(job_id, 0, b"")], alias=alias, scope=scope, now=now).get(0)
        if place is None:
            raise NotFound
        if place.has_ended:
            raise AlreadyFinished
        if place.state in (State.READY, State.RUNNING):
            raise NotScheduled(f"The job does not wait for an instant: it is {place.state}.")
        if place.state == State.SCHEDULED:
            raise DeadlineInPast("The job's deadline has passed: it starts no more.")
    raise Unavailable("The job is moving; repeat.")


def _retry_now(params: dict[str, Any], alias: str, actor: str, reason: str) -> Hastened | None:
    """None: it stood in no place from which it can be hastened."""
    rows = sql.rows("jobqueue/retry_now", params, alias=alias)
    if not rows:
        return None
    lane_id, tenant_id, waited_for, due_at = rows[0]
    audit.record(
        "job.retry_now",
        f"job:{format_id(params['job_id'])}",
        actor=actor,
        tenant_id=tenant_id,
        reason=reason,
        details={"waited": waited_for, "due_at": due_at},
        alias=alias,
    )
    wakeup.lanes_ready(alias, [lane_id])
    return Hastened(waited_for, due_at)
