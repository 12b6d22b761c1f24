"""What a tenant sees of itself: what waits and runs, what was done lately, what it was entitled to and received.

The invariant: every figure is the tenant's own. Nothing here tells how many others there are, or what they do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from jobqueue.models import Queue
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, Unavailable

GROUPS_MAX: Final = 500  # pairs of queue and band
COUNT_MAX: Final = 10_000  # a pair and shard: about 2 ms of index reading
COURSE_SECONDS: Final = 6 * 3_600
STEP_SECONDS: Final = 600
SHARE_SECONDS: Final = 900
LANES_MAX: Final = 2_000  # of a queue and band, for the fair share


@dataclass(frozen=True, slots=True)
class Depth:
    """One band of a queue, of one tenant; counts go no further than `COUNT_MAX` a shard."""

    queue: str
    band: str
    ready: int
    scheduled: int
    running: int
    age_s: float | None
    objective_s: float | None

    @property
    def is_late(self) -> bool:
        """Whether its oldest ready job is older than the queue aims at."""
        return None not in (self.age_s, self.objective_s) and (self.age_s or 0) > (self.objective_s or 0)

    @property
    def is_capped(self) -> bool:
        return max(self.ready, self.scheduled, self.running) >= COUNT_MAX


@dataclass(frozen=True, slots=True)
class Standing:
    """All bands of a tenant that have ever held a job; `unknown_shards` could not be reached."""

    depths: list[Depth]
    unknown_shards: list[int]


def standing(tenant_id: int, *, now: datetime | None = None) -> Standing:
    """What waits and runs of a tenant. Raises Unavailable when no shard answers."""
    params = {"tenant_id": tenant_id, "groups": GROUPS_MAX, "bound": COUNT_MAX, "now": now}
    counts: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    ages: dict[tuple[int, int], float] = {}
    unknown = []
    for number, alias in database.aliases().items():
        try:
            rows = sql.rows("jobqueue/tenant_depths", params, alias=alias)
        except JobsPlatformError:
            unknown.append(number)
            continue
        for queue_id, band, *found, age_s in rows:
            counts[queue_id, band] = [a + b for a, b in zip(counts[queue_id, band], found, strict=True)]
            if age_s is not None:
                ages[queue_id, band] = max(age_s, ages.get((queue_id, band), 0.0))
    if len(unknown) == len(database.aliases()):
        raise Unavailable("No shard can be reached.")
    queues = _queues({queue_id for queue_id, _ in counts})
    depths = [
        _depth(queues[queue_id], band, found, ages.get((queue_id, band)))
        for (queue_id, band), found in counts.items()
        if queue_id in queues
    ]
    order = {queue.name: place for place, queue in enumerate(sorted(queues.values(), key=lambda q: q.name))}
    return Standing(sorted(depths, key=lambda d: order[d.queue]), unknown)


def _depth(queue: Queue, band: int, found: list[int], age_s: float | None) -> Depth:
    name = _band(queue, band)
    objective_s = (queue.age_objective_s or {}).get(name)
    ready, scheduled, running = found
    return Depth(queue.name, name, ready, scheduled, running, age_s, objective_s)


def _band(queue: Queue, band: int) -> str:
    return str(queue.bands[band]["name"]) if band < len(queue.bands) else f"band {band}"


def _queues(queue_ids: set[int]) -> dict[int, Queue]:
    return Queue.objects.in_bulk(queue_ids)


# Lately


@dataclass(frozen=True, slots=True)
class Step:
    """What happened in ten minutes."""

    at: datetime
    started: int
    succeeded: int
    failed: int
    dead: int
    service_ms: int


def course(tenant_id: int, *, seconds: int = COURSE_SECONDS, now: datetime | None = None) -> list[Step]:
    """What a tenant's jobs did, step by step, oldest first; steps in which nothing happened are missing.

    The newest second or two are not folded yet. A shard that cannot be reached is left out.
    """
    params = {"tenant_id": tenant_id, "since_s": seconds, "step_s": STEP_SECONDS, "now": now}
    sums: dict[datetime, list[int]] = defaultdict(lambda: [0] * 5)
    for alias in database.aliases().values():
        try:
            rows = sql.rows("jobqueue/tenant_course", params, alias=alias)
        except JobsPlatformError:
            continue
        for at, *found in rows:
            sums[at] = [a + b for a, b in zip(sums[at], found, strict=True)]
    return [Step(at, *sums[at]) for at in sorted(sums)]


# Fair share


@dataclass(frozen=True, slots=True)
class Share:
    """What a tenant was entitled to and received in a band while its work waited there; starts, or seconds of slots."""

    queue: str
    band: str
    watched_s: float
    unit: str
    entitled: float
    received: float

    @property
    def ratio(self) -> float | None:
        """1: exactly what it was entitled to; None: nothing could be had."""
        return self.received / self.entitled if self.entitled > 0 else None


def fair_shares(tenant_id: int, *, now: datetime | None = None) -> list[Share]:
    """The statement for every band in which the tenant has waited for over a minute; none waits: an empty list.

    Over several shards a band is watched on each where the tenant waits. A shard that is away is left out.
    """
    params = {"tenant_id": tenant_id, "window_s": SHARE_SECONDS, "lanes": LANES_MAX, "now": now}
    sums: dict[tuple[int, int], list[float]] = {}
    for alias in database.aliases().values():
        try:
            rows = sql.rows("jobqueue/fair_share", params, alias=alias)
        except JobsPlatformError:
            continue
        for queue_id, band, watched_s, *found in rows:
            held = sums.setdefault((queue_id, band), [0.0] * 5)
            held[0] = max(held[0], watched_s)
            held[1:] = [a + b for a, b in zip(held[1:], found, strict=True)]
    queues = _queues({queue_id for queue_id, _ in sums})
    return [
        _share(queues[queue_id], band, found)
        for (queue_id, band), found in sorted(sums.items())
        if queue_id in queues
    ]


def _share(queue: Queue, band: int, found: list[float]) -> Share:
    watched_s, entitled, received, entitled_ms, received_ms = found
    if queue.cost_model == "service_time":
        return Share(
            queue.name, _band(queue, band), watched_s, "s of slots", entitled_ms / 1_000, received_ms / 1_000
        )
    return Share(queue.name, _band(queue, band), watched_s, "starts", entitled, received)
