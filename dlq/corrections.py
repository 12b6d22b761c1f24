"""Corrections: new versions of a dead letter's payload, each with a note and an author; the original stays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobqueue import kinds
from jobqueue.ids import format_id
from jobqueue.limits import PAYLOAD_BYTES_MAX
from jobqueue.types import Scope
from jobsplatform import database, sql, strictjson
from jobsplatform.errors import Invalid, KeyConflict, NotDead, NotFound
from tenants import audit

KEY_SECONDS: Final = 24 * 3_600  # how long an Idempotency-Key is remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCorrection:
    """`payload` is JSON text as it was sent; exactly one of payload and payload_ref."""

    note: str
    actor: str
    payload: str | None = None
    payload_ref: str | None = None
    idempotency_key: str | None = None

    @property
    def new_hash(self) -> bytes | None:
        return None if self.payload is None else hashlib.sha256(self.payload.encode()).digest()

    @property
    def call_hash(self) -> bytes:
        parts = (self.note, self.payload, self.payload_ref)
        return hashlib.sha256(repr(parts).encode()).digest()


@dataclass(frozen=True, slots=True)
class Corrected:
    """The version made; hashes are SHA-256 of the payload texts (None: a payload_ref)."""

    version: int
    old_hash: bytes | None
    new_hash: bytes | None
    replayed: bool = False


def correct(job_id: int, new: NewCorrection, *, scope: Scope, now: datetime | None = None) -> Corrected:
    """Add a version, with its audit entry in the same transaction.

    Raises NotFound, NotDead, KeyConflict, Invalid (a payload that its kind does not allow).
    """
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    return sql.in_transaction(alias, lambda: _correct(job_id, new, scope, alias, now))


def validate(kind: str, payload: str) -> None:
    """Refuse a payload that a job of `kind` cannot have. Raises Invalid at /payload."""
    size = len(payload.encode("utf-8", "surrogatepass"))
    if size > PAYLOAD_BYTES_MAX:
        raise Invalid.at("/payload", f"Has {size:,} bytes; at most {PAYLOAD_BYTES_MAX:,} are allowed.")
    try:
        strictjson.raw(payload)
    except Invalid as error:
        raise Invalid.at("/payload", f"A payload of {kind} must be JSON: {error.detail}") from None


def _correct(job_id: int, new: NewCorrection, scope: Scope, alias: str, now: datetime | None) -> Corrected:
    held = sql.rows("dlq/correction_lock", {"job_id": job_id, **scope.params()}, alias=alias)
    if not held:
        raise NotFound
    tenant_id, is_dead, redrive_generation, kind = held[0]
    repeated = _repeated(job_id, new, alias, now)
    if repeated is not None:
        return repeated
    if not is_dead:
        raise NotDead
    if new.payload is not None:
        validate(kind, new.payload)
        kinds.check_payload(kind, new.payload, alias=alias)
    params: dict[str, Any] = {
        "job_id": job_id,
        "redrive_generation": redrive_generation,
        "note": new.note,
        "author": new.actor,
        "payload": new.payload,
        "payload_ref": new.payload_ref,
        "new_hash": new.new_hash,
        "idempotency_key": new.idempotency_key,
        "call_hash": new.call_hash,
        "now": now,
    }
    version, old_hash = sql.rows("dlq/correct", params, alias=alias)[0]
    audit.record(
        "job.correct",
        f"job:{format_id(job_id)}",
        actor=new.actor,
        tenant_id=tenant_id,
        reason=new.note,
        details={"version": version},
        before_hash=old_hash,
        after_hash=new.new_hash,
        alias=alias,
    )
    return Corrected(version, old_hash, new.new_hash)


def _repeated(job_id: int, new: NewCorrection, alias: str, now: datetime | None) -> Corrected | None:
    """What an earlier call with this key did; a key whose window is over is free. Raises KeyConflict."""
    if new.idempotency_key is None:
        return None
    key = {"job_id": job_id, "key": new.idempotency_key}
    rows = sql.rows("dlq/correction_repeat", key | {"window_s": KEY_SECONDS, "now": now}, alias=alias)
    if not rows:
        sql.rows("dlq/correction_free_key", key, alias=alias)
        return None
    version, call_hash, old_hash, new_hash = rows[0]
    if bytes(call_hash) != new.call_hash:
        raise KeyConflict
    return Corrected(version, old_hash, new_hash, replayed=True)
