"""Finds the lane of a job. Lanes are never deleted, so each process remembers those that it has met."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from jobsplatform import sql

CACHE_MAX: Final = 100_000  # lanes; about 30 MB, then the memory starts anew


class LaneKey(NamedTuple):
    queue_id: int
    priority: int
    tenant_id: int
    kind: str
    dependency: str


_known: dict[tuple[str, LaneKey], int] = {}


def lane_ids(keys: Iterable[LaneKey], *, alias: str, now: datetime | None = None) -> Mapping[LaneKey, int]:
    """Lane ids of `keys` on `alias`, made where they are new."""
    wanted = set(keys)
    found = {key: lane for key in wanted if (lane := _known.get((alias, key))) is not None}
    missing = sorted(wanted - found.keys())
    while missing:
        for lane_id, *key in _upsert(missing, alias, now):
            found[LaneKey(*key)] = lane_id
        if len(_known) > CACHE_MAX:
            _known.clear()
        _known.update(((alias, key), found[key]) for key in missing if key in found)
        missing = [
            key for key in missing if key not in found
        ]  # made by another transaction meanwhile: read again
    return found


def forget() -> None:
    """Drop what is remembered (a database was replaced)."""
    _known.clear()


def _upsert(keys: list[LaneKey], alias: str, now: datetime | None) -> list[sql.Row]:
    columns = list(zip(*keys, strict=True))
    names = ("queue_ids", "priorities", "tenant_ids", "kinds", "dependencies")
    params = {name: list(column) for name, column in zip(names, columns, strict=True)}
    return sql.rows("jobqueue/lane_upsert", params | {"now": now}, alias=alias)
