"""Whether more work may come in: sizes, rates and depths against the limits that cover it. Pure: no database.

A limit covers a scope: a tenant, a tenant in a queue, a tenant in a band of a queue, or a queue over all tenants.
Callers bring what is left of each limit, read under its lock, and store what is left afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from jobsplatform.errors import JobsPlatformError, QueueFull, QuotaExceeded, RateLimited

ALL_TENANTS: Final = 0
ALL_QUEUES: Final = ""
ALL_BANDS: Final = -1
QUEUE_FULL: Final = "queue_full"

WARNING_SHARE: Final = 0.8  # of a depth: from here on a warning is told
EXACT_ROOM: Final = 1_000  # nearer to the limit than this, each admission counts: retries come back unasked
CHEAP_DEPTH: Final = 10_000  # that many waiting jobs are counted in about 2 ms
HELD_S_PER_JOB: Final = 1e-6  # a costlier count holds for a few times as long as it takes
RESTED_S_PER_JOB: Final = 1e-5
RESTED_S_MIN: Final = 1.0
TOKEN: Final = 1 - 1e-9  # a whole one, but for the rounding of many small additions

RETRY_SECONDS_MAX: Final = 300
RETRY_SECONDS_UNMEASURED: Final = 5
RETRY_SECONDS_BYTES: Final = 60  # a payload does not shrink: only another quota helps


class Scope(NamedTuple):
    """What a limit covers."""

    tenant_id: int
    queue: str
    band: int


class Ask(NamedTuple):
    """One job that a tenant wants to put in."""

    tenant_id: int
    queue: str
    band: int
    payload_bytes: int

    @property
    def scope(self) -> Scope:
        """The narrowest scope that covers it."""
        return Scope(self.tenant_id, self.queue, self.band)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Every scope that covers it; the tenant's own first."""
        return (
            Scope(self.tenant_id, ALL_QUEUES, ALL_BANDS),
            Scope(self.tenant_id, self.queue, ALL_BANDS),
            self.scope,
            Scope(ALL_TENANTS, self.queue, ALL_BANDS),
        )


@dataclass(slots=True)
class Limit:
    """One scope's limits (None: no limit) and what is left of them. `allowance` names the row that remembers it."""

    scope: Scope
    max_depth: int | None = None
    max_payload_bytes: int | None = None
    rate_per_s: float | None = None
    burst: float | None = None
    allowance: int | None = None
    tokens: float | None = None
    room: int | None = None  # None: unknown
    counted_s: float | None = None  # ago
    is_counted: bool = False  # in this admission
    taken: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)

    def must_count(self, asked: int) -> bool:
        """Whether the waiting jobs must be counted before `asked` more are judged."""
        if self.max_depth is None:
            return False
        if self.room is None or self.counted_s is None or self.counted_s < 0:
            return True
        if self.room - asked >= EXACT_ROOM:
            return self.counted_s > max(RESTED_S_MIN, self.max_depth * RESTED_S_PER_JOB)
        return self.max_depth <= CHEAP_DEPTH or self.counted_s > self.max_depth * HELD_S_PER_JOB

    def count(self, waiting: int) -> None:
        """Take note of what waits or is reserved now."""
        assert self.max_depth is not None
        self.room, self.is_counted = max(0, self.max_depth - waiting), True

    def refuses(self, ask: Ask) -> Cause | None:
        """Which of its limits keeps the ask out."""
        if self.max_payload_bytes is not None and ask.payload_bytes > self.max_payload_bytes:
            return Cause.BYTES
        if self.tokens is not None and self.tokens < TOKEN:
            return Cause.RATE
        if self.room is not None and self.room <= 0:
            return Cause.DEPTH
        return None

    def take(self) -> None:
        """Spend one job's token and place."""
        self.taken += 1
        if self.tokens is not None:
            self.tokens = max(0.0, self.tokens - 1)
        if self.room is not None:
            self.room -= 1

    @property
    def is_worth_keeping(self) -> bool:
        """Whether what is left must be stored: tokens or room that later admissions rely on, or a costly count."""
        relied_on = self.tokens is not None or (self.max_depth or 0) > EXACT_ROOM
        return (relied_on and self.taken > 0) or (self.is_counted and (self.max_depth or 0) > CHEAP_DEPTH)

    @property
    def has_reached_warning(self) -> bool:
        """Whether this admission brought the depth to the warning's share of the limit."""
        if self.max_depth is None or self.room is None or not self.taken:
            return False
        depth = self.max_depth - self.room
        return depth - self.taken < self.max_depth * WARNING_SHARE <= depth


