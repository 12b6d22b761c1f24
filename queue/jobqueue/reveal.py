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


def result(job_id: int, *, scope: Scope, actor: str, reason: str = "") -> str | None:
    """The text of a job's result; audited. Raises NotFound until it has one."""
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    return sql.in_transaction(alias, lambda: _shown_result(job_id, scope, actor, reason, alias))


def _shown_result(job_id: int, scope: Scope, actor: str, reason: str, alias: str) -> str | None:
    body = reads.result(job_id, scope=scope).body
    _record(job_id, scope, actor, reason, alias, what="result")
    return body


def _shown(job_id: int, scope: Scope, actor: str, reason: str, alias: str) -> tuple[str | None, str | None]:
    found = reads.payload(job_id, scope=scope)
    _record(job_id, scope, actor, reason, alias, what="payload")
    return found


def _record(job_id: int, scope: Scope, actor: str, reason: str, alias: str, *, what: str) -> None:
    audit.record(
        "job.payload_shown",
        f"job:{format_id(job_id)}",
        actor=actor,
        tenant_id=reads.jobs([job_id], scope=scope)[job_id].tenant_id,
        reason=reason,
        details={"what": what},
        alias=alias,
    )
