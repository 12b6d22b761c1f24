"""Redrive: the audited way back into the schedule. Identity stays; attempts and crashes restart.

A redrive and its audit entry are one transaction, and a dead letter's row can be taken once: under any race one wins.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from jobqueue.ids import format_id
from jobqueue.types import Scope
from jobsplatform import database, events, sql
from jobsplatform.errors import (
    AlreadyRedriven,
    CorrectionRequired,
    DeadlineInPast,
    Invalid,
    JobsPlatformError,
    KeyConflict,
    NotDead,
    NotFound,
    RedriveLimit,
    Unavailable,
)
from tenants import audit

NEEDS_CORRECTION: Final = frozenset({"invalid", "poison"})
REREADS_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRedrive:
    """Why and how a dead letter goes back; instants are aware, None keeps what the job has."""

    note: str
    actor: str
    redrive_key: str | None = None
    not_before: datetime | None = None
    deadline: datetime | None = None
    max_attempts: int | None = None

    @property
    def call_hash(self) -> bytes:
        parts = (self.note, self.not_before, self.deadline, self.max_attempts)
        return hashlib.sha256(repr(parts).encode()).digest()


@dataclass(frozen=True, slots=True)
class Redriven:
    job_id: int
    redrive_generation: int
    audit_id: str
    state: str
    replayed: bool = False


class _Desk(NamedTuple):
    """A row of `redrive_why`."""

    tenant_id: int
    is_dead: bool
    reason: str | None
    redrive_generation: int | None
    is_corrected: bool
    max_redrives: int
    deadline_has_passed: bool
    asked_deadline_has_passed: bool
    due_after_deadline: bool
    latest_redrive: int | None
    is_live: bool


class _Won(Exception):
    """The statement found nothing to take: undo the audit entry and find out why."""


def redrive(job_id: int, new: NewRedrive, *, scope: Scope, now: datetime | None = None) -> Redriven:
    """Put a dead letter back, once.

    Raises NotFound, NotDead, AlreadyRedriven, CorrectionRequired, RedriveLimit, KeyConflict (the redrive_key was used
    for another call), DeadlineInPast, Invalid (a deadline that has passed needs a new one).
    """
    try:
        done = _attempted(job_id, new, scope, now)
    except JobsPlatformError as refusal:
        events.emit("redrive", outcome=refusal.code)
        raise
    events.emit("redrive", outcome="replayed" if done.replayed else done.state)
    return done


def _attempted(job_id: int, new: NewRedrive, scope: Scope, now: datetime | None) -> Redriven:
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    for _ in range(REREADS_MAX):
        repeated = _repeated(job_id, new, scope, alias)
        if repeated is not None:
            return repeated
        refusal = _refusal(_desk(job_id, new, scope, alias, now), new)
        if refusal is not None:
            again = _repeated(job_id, new, scope, alias)  # the same key may have won meanwhile
            if again is not None:
                return again
            raise refusal
        try:
            return sql.in_transaction(alias, lambda: _redrive(job_id, new, scope, alias, now))
        except _Won:
            continue
    raise Unavailable("The dead letter is moving; repeat.")


def _redrive(job_id: int, new: NewRedrive, scope: Scope, alias: str, now: datetime | None) -> Redriven:
    # The dead letter before the audit's lock, as a correction does: the other way round the two would deadlock.
    held = sql.rows("dlq/correction_lock", {"job_id": job_id, **scope.params()}, alias=alias)
    if not held or not held[0][1]:
        raise _Won
    tenant_id = held[0][0]
    audit_id = audit.record(
        "job.redrive",
        f"job:{format_id(job_id)}",
        actor=new.actor,
        tenant_id=tenant_id,
        reason=new.note,
        details={"not_before": new.not_before, "deadline": new.deadline, "max_attempts": new.max_attempts},
        alias=alias,
    )
    params = {
        "job_id": job_id,
        "note": new.note,
        "actor": new.actor,
        "redrive_key": new.redrive_key,
        "call_hash": new.call_hash,
        "audit_id": audit_id,
        "not_before": new.not_before,
        "deadline": new.deadline,
        "max_attempts": new.max_attempts,
        "campaign_id": None,
        "now": now,
        **scope.params(),
    }
    rows = sql.rows("dlq/redrive", params, alias=alias)
    if not rows:
        raise _Won
    return Redriven(job_id, rows[0][0], _audit_name(alias, audit_id), rows[0][1])


def _audit_name(alias: str, audit_id: int) -> str:
    """Which database, and which entry there."""
    return f"{alias}-{audit_id}"


def _repeated(job_id: int, new: NewRedrive, scope: Scope, alias: str) -> Redriven | None:
    """What an earlier call with this redrive_key did. Raises KeyConflict when it was another call."""
    if new.redrive_key is None:
        return None
    params = {"job_id": job_id, "redrive_key": new.redrive_key, **scope.params()}
    rows = sql.rows("dlq/redrive_repeat", params, alias=alias)
    if not rows:
        return None
    redrive_generation, call_hash, audit_id, led_to = rows[0]
    if bytes(call_hash) != new.call_hash:
        raise KeyConflict
    return Redriven(job_id, redrive_generation, _audit_name(alias, audit_id), led_to, replayed=True)


def _desk(job_id: int, new: NewRedrive, scope: Scope, alias: str, now: datetime | None) -> _Desk:
    params = {
        "job_id": job_id,
        "deadline": new.deadline,
        "not_before": new.not_before,
        "now": now,
        **scope.params(),
    }
    rows = sql.rows("dlq/redrive_why", params, alias=alias)
    if not rows:
        raise NotFound
    return _Desk(*rows[0])


def _refusal(desk: _Desk, new: NewRedrive) -> JobsPlatformError | None:
    """Why this dead letter cannot go back now; None: it can."""
    if not desk.is_dead:
        return AlreadyRedriven() if desk.latest_redrive and desk.is_live else NotDead()
    if new.deadline is not None and desk.asked_deadline_has_passed:
        return DeadlineInPast()
    if new.deadline is None and desk.deadline_has_passed:
        return Invalid.at("/deadline", "The job's deadline has passed; give a new one.")
    if desk.due_after_deadline:
        return Invalid.at("/not_before", "The job would be due at or after its deadline.")
    if desk.reason in NEEDS_CORRECTION and not desk.is_corrected:
        return CorrectionRequired()
    if (desk.redrive_generation or 0) >= desk.max_redrives:
        return RedriveLimit()
    return None
