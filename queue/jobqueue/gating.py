"""What dependencies let a claim start: lanes that it passes over, and rooms that it holds.

    known to have limited dependencies: shut those that are full · list heads        (no round trip more)
    limited ones among the heads: hold them · count what they leave                  (one more)
    some of them busy or full: shut them · list again what is missing                (one more)

A claim of a queue without limited dependencies does none of this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import psycopg

from jobsplatform import sql

_limiting: set[tuple[str, int]] = set()  # (alias, queue) in which the last claim met a limited dependency


class Gate:
    """The dependencies of one claim transaction on one queue."""

    def __init__(
        self, connection: psycopg.Connection[sql.Row], key: tuple[str, int], now: datetime | None
    ) -> None:
        self.connection, self.key, self.now = connection, key, now
        self.busy: set[int] = set()  # other claims hold them
        self._met_shut = False
        self._asked: psycopg.Cursor[sql.Row] | None = None

    def shut_known(self) -> None:
        """Before heads are listed: pass over what is full, if limited dependencies were met here before."""
        if self.key in _limiting:
            self._asked = self._shut()

    def starts_left(self, dependencies: Iterable[int | None]) -> dict[int, int]:
        """How many jobs may start of each of these (None: not limited) that could be held and is not full."""
        self._forget_if_unlimited()
        limited = {dependency for dependency in dependencies if dependency is not None}
        if not limited:
            return {}
        _limiting.add(self.key)
        left = self._rooms(limited)
        self._met_shut = len(left) < len(limited)
        return left

    def has_shut(self) -> bool:
        """Whether the last heads met dependencies that can start nothing; from now on listings pass over them."""
        if self._met_shut:
            self._shut()
        met, self._met_shut = self._met_shut, False
        return met

    def _rooms(self, limited: Collection[int]) -> dict[int, int]:
        """Dependency → how many jobs of it may start: those that could be held, and leave any.

        They stay held to the end of the transaction. Hold and count are two statements in one round trip.
        """
        params = {"dependency_ids": sorted(limited)}
        held = self._send("dependency_hold", params)
        counted = self._send("dependency_rooms", params | {"now": self.now})
        ours = {row[0] for row in held.fetchall()}
        self.busy |= set(limited) - ours
        return {
            dependency: left for dependency, left in counted.fetchall() if dependency in ours and left > 0
        }

    def _shut(self) -> psycopg.Cursor[sql.Row]:
        params = {"queue_id": self.key[1], "busy": sorted(self.busy), "now": self.now}
        return self._send("dependency_shut", params)

    def _forget_if_unlimited(self) -> None:
        if self._asked is not None and self._asked.fetchall()[0][0] == 0:
            _limiting.discard(self.key)
        self._asked = None

    def _send(self, verb: str, params: Mapping[str, object]) -> psycopg.Cursor[sql.Row]:
        return sql.send(self.connection, f"jobqueue/{verb}", params)


def forget() -> None:
    """Drop what this process remembers."""
    _limiting.clear()
