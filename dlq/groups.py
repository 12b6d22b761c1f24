"""Dead letters by the fault that they share, and the alarm when they grow faster than usual."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from dlq import snoozes
from jobqueue import policies
from jobqueue.types import Scope
from jobsplatform import database, events, everywhere, sql
from jobsplatform.errors import NotFound

COUNT_CAP: Final = 1_000  # dead letters of a group that are counted
PAIRS_MAX: Final = 10_000  # (lane, error) pairs that one read looks at on a shard: about 10 µs each

ERRORS_MAX: Final = 1_000  # errors that differ: of more, lanes are walked, so that no tenant's hide another's
SAMPLE_CHARS: Final = 500  # of a message, in a list
SAMPLE_CHARS_MAX: Final = 8_192

COLUMNS: Final = 12  # spans of time that a matrix shows
LANE_CAP: Final = 500  # newest dead letters of one error that are counted in a lane
CELL_CAP: Final = (
    500  # dead letters of one error and span that are counted, where all lanes are looked at as one
)
MATRIX_LANES_MAX: Final = 1_500  # lanes that a matrix looks into: about 3 µs each and error

RECENT_SECONDS: Final = snoozes.RECENT_SECONDS  # "lately"
USUAL_SECONDS: Final = 3_600  # how far back "usually" looks, before that
GROWTH_MIN: Final = 50  # fewer dead letters than this in the recent time alarm nobody
GROWTH_FACTOR: Final = 3.0  # times as many as usual
ALARM_AGAIN_SECONDS: Final = 600  # while it lasts, a process says so again


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters of one fingerprint; `count` is exact up to `COUNT_CAP`, unless it `is_capped`.

    `is_cut`: its shard has more (lane, error) pairs than one read looks at: more of this group, and other groups.
    """

    fingerprint: str
    error_class: str | None
    sample: str
    count: int
    first_seen: datetime
    last_seen: datetime
    kinds: list[str]
    tenant_ids: list[int]
    is_cut: bool = False

    @property
    def is_capped(self) -> bool:
        return self.is_cut or self.count > COUNT_CAP


Place = tuple[datetime, str]  # last_seen and fingerprint: where the next page begins


def page(
    *, scope: Scope, before: Place | None, limit: int, unknown: list[int] | None = None
) -> tuple[list[Group], Place | None]:
    """A page of groups, latest first, and where to go on (None: that was all).

    `unknown` gets the shards that do not answer; without it they are an error.
    """
    before_at, before_print = before or (None, None)
    params: dict[str, Any] = {
        "before_at": before_at,
        "before_print": before_print,
        "cap": COUNT_CAP,
        "limit": limit + 1,
    }
    found: dict[str, Group] = {}
    for rows in everywhere.ask(lambda alias: _rows(params, scope, alias), unknown):
        for row in rows:
            group = Group(*row)
            held = found.get(group.fingerprint)
            found[group.fingerprint] = group if held is None else _merged(held, group)
    shown = sorted(found.values(), key=lambda g: (g.last_seen, g.fingerprint), reverse=True)
    place = (shown[limit - 1].last_seen, shown[limit - 1].fingerprint) if len(shown) > limit else None
    return shown[:limit], place


def _rows(params: dict[str, Any], scope: Scope, alias: str) -> list[sql.Row]:
    """A shard's groups: of everybody along the index of errors; of a scope, or of very many errors, lane by lane."""
    errors = {"errors_max": ERRORS_MAX}
    if _is_everybody(scope) and not sql.rows("dlq/errors_many", errors, alias=alias)[0][0]:
        more = {"fingerprint": None, "sample_chars": SAMPLE_CHARS, **errors}
        return sql.rows("dlq/groups_of_all", params | more, alias=alias)
    of_lanes = {"pairs_max": PAIRS_MAX, **scope.params()}
    return sql.rows("dlq/groups", params | of_lanes, alias=alias)


def _is_everybody(scope: Scope) -> bool:
    return scope.tenant_id is None and scope.queue_ids is None


def _merged(one: Group, other: Group) -> Group:
    """The same fault on two shards."""
    latest = max(one, other, key=lambda g: g.last_seen)
    return replace(
        latest,
        count=min(one.count + other.count, COUNT_CAP + 1),
        first_seen=min(one.first_seen, other.first_seen),
        kinds=sorted({*one.kinds, *other.kinds}),
        tenant_ids=sorted({*one.tenant_ids, *other.tenant_ids}),
        is_cut=one.is_cut or other.is_cut,
    )


def one(fingerprint: str, *, scope: Scope) -> Group:
    """The group of one error. Raises NotFound when the caller has no dead letter of it."""
    found: Group | None = None
    for alias in database.aliases().values():
        for row in _rows_of_one(fingerprint, scope, alias):
            group = Group(*row)
            found = group if found is None else _merged(found, group)
    if found is None:
        raise NotFound
    return found


