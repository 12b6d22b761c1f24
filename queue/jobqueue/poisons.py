"""Holds back the lanes of a tenant's kind that kills workers again and again, so that it cannot take them all down.

A single poisoned job is quarantined and its lane stays open. Several in a window gate the lanes of that tenant and
kind, and no others; the gate ends by itself, or by an operator's word.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.core.exceptions import ValidationError

from jobqueue.models import NAME
from jobsplatform import events, everywhere, sql
from jobsplatform.errors import Invalid
from tenants import audit, registry

POISONS: Final = 3  # of one tenant and kind
WINDOW_SECONDS: Final = 600
GATE_SECONDS: Final = 900  # after the last of them


def gate(alias: str, now: datetime | None = None) -> int:
    """Hold back what has had too many poisons of late. Returns how many (tenant, kind) are held, or held longer."""
    params = {"poisons": POISONS, "window_s": WINDOW_SECONDS, "gate_s": GATE_SECONDS, "now": now}
    gated = sql.rows("jobqueue/poison_gate", params, alias=alias, writes=True)
    for tenant_id, kind, until in gated:
        events.emit("lane_gated", tenant_id=tenant_id, kind=kind, until=until.isoformat())
    return len(gated)


def release(tenant: str, kind: str, *, actor: str, reason: str = "", now: datetime | None = None) -> int:
    """Let the lanes of a tenant's kind go on; its poisons are counted anew. Returns how many were held back.

    Audited on each shard. Raises NotFound for an unknown tenant, Invalid for what cannot be a kind.
    """
    tenant_id = registry.get(tenant).pk
    try:
        NAME(kind)
    except ValidationError:
        raise Invalid.at("/kind", f"{kind!r} cannot be a kind.") from None
    return sum(everywhere.ask(lambda alias: _release_on(alias, tenant_id, kind, actor, reason, now)))


def _release_on(alias: str, tenant_id: int, kind: str, actor: str, reason: str, now: datetime | None) -> int:
    def action() -> int:
        params = {"tenant_id": tenant_id, "kind": kind, "now": now}
        held = int(sql.rows("jobqueue/poison_release", params, alias=alias)[0][0])
        audit.record(
            "lane.release",
            f"kind:{kind}",
            actor=actor,
            tenant_id=tenant_id,
            reason=reason,
            details={"lanes": held},
            alias=alias,
        )
        return held

    return sql.in_transaction(alias, action)
