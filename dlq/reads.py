"""What the dead-letter desk shows. Payloads stay masked: size and hash only."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from jobqueue.types import FLEET, Scope
from jobsplatform import database, everywhere, sql
from jobsplatform.errors import NotFound


class DeadLetterView(NamedTuple):
    job_id: int
    tenant_id: int
    queue_id: int
    kind: str
    priority: int
    reason: str
    failed_at: datetime
    error_class: str | None
    message: str
    fingerprint: str
    attempts_used: int
    crashes: int
    generation: int
    redrive_generation: int
    correction_required: bool
    payload_bytes: int | None
    payload_sha256: str | None
    payload_ref: str | None


class CorrectionView(NamedTuple):
    job_id: int
    version: int
    note: str
    author: str
    at: datetime
    old_sha256: str | None
    new_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Which dead letters a list shows; None: any."""

    queue_id: int | None = None
    reason: str | None = None
    kind: str | None = None
    fingerprint: str | None = None
    failed_before: datetime | None = None


Place = tuple[datetime, int]  # failed_at and job id: where the next page begins


def dead_letter(job_id: int, *, scope: Scope) -> DeadLetterView:
    """One dead letter. Raises NotFound when the job is none."""
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    found = _rows(DeadFilter(), scope, alias, job_id=job_id, limit=1)
    if not found:
        raise NotFound
    return found[0]


def page(
    wanted: DeadFilter, *, scope: Scope, before: Place | None, limit: int, unknown: list[int] | None = None
) -> tuple[list[DeadLetterView], Place | None]:
    """A page of dead letters, newest first, and where to go on (None: that was all).

    `unknown` gets the shards that do not answer; without it they are an error.
    """
    pages = everywhere.ask(lambda a: _rows(wanted, scope, a, before=before, limit=limit + 1), unknown)
    merged = heapq.merge(*pages, key=_place, reverse=True)
    shown = list(itertools.islice(merged, limit + 1))
    return shown[:limit], _place(shown[limit - 1]) if len(shown) > limit else None


def corrections(job_ids: Sequence[int]) -> dict[int, list[CorrectionView]]:
    """Job id → versions of its payload, oldest first."""
    found: dict[int, list[CorrectionView]] = {job_id: [] for job_id in job_ids}
    for alias in {database.alias_of(job_id) for job_id in job_ids} - {None}:
        here = [job_id for job_id in job_ids if database.alias_of(job_id) == alias]
        for row in sql.rows("dlq/corrections", {"job_ids": here}, alias=str(alias)):
            found[row[0]].append(CorrectionView(*row))
    return found


def _place(view: DeadLetterView) -> Place:
    return view.failed_at, view.job_id


def _rows(
    wanted: DeadFilter,
    scope: Scope,
    alias: str,
    *,
    job_id: int | None = None,
    before: Place | None = None,
    limit: int,
) -> list[DeadLetterView]:
    before_at, before_id = before or (None, None)
    params: dict[str, Any] = asdict(wanted) | {
        "job_id": job_id,
        "before_at": before_at,
        "before_id": before_id,
        "limit": limit,
        **scope.params(),
    }
    if (
        wanted == DeadFilter(fingerprint=wanted.fingerprint)
        and scope == FLEET
        and wanted.fingerprint is not None
    ):
        statement = "dlq/dead_letters_of_error"
    else:
        statement = "dlq/dead_letters_of_lanes" if _names_lanes(wanted, scope, job_id) else "dlq/dead_letters"
    return [DeadLetterView(*row) for row in sql.rows(statement, params, alias=alias)]


def _names_lanes(wanted: DeadFilter, scope: Scope, job_id: int | None) -> bool:
    """Whether a list is of some lanes, or of one error: then it must not wade through all other dead letters."""
    of_lanes = (scope.tenant_id, scope.queue_ids, wanted.queue_id, wanted.kind, wanted.fingerprint)
    return job_id is None and any(part is not None for part in of_lanes)
