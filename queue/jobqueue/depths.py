"""How much waited in the levels of queues, and for how long, over the last hours: by samples of about one a minute.

The dispatcher takes the samples (`upkeep.sample_depths`). Where none was taken nothing is known, and nothing is shown;
where one found nothing, nothing waited. A shard that cannot be reached is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobqueue.models import Queue
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError

ROWS_MAX: Final = 20_000  # samples that one look reads on a shard: about 20 ms


@dataclass(frozen=True, slots=True)
class Span:
    """How far back a look goes, and how long each of its steps is."""

    name: str
    words: str
    seconds: int
    step_s: int


SPANS: Final = {
    span.name: span
    for span in (
        Span("hour", "last hour", 3_600, 60),
        Span("6h", "last 6 hours", 6 * 3_600, 300),
        Span("day", "last 24 hours", 24 * 3_600, 900),
    )
}
SPAN_DEFAULT: Final = SPANS["hour"]


@dataclass(frozen=True, slots=True)
class Level:
    """A band of a queue over the steps of a look: the most that was ready, the longest wait. None: not looked at."""

    queue: str
    band: str
    ready: Sequence[float | None]
    age_s: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Course:
    """The levels in which anything waited, the deepest first; `at`: the beginnings of the steps in Unix seconds."""

    span: Span
    at: Sequence[int]
    levels: Sequence[Level]
    is_capped: bool


def span_of(name: str | None) -> Span:
    """The span of that name; the shortest for any other."""
    return SPANS.get(name or "", SPAN_DEFAULT)


def of_tenant(tenant_id: int, span: Span = SPAN_DEFAULT, *, now: datetime | None = None) -> Course:
    """What waited of one tenant, and nobody else."""
    assert tenant_id > 0, "tenant 0 stands for all together"
    return _course("jobqueue/depths_of_tenant", {"tenant_id": tenant_id, "now": now}, span)


def of_queue(queue_id: int, span: Span = SPAN_DEFAULT, *, now: datetime | None = None) -> Course:
    """What waited in a queue, of all tenants together."""
    return _course("jobqueue/depths_of_queue", {"queue_id": queue_id, "now": now}, span)


_Sample = tuple[int, float, bool]
_Found = dict[tuple[int, int], dict[int, _Sample]]


def _course(statement: str, params: Mapping[str, Any], span: Span) -> Course:
    whole = {**params, "since_s": span.seconds, "step_s": span.step_s, "rows_max": ROWS_MAX}
    found: _Found = defaultdict(dict)
    looked: set[int] = set()
    for alias in database.aliases().values():
        try:
            rows = sql.rows(statement, whole, alias=alias)
        except JobsPlatformError:
            continue
        _add(found, looked, rows)
    at = _steps(looked, span)
    queues = Queue.objects.in_bulk({queue_id for queue_id, _ in found})
    levels = [
        _level(queues[queue_id], band, samples, at, looked)
        for (queue_id, band), samples in sorted(found.items(), key=_depth, reverse=True)
        if queue_id in queues
    ]
    is_capped = any(capped for samples in found.values() for _, _, capped in samples.values())
    return Course(span, at, levels, is_capped)


def _add(found: _Found, looked: set[int], rows: Iterable[sql.Row]) -> None:
    """Add one shard's samples to those of the others: jobs are together, and the longest wait is the longest of all."""
    for step, queue_id, band, ready, age_s, is_capped in rows:
        at = int(step.timestamp())
        looked.add(at)
        if queue_id is not None:
            before = found[queue_id, band].get(at, (0, 0.0, False))
            found[queue_id, band][at] = (before[0] + ready, max(before[1], age_s), before[2] or is_capped)


def _steps(looked: set[int], span: Span) -> list[int]:
    """Every step from the first that was looked at to the last, so that what is missing is a gap."""
    return list(range(min(looked), max(looked) + 1, span.step_s)) if looked else []


def _depth(pair: tuple[tuple[int, int], dict[int, _Sample]]) -> int:
    return max(ready for ready, _, _ in pair[1].values())


def _level(
    queue: Queue, band: int, samples: dict[int, _Sample], at: Sequence[int], looked: set[int]
) -> Level:
    nothing: _Sample = (0, 0.0, False)
    taken = [samples.get(step, nothing) if step in looked else None for step in at]
    name = str(queue.bands[band]["name"]) if band < len(queue.bands) else f"band {band}"
    return Level(
        queue.name,
        name,
        [None if one is None else float(one[0]) for one in taken],
        [None if one is None else round(one[1], 1) for one in taken],
    )
