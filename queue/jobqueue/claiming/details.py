"""What a lease tells beside its ticket: read after the claim's commit, outside its lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg

from jobqueue.claiming.types import Lease, Taken
from jobsplatform import sql
from jobsplatform.errors import Unavailable, UnknownOutcome


def with_details(taken: Iterable[Taken], alias: str, known: Mapping[int, sql.Row]) -> list[Lease]:
    """Add what stands in the intents: payloads are read outside the claim's lock. `known` came with its commit."""
    by_id = {row.job_id: row for row in taken}
    missing = [job_id for job_id in by_id if job_id not in known]
    details = dict(known)
    if missing:
        details |= {row[0]: row[1:] for row in _read_details({"job_ids": missing}, alias)}
    return [_lease(row, details[job_id]) for job_id, row in by_id.items() if job_id in details]


def ask_details(connection: psycopg.Connection[sql.Row], job_ids: Sequence[int]) -> psycopg.Cursor[sql.Row]:
    """Send the question, in pipeline mode; a row is job_id, then what `_lease` takes."""
    psycopg.Cursor(connection).execute(sql.BY_ONE_PLAN)
    return sql.send(connection, "jobqueue/claim_details", {"job_ids": job_ids})


def _read_details(params: dict[str, Any], alias: str) -> list[sql.Row]:
    """Read them, on a new connection if the first is lost. Raises UnknownOutcome: the leases are made by now."""
    try:
        return sql.rows("jobqueue/claim_details", params, alias=alias)
    except Unavailable:
        try:
            return sql.rows("jobqueue/claim_details", params, alias=alias)
        except Unavailable as error:
            raise UnknownOutcome(
                "Leases were made and could not be read; repeat with the same claim_key."
            ) from error


def _lease(row: Taken, told: sql.Row) -> Lease:
    """In the order of `Lease`: a claim makes hundreds, and names would cost more than all else here."""
    *details, earlier = told
    return Lease._make(
        (
            row.job_id,
            row.generation,
            row.attempt,
            bytes(row.token),
            row.claimed_at,
            row.expires_at,
            row.max_run_at,
            row.deadline,
            row.reconcile,
            row.checkpoint,
            row.redrive_generation,
            *details,
            earlier or [],
            row.crashes,
        )
    )
