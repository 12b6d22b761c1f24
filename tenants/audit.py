"""The record of who did what: append-only, each entry sealing the one before it of its tenant and database.

`record` belongs in the transaction of the change that it tells of, so that neither stands without the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction

from jobsplatform import database, everywhere, requestid, sql
from tenants import rights

CHECK_BATCH: Final = 5_000  # entries that one statement checks
SEAL_BATCH: Final = 20_000  # entries that one seal looks at
SEALS_CHECKED: Final = 500  # that one statement reads; a seal names one entry of each chain that grew
SEAL: Final = "audit.seal"


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
    """Add an entry to `alias` inside the caller's transaction and return its id. `details` must hold no secret.

    Raises Forbidden for an operator who may not do this, which rolls the change back.
    """
    rights.check(action)
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
    rights.check(action)
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


# Seals: a chain tells of what is missing within it, and not of an end that was cut off


def seal() -> int:
    """Write the newest entry of each chain that has grown, of every database, into the control database's chain.

    Returns how many chains were sealed. Any number of processes may seal: one at a time does.
    """
    sealed = 0
    for alias in dict.fromkeys(["default", *database.aliases().values()]):
        try:
            sealed += _seal(alias)
        except everywhere.AWAY:
            if alias == "default":
                raise
    return sealed


def _seal(alias: str) -> int:
    target = f"database:{alias}"
    with transaction.atomic():
        sql.rows("tenants/audit_lock", {"tenant_id": None}, alias="default")
        sealed = sql.rows("tenants/audit_sealed_to", {"target": target, "seal": SEAL}, alias="default")
        params = {"above": sealed[0][0] if sealed else 0, "seal": SEAL, "limit": SEAL_BATCH}
        heads = sql.rows("tenants/audit_heads", params, alias=alias)
        if heads:
            details = {"to": max(head[1] for head in heads), "heads": [list(head) for head in heads]}
            record(SEAL, target, actor="upkeep", details=details)
    return len(heads)


@dataclass(frozen=True, slots=True)
class Missing:
    """An entry that was sealed, and is not there any more as it was."""

    alias: str
    entry_id: int
    seal_id: int

    def __str__(self) -> str:
        return f"{self.alias}-{self.entry_id}: sealed by default-{self.seal_id}, and gone or changed since"


def verify_seals() -> Iterator[Missing]:
    """Compare every seal with what stands in its database now."""
    known = {f"database:{alias}": alias for alias in ["default", *database.aliases().values()]}
    above = 0
    while seals := sql.rows(
        "tenants/audit_seals", {"above": above, "seal": SEAL, "limit": SEALS_CHECKED}, alias="default"
    ):
        heads: dict[str, list[tuple[int, int, str]]] = {}  # by database: seal, entry, hash
        for above, target, details in seals:
            if (alias := known.get(target)) is not None:
                heads.setdefault(alias, []).extend((above, *head[1:3]) for head in details["heads"])
        for alias, sealed in heads.items():
            for start in range(0, len(sealed), CHECK_BATCH):
                yield from _missing(alias, sealed[start : start + CHECK_BATCH])


def _missing(alias: str, sealed: Sequence[tuple[int, int, str]]) -> Iterator[Missing]:
    seals, ids, hashes = (list(column) for column in zip(*sealed, strict=True))
    params = {"seals": seals, "ids": ids, "hashes": hashes}
    for seal_id, entry_id in sql.rows("tenants/audit_missing", params, alias=alias):
        yield Missing(alias, entry_id, seal_id)