def _rows_of_one(fingerprint: str, scope: Scope, alias: str) -> list[sql.Row]:
    params: dict[str, Any] = {"fingerprint": fingerprint, "cap": COUNT_CAP}
    if not _is_everybody(scope):
        return sql.rows("dlq/group_one", params | scope.params(), alias=alias)
    params |= {"before_at": None, "before_print": None, "limit": 1, "errors_max": 1}
    return sql.rows("dlq/groups_of_all", params | {"sample_chars": SAMPLE_CHARS_MAX}, alias=alias)


# Over time


@dataclass(frozen=True, slots=True)
class Matrix:
    """Errors × spans of time. `cut`: errors and spans of which there may be more than was counted."""

    starts: list[datetime]
    width: timedelta
    cells: dict[str, list[int]]  # fingerprint → a count a span
    cut: set[tuple[str, int]]

    def of(self, fingerprint: str) -> list[int]:
        return self.cells.get(fingerprint, [0] * len(self.starts))


def matrix(
    fingerprints: Sequence[str], *, scope: Scope, span: timedelta, now: datetime | None = None
) -> Matrix:
    """How many dead letters of each error failed in each twelfth of the last `span`."""
    width = span / COLUMNS
    end = now or sql.rows("jobqueue/clock", {}, alias="default")[0][0]
    starts = [end - width * (COLUMNS - place) for place in range(COLUMNS)]
    found = Matrix(starts, width, {fingerprint: [0] * COLUMNS for fingerprint in fingerprints}, set())
    params = {
        "fingerprints": list(fingerprints),
        "start": starts[0],
        "width_s": round(width.total_seconds()),
        "spans": COLUMNS,
    }
    for alias in database.aliases().values() if fingerprints else ():
        for fingerprint, number, count, is_cut in _cells(params, scope, alias):
            place = min(number, COLUMNS) - 1
            found.cells[fingerprint][place] += count
            if is_cut:
                found.cut.add((fingerprint, place))
    return found


def _cells(params: dict[str, Any], scope: Scope, alias: str) -> list[sql.Row]:
    if _is_everybody(scope):
        return sql.rows("dlq/group_cells_of_all", params | {"cap": CELL_CAP}, alias=alias)
    of_lanes = {"lanes_max": MATRIX_LANES_MAX, "cap": LANE_CAP, **scope.params()}
    return sql.rows("dlq/group_cells", params | of_lanes, alias=alias)


# Growth


@dataclass(frozen=True, slots=True)
class Growth:
    """How many jobs of a queue died in the last five minutes, and usually do in as long a time."""

    queue_id: int
    queue: str
    recent: int
    usual: float
    snoozed: int = 0  # of the recent: errors that somebody has put off

    @property
    def is_alarming(self) -> bool:
        return is_alarming(self.recent - self.snoozed, self.usual)


def is_alarming(recent: float, usual: float) -> bool:
    """Whether so many in five minutes are more than people need not look at."""
    return recent >= GROWTH_MIN and recent >= GROWTH_FACTOR * usual


def growth(now: datetime | None = None) -> list[Growth]:
    """Every queue in which jobs died in the last hour, the fastest growing first."""
    params = {"recent_s": RECENT_SECONDS, "usual_s": USUAL_SECONDS, "now": now}
    recent: dict[int, int] = {}
    usual: dict[int, float] = {}
    for rows in everywhere.ask(lambda alias: sql.rows("dlq/growth", params, alias=alias), unknown=[]):
        for queue_id, lately, usually in rows:
            recent[queue_id] = recent.get(queue_id, 0) + lately
            usual[queue_id] = usual.get(queue_id, 0.0) + usually
    names = policies.names(set(recent))
    quiet = snoozes.look(now).recent
    found = [Growth(q, names.get(q, ""), count, usual[q], quiet.get(q, 0)) for q, count in recent.items()]
    return sorted(found, key=lambda g: (g.recent, g.usual), reverse=True)


class GrowthAlarm:
    """Says once that a queue's dead letters grow, and again every ten minutes while they do."""

    def __init__(self) -> None:
        self._told: dict[int, float] = {}

    def watch(self, now: datetime | None = None) -> int:
        """One look; an event `dead_letters_growing` for each queue that began to. Returns how many were told."""
        alarming = {g.queue_id: g for g in growth(now) if g.is_alarming}
        self._told = {queue_id: at for queue_id, at in self._told.items() if queue_id in alarming}
        told = list(self._fresh(alarming))
        for one in told:
            events.emit(
                "dead_letters_growing", queue=one.queue, count=1, recent=one.recent, usual=round(one.usual, 1)
            )
        return len(told)

    def _fresh(self, alarming: dict[int, Growth]) -> Iterator[Growth]:
        for queue_id, one in alarming.items():
            if time.monotonic() - self._told.get(queue_id, float("-inf")) >= ALARM_AGAIN_SECONDS:
                self._told[queue_id] = time.monotonic()
                yield one
