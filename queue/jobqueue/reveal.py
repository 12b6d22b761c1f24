"""Shows a payload, and says so in the audit: what was shown and its record are one transaction."""

from __future__ import annotations

from jobqueue import reads
from jobqueue.ids import format_id
from jobqueue.types import Scope
from jobsplatform import database, sql
from jobsplatform.errors import NotFound
from tenants import audit


def payload(job_id: int, *, scope: Scope, actor: str, reason: str = "") -> tuple[str | None, str | None]:
    """(payload text, payload_ref) of the version that would run: exactly one of them; audited. Raises NotFound."""
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    return sql.in_transaction(alias, lambda: _shown(job_id, scope, actor, reason, alias))


def _shown(job_id: int, scope: Scope, actor: str, reason: str, alias: str) -> tuple[str | None, str | None]:
    found = reads.payload(job_id, scope=scope)
    tenant_id = reads.jobs([job_id], scope=scope)[job_id].tenant_id
    audit.record(
        "job.payload_shown",
        f"job:{format_id(job_id)}",
        actor=actor,
        tenant_id=tenant_id,
        reason=reason,
        alias=alias,
    )
    return found