class Cause(Enum):
    """Which limit refused."""

    BYTES = "max_payload_bytes"
    RATE = "enqueue_rate_per_s"
    DEPTH = "max_depth"


class Admitted(NamedTuple):
    """The limits that a job was charged to."""

    limits: tuple[Limit, ...]


class Refused(NamedTuple):
    """Which limit keeps a job out; `place` counts those of this call that it turned away, from 1."""

    limit: Limit
    cause: Cause
    place: int

    @property
    def named(self) -> str:
        """The limit's name, as quotas have it; a queue's own depth is no tenant's limit."""
        return QUEUE_FULL if self.limit.scope.tenant_id == ALL_TENANTS else self.cause.value


Verdict = Admitted | Refused


def judge(asks: Sequence[Ask], limits: Mapping[Scope, Limit]) -> list[Verdict]:
    """Admit or refuse each ask in order, spending from the limits; a refused ask takes nothing from any."""
    return [_judge(ask, [limits[scope] for scope in ask.scopes if scope in limits]) for ask in asks]


def _judge(ask: Ask, covering: Iterable[Limit]) -> Verdict:
    limits = tuple(covering)
    for limit in limits:
        cause = limit.refuses(ask)
        if cause is not None:
            limit.refused += 1
            return Refused(limit, cause, limit.refused)
    for limit in limits:
        limit.take()
    return Admitted(limits)


def error(refused: Refused, drain_per_s: float | None = None) -> JobsPlatformError:
    """The refusal on the wire; `drain_per_s` is how fast the limit's scope is drained now (None: not measured)."""
    limit, cause, place = refused
    if cause is Cause.BYTES:
        detail = f"The tenant's payloads may have {limit.max_payload_bytes} bytes{_where(limit.scope)}."
        return QuotaExceeded(detail, retry_after=RETRY_SECONDS_BYTES)
    if cause is Cause.RATE:
        assert limit.rate_per_s is not None
        if limit.rate_per_s == 0:  # this shard has no share of it at the moment
            detail = f"The tenant's rate is in use on other shards{_where(limit.scope)}."
            return RateLimited(detail, retry_after=1)
        wait_s = (place - (limit.tokens or 0)) / limit.rate_per_s
        detail = f"The tenant may enqueue {limit.rate_per_s:g} jobs a second{_where(limit.scope)}."
        return RateLimited(detail, retry_after=_seconds(wait_s))
    wait_s = place / drain_per_s if drain_per_s else RETRY_SECONDS_UNMEASURED
    if limit.scope.tenant_id == ALL_TENANTS:
        detail = f"{limit.max_depth} jobs may wait in queue {limit.scope.queue}, and do."
        return QueueFull(detail, retry_after=_seconds(wait_s))
    detail = f"{limit.max_depth} jobs of the tenant may wait{_where(limit.scope)}, and do."
    return QuotaExceeded(detail, retry_after=_seconds(wait_s))


def _where(scope: Scope) -> str:
    if scope.queue == ALL_QUEUES:
        return ""
    band = "" if scope.band == ALL_BANDS else f"band {scope.band} of "
    return f" in {band}queue {scope.queue}"


def _seconds(wait_s: float) -> int:
    return min(RETRY_SECONDS_MAX, max(1, math.ceil(wait_s)))
