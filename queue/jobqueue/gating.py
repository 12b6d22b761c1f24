"""What dependencies let a claim start: rooms that it holds, put on the heads that it was offered.

The listing of heads has passed over what nothing can start; what is limited is held and counted here, in two statements
and one round trip, and only where a limited dependency is among the heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import psycopg

from jobqueue.policy.types import Head
from jobsplatform import sql


def rooms(
    connection: psycopg.Connection[sql.Row], dependency_ids: set[int], now: datetime | None
) -> dict[int, int]:
    """Dependency id → how many jobs of it may start, of those that could be held and that leave any.

    They stay held to the end of the transaction.
    """
    params = {"dependency_ids": sorted(dependency_ids)}
    held = sql.send(connection, "jobqueue/dependency_hold", params)
    counted = sql.send(connection, "jobqueue/dependency_rooms", params | {"now": now})
    ours = {row[0] for row in held.fetchall()}
    return {dependency: left for dependency, left in counted.fetchall() if dependency in ours and left > 0}


def open_heads(
    heads: Sequence[Head], dependencies: Sequence[int | None], rooms_of: Callable[[set[int]], dict[int, int]]
) -> list[Head]:
    """The heads that their dependencies (None: not limited) let start, each with the room that it shares."""
    limited = {dependency for dependency in dependencies if dependency is not None}
    if not limited:
        return list(heads)
    left = rooms_of(limited)
    return [
        head if dependency is None else head._replace(rooms=(*head.rooms, (-dependency, left[dependency])))
        for head, dependency in zip(heads, dependencies, strict=True)
        if dependency is None or dependency in left
    ]
