"""How full a queue is, for dashboards and autoscalers: at most two seconds old, and bounded in what it reads."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from jobqueue.policies import QueuePolicy
from jobqueue.types import Scope
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, Unavailable

COUNT_MAX: Final = 10_000  # a band and shard: about 2 ms of index reading
CACHE_SECONDS: Final = 1.0
CACHE_MAX: Final = 10_000
CATCH_UP_SECONDS: Final = 60  # in which the desired workers would work off what is runnable
UNMEASURED_MS: Final = 1_000.0  # service time that is assumed before any is measured


@dataclass(slots=True)
class Stats:
    """One queue, over its shards. Lists have one element a band; ages in seconds, None: nothing waits."""

    visible: list[int]
    oldest_age_s: list[float | None]
    scheduled: int = 0
    leased: int = 0
    dead: int = 0
    is_capped: bool = False
    mean_ms: float | None = None
    shards: dict[int, bool] = field(default_factory=dict)  # shard → was it reached
    as_of: datetime | None = None

    @property
    def runnable(self) -> int:
        return sum(self.visible)

    @property
    def backlog(self) -> int:
        """What waits, runnable or not yet."""
        return self.runnable + self.scheduled

    @property
    def oldest_s(self) -> float:
        return max((age for age in self.oldest_age_s if age is not None), default=0.0)

    @property
    def desired_workers(self) -> int:
        """Hands, each with one job at a time, that keep what runs running and work the rest off in a minute."""
        mean_s = (UNMEASURED_MS if self.mean_ms is None else self.mean_ms) / 1_000
        return min(
            self.leased + self.runnable, self.leased + math.ceil(self.runnable * mean_s / CATCH_UP_SECONDS)
        )


_cache: dict[tuple[int, int | None], tuple[float, Stats]] = {}


def of(queue: QueuePolicy, scope: Scope, *, now: datetime | None = None) -> Stats:
    """The queue's numbers, of the scope's tenant alone if it has one. Raises Unavailable when no shard answers."""
    key = (queue.id, scope.tenant_id)
    held = _cache.get(key)
    if now is None and held is not None and held[0] > time.monotonic():
        return held[1]
    stats = _read(queue, scope, now)
    if now is None:
        if len(_cache) >= CACHE_MAX:
            _cache.clear()
        _cache[key] = (time.monotonic() + CACHE_SECONDS, stats)
    return stats


def forget() -> None:
    """Drop what is remembered."""
    _cache.clear()


def _read(queue: QueuePolicy, scope: Scope, now: datetime | None) -> Stats:
    bands = list(range(len(queue.bands)))
    stats = Stats([0 for _ in bands], [None for _ in bands])
    params = {
        "queue_id": queue.id,
        "tenant_id": scope.tenant_id,
        "bands": bands,
        "bound": COUNT_MAX,
        "now": now,
    }
    for number, alias in database.aliases().items():
        try:
            rows = sql.rows("jobqueue/queue_stats", params, alias=alias)
        except JobsPlatformError:
            stats.shards[number] = False
            continue
        stats.shards[number] = True
        _add(stats, rows)
    if not any(stats.shards.values()):
        raise Unavailable("No shard can be reached.")
    return stats


def _add(stats: Stats, rows: list[sql.Row]) -> None:
    for band, visible, age_s, *_ in rows:
        stats.visible[band] += visible
        ages = [age for age in (age_s, stats.oldest_age_s[band]) if age is not None]
        stats.oldest_age_s[band] = max(0.0, *ages) if ages else None
    *_, scheduled, leased, dead, has_more_dead, mean_ms, at = rows[0]
    stats.scheduled, stats.leased, stats.dead = (
        stats.scheduled + scheduled,
        stats.leased + leased,
        stats.dead + dead,
    )
    most = max(scheduled, leased, *(row[1] for row in rows))
    stats.is_capped = stats.is_capped or has_more_dead or most >= COUNT_MAX
    stats.mean_ms = mean_ms if stats.mean_ms is None else max(stats.mean_ms, mean_ms or 0.0)
    stats.as_of = at if stats.as_of is None else min(stats.as_of, at)
