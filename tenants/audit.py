"""The record of who did what: append-only, each entry sealing the one before it of its tenant and database.

`record` belongs in the transaction of the change that it tells of, so that neither stands without the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jobsplatform import requestid, sql


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
