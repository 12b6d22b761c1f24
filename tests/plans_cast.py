"""What statements read, as the server explains it while they run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connections

from jobsplatform import sql

# Tables that grow with what was ever done.
BIG = (
    "queue_job|queue_readyjob|queue_scheduledjob|queue_result|dlq_deadletter|queue_attempt|queue_requestkey"
    "|queue_depthminute|queue_depthround"
)
_SCAN = re.compile(r"(?:Index|Heap) .*on (queue_\w+|dlq_deadletter).*rows=([\d.]+) loops=(\d+)")


def explained(action: Callable[[], object], *statements: str) -> list[str]:
    """The plans, with what was really read, of those statements that an action runs (their names or beginnings)."""
    plans: list[str] = []
    run = sql._run

    def explaining(statement: str, params: Any, alias: str, *, writes: bool) -> Any:
        if statement.startswith(statements):
            plans.append(_plan(statement, params, alias))
        return run(statement, params, alias, writes=writes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "_run", explaining)
        action()
    return plans


def _plan(statement: str, params: Any, alias: str) -> str:
    """It is rolled back: the action itself does what it does."""
    wrapper = connections[alias]
    wrapper.ensure_connection()
    raw = wrapper.connection
    with raw.transaction(force_rollback=True):
        raw.execute(sql.planning(statement) or b"SELECT")
        bound = sql._bound(statement)
        text = b"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) " + bound.text
        cursor = psycopg.RawCursor(raw).execute(text, bound.values(params))
        return "\n".join(row[0] for row in cursor.fetchall())


def rows_read(plan: str) -> dict[str, float]:
    """The most rows that one scan along an index took of each table. Subplans are looked up row by row elsewhere.

    A table that grows and is read from end to end fails the test.
    """
    assert not re.search(rf"Seq Scan on ({BIG})\b", plan), plan
    most: dict[str, float] = {}
    for line in plan.splitlines():
        scan = _SCAN.search(re.sub(r"\(cost=[^)]*\)", "", line))
        if scan is not None and not line.strip().startswith("SubPlan"):
            most[scan[1]] = max(most.get(scan[1], 0.0), float(scan[2]) * int(scan[3]))
    return most
