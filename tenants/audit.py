"""The record of who did what: append-only, each entry sealing the one before it of its tenant and database.

`record` belongs in the transaction of the change that it tells of, so that neither stands without the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jobsplatform import requestid, sql

CHECK_BATCH: Final = 5_000  # entries that one statement checks


def record(
    action: str,
    target: str,
    *,
    actor: str,
    tenant_id: int | None = None,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
    before_hash: bytes | None = None,
    after_hash: bytes | None = None,
    alias: str = "default",
) -> int:
    """Add an entry to `alias` inside the caller's transaction and return its id. `details` must hold no secret."""
    sql.rows("tenants/audit_lock", {"tenant_id": tenant_id}, alias=alias)
    params = {
        "tenant_id": tenant_id,
        "actor": actor,
        "action": action,
        "target": target,
        "reason": reason,
        "details": json.dumps(details or {}, default=str),
        "before_hash": before_hash,
        "after_hash": after_hash,
        "request_id": requestid.current.get(),
    }
    return int(sql.rows("tenants/audit_record", params, alias=alias)[0][0])


def record_many(
    action: str,
    targets: Sequence[str],
    *,
    actor: str,
    tenant_id: int | None,
    reason: str,
    details: Mapping[str, Any],
    alias: str,
) -> list[int]:
    """As `record`, for one act on many targets of a tenant; the entries' ids, in the order of the targets."""
    sql.rows("tenants/audit_lock", {"tenant_id": tenant_id}, alias=alias)
    params = {
        "tenant_id": tenant_id,
        "actor": actor,
        "action": action,
        "targets": list(targets),
        "reason": reason,
        "details": json.dumps(details, default=str),
        "request_id": requestid.current.get(),
    }
    return [int(row[0]) for row in sql.rows("tenants/audit_records", params, alias=alias)]


@dataclass(frozen=True, slots=True)
class Tampered:
    """An entry that is not what was written, or whose neighbour before it is not the one that it sealed."""

    alias: str
    entry_id: int
    tenant_id: int | None
    action: str
    target: str
    is_unsealed: bool

    def __str__(self) -> str:
        whose = "the platform's" if self.tenant_id is None else f"tenant {self.tenant_id}'s"
        what = (
            "its seal does not hold: the row was changed"
            if self.is_unsealed
            else "it does not follow the entry before it: one was removed, put in or changed there"
        )
        return f"{self.alias}-{self.entry_id} ({self.action} {self.target}, {whose} chain): {what}"


def verify(alias: str) -> Iterator[Tampered | int]:
    """Walk the chains of a database in bounded reads: each broken entry, and after each read the last id seen."""
    above = 0
    while True:
        rows = sql.rows("tenants/audit_check", {"above": above, "limit": CHECK_BATCH}, alias=alias)
        if not rows:
            return
        *broken, (above, *_) = rows
        for entry_id, tenant_id, action, target, is_unsealed, _ in broken:
            yield Tampered(alias, entry_id, tenant_id, action, target, is_unsealed)
        yield above
