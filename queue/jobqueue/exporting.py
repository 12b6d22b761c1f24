"""The export of a search: audited when it begins, read page by page, so that memory stays flat however much it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from django.db import transaction

from jobqueue import policies, search
from jobqueue.ids import format_id
from jobqueue.query import Query
from jobqueue.search import JobLine, Wanted
from jobqueue.types import Scope
from jobsplatform import database, exporting
from jobsplatform.errors import Invalid
from jobsplatform.exporting import Cell
from tenants import audit
from tenants.models import Tenant

ROWS_MAX: Final = 100_000
ROWS_AT_ONCE: Final = 500
SECONDS_MAX: Final = 300  # an export ends then, with a line that says so

COLUMNS: Final = (
    "job_id",
    "tenant",
    "queue",
    "kind",
    "priority",
    "state",
    "request_key",
    "created_at",
    "attempts_used",
    "max_attempts",
    "generation",
    "redrive_generation",
    "due_at",
    "lease_expires_at",
    "worker",
    "finished_at",
    "error_class",
    "error",
    "dead_reason",
)


def export(
    query: Query, *, scope: Scope, form: str, actor: str, reason: str = "", rows_max: int = ROWS_MAX
) -> Iterator[bytes]:
    """What a search finds now, newest first, as CSV or JSON lines (`form`: csv, jsonl); the audit says so at once.

    At most `rows_max` jobs. Where it was cut off, a last line says so. Raises BadQuery, Invalid.
    """
    if not 1 <= rows_max <= ROWS_MAX:
        raise Invalid.at("/rows_max", f"An export has 1 to {ROWS_MAX:,} rows.")
    wanted = search.resolve(query, scope=scope)
    rows = _rows(wanted, scope, rows_max) if wanted is not None else iter(())
    pieces = exporting.written(form, COLUMNS, rows)
    with transaction.atomic():
        audit.record(
            "job.export",
            "jobs",
            actor=actor,
            tenant_id=scope.tenant_id,
            reason=reason,
            details={"query": query.text, "format": form, "rows_max": rows_max},
        )
    return pieces


def _rows(wanted: Wanted, scope: Scope, rows_max: int) -> Iterator[list[Cell]]:
    place: search.Place | None = None
    left, ends = rows_max, time.monotonic() + SECONDS_MAX
    while True:
        page = search.page_of(
            wanted, scope=scope, before=place, limit=min(ROWS_AT_ONCE, left), lines=search.lines_of
        )
        yield from _told(page.rows)
        left -= len(page.rows)
        if page.unknown:
            yield _note(f"shards {', '.join(map(str, page.unknown))} did not answer: their jobs are missing")
            return
        if page.following is None:
            return
        if left <= 0 or time.monotonic() > ends:
            why = f"{rows_max:,} rows" if left <= 0 else f"{SECONDS_MAX} seconds"
            yield _note(f"cut off after {why}: narrow the search, such as by age:>…")
            return
        place = page.following
        database.give_connections_back()  # whoever reads slowly holds none


def _note(text: str) -> list[Cell]:
    """A last line that is no job."""
    return [f"# {text}", *[None] * (len(COLUMNS) - 1)]


def _told(lines: list[JobLine]) -> Iterator[list[Cell]]:
    tenants = dict(Tenant.objects.filter(pk__in={line.tenant_id for line in lines}).values_list("pk", "slug"))
    queues = policies.names({line.queue_id for line in lines})
    for line in lines:
        yield [
            format_id(line.job_id),
            tenants.get(line.tenant_id),
            queues.get(line.queue_id),
            line.kind,
            line.priority,
            line.state,
            line.request_key,
            line.created_at,
            line.attempts_used,
            line.max_attempts,
            line.generation,
            line.redrive_generation,
            line.due_at,
            line.expires_at,
            line.worker,
            line.finished_at,
            line.error_class,
            line.error,
            line.dead_reason,
        ]
