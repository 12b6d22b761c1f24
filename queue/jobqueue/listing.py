"""The API's list of jobs: pages of what a filter leaves, newest first over all shards, by the reads of a search.

A page may hold fewer jobs than it could, or none, while the list goes on: where no index leads to what is asked, each
call looks at so many of the newest jobs, and no more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from jobqueue import reads, search
from jobqueue.reads import JobView
from jobqueue.search import Wanted
from jobqueue.types import Scope
from jobsplatform import database, merging
from jobsplatform.errors import Unavailable

LOOK_SECONDS: Final = 0.05  # after which a page that is not full is answered as it is
OVER: Final = -1  # a shard that has nothing left

# Of each shard, by number, the id to go on below; 0: from the newest; -1: nothing is left.
Place = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a list shows; None: any."""

    queue_id: int | None = None
    state: str | None = None
    kind: str | None = None
    priority: int | None = None
    request_key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


def page(
    wanted: JobFilter, *, scope: Scope, before: Place | None, limit: int, unknown: list[int] | None = None
) -> tuple[list[JobView], Place | None]:
    """A page of jobs and where to go on (None: that was all).

    `unknown` gets the shards that do not answer; without it they are an error. Raises Unavailable when none answers.
    """
    asked, place = _asked(wanted, scope), _read(before)
    until = time.monotonic() + LOOK_SECONDS
    views: list[JobView] = []
    while True:
        found = search.page_of(
            asked, scope=scope, before=place, limit=limit - len(views), lines=reads.views_of
        )
        _told(found.unknown, unknown)
        views += found.rows
        place = found.following or dict.fromkeys(database.aliases(), 0)
        is_over = all(below == 0 for number, below in place.items() if number not in found.unknown)
        if is_over or len(views) >= limit or time.monotonic() >= until:
            return views, None if is_over else _written(place)


def _asked(wanted: JobFilter, scope: Scope) -> Wanted:
    return Wanted(
        tenant_id=scope.tenant_id,
        queue_id=wanted.queue_id,
        state=wanted.state,
        kind=wanted.kind,
        first_band=wanted.priority,
        last_band=wanted.priority,
        key=wanted.request_key,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
    )


def _told(away: list[int], unknown: list[int] | None) -> None:
    if away and (unknown is None or len(away) == len(database.aliases())):
        raise Unavailable("A shard cannot be reached.")
    if unknown is not None:
        unknown[:] = sorted({*unknown, *away})


def _read(before: Place | None) -> merging.Place:
    """As a search has it: there 0 says that nothing is left, and a shard that begins has no place."""
    pairs = zip(sorted(database.aliases()), before or (), strict=False)
    return {number: 0 if below == OVER else below for number, below in pairs if below}


def _written(place: merging.Place) -> Place:
    return tuple((place[number] or OVER) if number in place else 0 for number in sorted(database.aliases()))
