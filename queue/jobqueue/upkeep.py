"""What keeps the queue moving beside claims: each verb is one pass in bounded batches over every shard.

Passes may run in any number of processes at once: each takes its own rows with SKIP LOCKED and is idempotent.
A shard that cannot be reached does not hold up the others.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, Final

import psycopg

from jobqueue import judging, lanes, moves, poisons, wakeup
from jobqueue.limits import CRASHES_DEFAULT, MESSAGE_DELIVERIES_MAX, UNSTARTED_LAPSES_MAX
from jobqueue.policy.plan import DEBT_MAX_S
from jobqueue.states import State
from jobqueue.usage import COUNT_MAX
from jobsplatform import events, everywhere, sql

LANE_IDLE_SECONDS: Final = 60
LANE_COUNT_MAX: Final = 10_000  # ready jobs of a lane that a sample counts: about 2 ms of index reading
PURGE_WINDOW: Final = 10_000  # results that one statement looks at
PURGE_WINDOWS: Final = 20  # of them in one pass
RESERVATION_SECONDS: Final = 60  # an insert follows within milliseconds, or its process is dead


def promote(limit: int = 1_000, now: datetime | None = None) -> int:
    """Make due jobs ready: retries as the budgets of their queues allow. Returns how many."""
    params = {"limit": limit, "now": now}

    def one_shard(alias: str) -> int:
        rows = sql.short_transaction(alias, lambda connection: _promoted(connection, params))
        wakeup.lanes_ready(alias, (row[0] for row in rows))
        return sum(row[1] for row in rows)

    return everywhere.upkeep(one_shard)


def _promoted(connection: psycopg.Connection[sql.Row], params: dict[str, Any]) -> list[sql.Row]:
    connection.execute(sql.BY_INDEX)
    sql.send(connection, "jobqueue/promote_lock", {})
    return sql.send(connection, "jobqueue/promote", params).fetchall()


def reap(limit: int = 500, now: datetime | None = None) -> Counter[str]:
    """Take lapsed leases back. Returns how many were led where (ready, dead, cancelled)."""
    params = {
        "limit": limit,
        "unstarted_max": UNSTARTED_LAPSES_MAX,
        "crashes_default": CRASHES_DEFAULT,
        "message_crashes": MESSAGE_DELIVERIES_MAX,
        "now": now,
    }
    led = _moved("jobqueue/reap", params)
    if led:
        events.emit("reaped", **led)
        everywhere.upkeep(lambda alias: _judged(alias, has_dead=bool(led[State.DEAD]), now=now))
    return led


def _judged(alias: str, *, has_dead: bool, now: datetime | None) -> int:
    judging.judge_failing(alias, now=now)
    if has_dead:
        poisons.gate(alias, now=now)
    return 0


def expire(limit: int = 500, now: datetime | None = None) -> Counter[str]:
    """End waiting jobs whose deadline has passed. Returns how many were led where (expired, dead)."""
    led = _moved("jobqueue/expire", {"limit": limit, "now": now})
    if led:
        events.emit("expired", **led)
    return led


def fold(limit: int = 5_000) -> int:
    """Fold the ledger, charges, refusals and the scheduler's old states. Returns how many rows."""
    return everywhere.upkeep(
        lambda alias: (
            _count("fold", alias, limit=limit)
            + _count("fold_service", alias, limit=limit, debt_max_s=DEBT_MAX_S)
            + _count("trim_states", alias, limit=limit)
            + int(sql.rows("tenants/fold_refusals", {"limit": limit}, alias=alias, writes=True)[0][0])
        )
    )


def sweep_lanes() -> int:
    """Wake lanes with work, put idle ones to sleep, raise the lower bounds of scans. Returns how many changed."""
    return everywhere.upkeep(
        lambda alias: (
            _count("lane_sweep", alias, idle_s=LANE_IDLE_SECONDS)
            + _count("lane_low", alias)
            + _count("lane_means", alias)
        )
    )


def sweep_reservations(limit: int = 1_000, now: datetime | None = None) -> int:
    """Free the places below depths that dead processes hold. Returns how many rows."""
    params = {"limit": limit, "stale_s": RESERVATION_SECONDS, "now": now}
    return everywhere.upkeep(
        lambda alias: int(sql.rows("tenants/sweep_reservations", params, alias=alias, writes=True)[0][0])
    )


def sample_usage(limit: int = 200, now: datetime | None = None) -> int:
    """Count what is in use of tenants' limits, each about once a minute. Returns how many limits."""
    return everywhere.upkeep(
        lambda alias: _count("sample_usage", alias, limit=limit, bound=COUNT_MAX, now=now)
    )


def sample_depths(limit: int = 100, now: datetime | None = None) -> int:
    """Count what is ready, and since when, in the next lanes of the minute's round. Returns how many lanes."""
    return everywhere.upkeep(
        lambda alias: _count("sample_depths", alias, limit=limit, bound=LANE_COUNT_MAX, now=now)
    )


def recheck_lanes() -> int:
    """Uncover rows below their lane's bound, as a clock that was set back leaves them. Returns lanes changed."""
    return everywhere.upkeep(lambda alias: _count("lane_recheck", alias))


def purge(limit: int = 1_000, now: datetime | None = None) -> int:
    """Forget what is past its retention, and names that nobody uses. Returns how many rows."""
    kinds = (
        "purge_keys",
        "purge_minutes",
        "purge_depths",
        "purge_classes",
        "purge_states",
        "purge_tallies",
    )
    return everywhere.upkeep(
        lambda alias: (
            _purge_jobs(alias, limit, now)
            + sum(_count(kind, alias, limit=limit, now=now) for kind in kinds)
            + lanes.purge(alias, limit=limit, now=now)
            + int(
                sql.rows("tenants/purge_usage", {"limit": limit, "now": now}, alias=alias, writes=True)[0][0]
            )
        )
    )


# Where looking for jobs past their retention goes on: a queue with a short one would else make every pass walk through
# all that the others keep. Each process goes round on its own.
_purged_to: dict[str, tuple[datetime, int]] = {}


def _purge_jobs(alias: str, limit: int, now: datetime | None) -> int:
    """Purge up to `limit` jobs, window by window from where the last pass ended; at the end begin anew."""
    purged = 0
    for _ in range(PURGE_WINDOWS):
        after_at, after_id = _purged_to.get(alias, (None, None))
        place = {"after_at": after_at, "after_id": after_id, "window": PURGE_WINDOW}
        ((count, looked, last_at, last_id),) = _rows(
            "purge_jobs", alias, limit=limit - purged, now=now, **place
        )
        purged += count
        if purged >= limit:
            break  # there may be more before the window's end
        if looked < PURGE_WINDOW:
            _purged_to.pop(alias, None)
            break
        _purged_to[alias] = (last_at, last_id)
    return purged


def _rows(verb: str, alias: str, **params: Any) -> list[sql.Row]:
    return sql.rows(f"jobqueue/{verb}", params, alias=alias, writes=True)


def _count(verb: str, alias: str, **params: Any) -> int:
    return int(_rows(verb, alias, **params)[0][0])


def _moved(statement: str, params: dict[str, Any]) -> Counter[str]:
    led: Counter[str] = Counter()

    def one_shard(alias: str) -> int:
        rows = moves.move(statement, params, alias=alias)
        led.update(row[1] for row in rows)
        wakeup.lanes_ready(alias, (row[8] for row in rows if row[1] == State.READY))
        return len(rows)

    everywhere.upkeep(one_shard)
    return led
