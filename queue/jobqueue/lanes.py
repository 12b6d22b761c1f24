"""Finds the lane of a job. Each process remembers those that it has met; upkeep forgets those that nobody uses.

A lane that is forgotten between a look and its use is missing in the statement that uses it: then `forget`, and look
again. A tenant has at most `LANES_MAX` lanes in a band of a queue, so that one walk of a claim meets them all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import psycopg

from jobqueue.limits import LANES_MAX
from jobsplatform import sql
from jobsplatform.errors import QuotaExceeded

CACHE_MAX: Final = 100_000  # lanes; about 30 MB, then the memory starts anew
BARRED_SECONDS: Final = 1.0  # so that work with limits pays for one statement more once a second
STALE_MAX: Final = 1_000  # lanes, and names of dependencies, that one transaction of upkeep holds
FULL_RETRY_SECONDS: Final = 3_600  # what nobody uses is forgotten after a day


class LaneKey(NamedTuple):
    queue_id: int
    priority: int
    tenant_id: int
    kind: str
    dependency: str


_known: dict[tuple[str, LaneKey], int] = {}
_barred: dict[tuple[str, int], float] = {}  # (alias, lane) → until when, by this process's own clock


def lane_ids(keys: Iterable[LaneKey], *, alias: str, is_bounded: bool = True) -> Mapping[LaneKey, int]:
    """Lane ids of `keys` on `alias`, made where they are new. Those that its tenant may not have are missing."""
    wanted = set(keys)
    found = {key: lane for key in wanted if (lane := _known.get((alias, key))) is not None}
    if missing := sorted(wanted - found.keys()):
        met = _met(sql.rows("jobqueue/lane_find", columns(missing), alias=alias))
        if new := [key for key in missing if key not in met]:
            met |= sql.short_transaction(alias, partial(made, new, LANES_MAX if is_bounded else None))
        if len(_known) > CACHE_MAX:
            _known.clear()
        _known.update(((alias, key), lane) for key, lane in met.items())
        found |= met
    return found


def made(
    keys: list[LaneKey], lanes_max: int | None, connection: psycopg.Connection[sql.Row]
) -> dict[LaneKey, int]:
    """Lanes of `keys`, made in the transaction of `connection` as far as their tenants may have them."""
    connection.execute(sql.BY_INDEX)
    params = columns(keys)
    sql.send(connection, "jobqueue/lane_lock", params)
    return _met(sql.send(connection, "jobqueue/lane_upsert", params | {"lanes_max": lanes_max}).fetchall())


def open_lane(key: LaneKey, *, alias: str) -> int | None:
    """The lane of `key` as this process knows it; None: it knows of none, or that one is barred."""
    lane_id = _known.get((alias, key))
    return None if lane_id is None or (_barred and barred([lane_id], alias=alias)) else lane_id


def bar(lane_ids: Iterable[int], *, alias: str) -> None:
    """Remember for a second that the small statement of `enqueue` left these to the one that judges."""
    if len(_barred) > CACHE_MAX:
        _barred.clear()
    _barred.update(((alias, lane), time.monotonic() + BARRED_SECONDS) for lane in lane_ids)


def barred(lane_ids: Iterable[int], *, alias: str) -> set[int]:
    """Those of these lanes that were barred lately."""
    if not _barred:
        return set()
    now = time.monotonic()
    return {lane for lane in set(lane_ids) if _barred.get((alias, lane), 0.0) > now}


def too_many() -> QuotaExceeded:
    """The refusal of a job whose lane could not be made."""
    return QuotaExceeded(
        f"The tenant uses {LANES_MAX} pairs of kind and dependency in this band of the queue, and may not use more."
        " Those in which no job stands and that are not used for a day are forgotten.",
        retry_after=FULL_RETRY_SECONDS,
    )


def forget() -> None:
    """Drop what is remembered (a database was replaced, or lanes are gone)."""
    _known.clear()
    _barred.clear()


def purge(alias: str, *, limit: int, now: datetime | None = None) -> int:
    """Delete lanes that nobody uses, then names of dependencies that no lane has. Returns how many of both."""
    few = {"limit": min(limit, STALE_MAX)}

    def unused(connection: psycopg.Connection[sql.Row]) -> int:
        stale = sql.send(connection, "jobqueue/lane_stale", few | {"now": now}).fetchall()
        return _again(connection, "jobqueue/lane_forget", stale)

    def unnamed(connection: psycopg.Connection[sql.Row]) -> int:
        stale = sql.send(connection, "jobqueue/dependency_stale", few).fetchall()
        return _again(connection, "jobqueue/dependency_forget", stale)

    return sql.short_transaction(alias, unused) + sql.short_transaction(alias, unnamed)


def _again(connection: psycopg.Connection[sql.Row], statement: str, stale: list[sql.Row]) -> int:
    """Delete what is still unused now that it is held: what was taken into use before is seen by this statement."""
    if not stale:
        return 0
    ids = [row[0] for row in stale]
    return int(sql.send(connection, statement, {"ids": ids}).fetchall()[0][0])


def columns(keys: list[LaneKey]) -> dict[str, Any]:
    """The keys as the statements take them, column by column."""
    names = ("queue_ids", "priorities", "tenant_ids", "kinds", "dependencies")
    return {name: list(column) for name, column in zip(names, zip(*keys, strict=True), strict=True)}


def _met(rows: Iterable[sql.Row]) -> dict[LaneKey, int]:
    return {LaneKey(*key): lane_id for lane_id, *key in rows}
