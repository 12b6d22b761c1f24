"""Fork: a new operation made from a dead letter, under a new request key and a new id. The dead letter stays.

A redrive keeps the identity by which receivers recognise what was done before; a fork gives it up. So it is an act of
its own, with a permission of its own, and says for ever where the new job came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jobqueue import policies
from jobqueue.enqueue import NewJob, alias_of_key, enqueue
from jobqueue.ids import format_id
from jobqueue.types import Scope
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, NotDead, NotFound, RequestKeyConflict
from tenants import audit


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFork:
    """The new operation's request key, and why it is made."""

    request_key: str
    note: str
    actor: str


@dataclass(frozen=True, slots=True)
class Forked:
    """The new job; `replayed` when an earlier fork of the same dead letter had made it."""

    job_id: int
    origin_job_id: int
    replayed: bool


class _Origin(NamedTuple):
    """A row of `fork_origin`."""

    tenant_id: int
    queue_id: int
    kind: str
    priority: int
    dependency: str | None
    traceparent: str | None
    payload: str | None
    payload_ref: str | None
    is_dead: bool


def fork(job_id: int, new: NewFork, *, scope: Scope) -> Forked:
    """Enqueue what a dead letter asked for, with its corrections, as a new job; the audit entry in the same commit.

    The fork starts at once, with the queue's attempts and without a deadline. Raises NotFound, NotDead,
    RequestKeyConflict (the key names a job that is no fork of this one), and what limits on intake refuse.
    """
    alias = database.alias_of(job_id)
    rows = (
        []
        if alias is None
        else sql.rows("dlq/fork_origin", {"job_id": job_id, **scope.params()}, alias=alias)
    )
    if not rows:
        raise NotFound
    origin = _Origin(*rows[0])
    job = NewJob(
        tenant_id=origin.tenant_id,
        queue=policies.by_name(policies.names({origin.queue_id})[origin.queue_id]),
        kind=origin.kind,
        priority=origin.priority,
        payload=origin.payload,
        payload_ref=origin.payload_ref,
        request_key=new.request_key,
        dependency=origin.dependency,
        traceparent=origin.traceparent,
    )
    target = alias_of_key(job)
    return sql.in_transaction(target, lambda: _fork(job_id, job, new, origin.is_dead, target))


def _fork(origin_id: int, job: NewJob, new: NewFork, is_dead: bool, alias: str) -> Forked:
    if (made := _made_before(origin_id, job, alias)) is not None:
        return Forked(made, origin_id, replayed=True)
    if not is_dead:
        raise NotDead
    outcome = enqueue([job], within=alias)[0]
    if isinstance(outcome, JobsPlatformError):
        raise outcome
    if outcome.replayed:  # of another job, or of a fork that was made at this moment
        if _made_before(origin_id, job, alias) != outcome.job_id:
            raise RequestKeyConflict(job_id=format_id(outcome.job_id))
        return Forked(outcome.job_id, origin_id, replayed=True)
    audit_id = audit.record(
        "job.fork",
        f"job:{format_id(origin_id)}",
        actor=new.actor,
        tenant_id=job.tenant_id,
        reason=new.note,
        details={"job": format_id(outcome.job_id), "request_key": new.request_key},
        alias=alias,
    )
    params = {
        "job_id": outcome.job_id,
        "origin_job_id": origin_id,
        "note": new.note,
        "actor": new.actor,
        "audit_id": audit_id,
    }
    sql.rows("dlq/fork_note", params, alias=alias)
    return Forked(outcome.job_id, origin_id, replayed=False)


def _made_before(origin_id: int, job: NewJob, alias: str) -> int | None:
    """The fork of this dead letter that holds the key already, whatever became of the dead letter since."""
    names = ("tenant_ids", "queue_ids", "namespaces", "keys")
    params = {name: [part] for name, part in zip(names, job.identity, strict=True)}
    for _, job_id, *_ in sql.rows("jobqueue/request_keys", params, alias=alias):
        if (job_id, origin_id) in sql.rows("dlq/fork_of", {"job_ids": [job_id]}, alias=alias):
            return int(job_id)
    return None
