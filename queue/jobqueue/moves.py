"""Runs the statements that may lead jobs out of the schedule, so that none falls between two tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobqueue import hooks
from jobqueue.states import State
from jobqueue.types import DeadTicket
from jobsplatform import sql


def move(statement: str, params: Mapping[str, Any], *, alias: str) -> list[sql.Row]:
    """Run `statement` and quarantine the jobs that it led to `dead`, in one transaction.

    Its rows begin with ord, led_to, next_at, reason, at, error_class, message, job_id and the ticket.
    """

    def action() -> list[sql.Row]:
        rows = sql.rows(statement, params, alias=alias)
        hooks.quarantine([_dead(row) for row in rows if row[1] == State.DEAD], alias=alias)
        return rows

    return sql.in_transaction(alias, action)


def _dead(row: Sequence[Any]) -> DeadTicket:
    _, _, _, reason, at, error_class, message, job_id, *ticket = row
    return DeadTicket(job_id, reason, at, error_class, message, *ticket)
