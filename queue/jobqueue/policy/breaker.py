"""The breaker of a dependency: closed, open, half open with one probe, closed again. Pure.

    closed ──share of ≥ calls failed──▶ open ──probe_after_s──▶ half open ──the probe succeeded──▶ closed, ramping
                                         ▲                        │
                                         └──the probe failed──────┘   a probe that is lost has failed

While open nothing starts; while half open one job does. A probe that ended without a call (released, cancelled, its
payload refused) says nothing: another job probes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Probe(StrEnum):
    """What became of the half-open breaker's one job."""

    NONE = "none"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SILENT = "silent"  # it ended and told nothing of the dependency


@dataclass(frozen=True, slots=True)
class Rules:
    """`share` None: the breaker never opens by itself. Times in seconds."""

    share: float | None = 0.5
    calls: int = 20
    window_s: float = 60
    probe_after_s: float = 30
    ramp_s: float = 60


@dataclass(frozen=True, slots=True)
class Breaker:
    """`counted_from`: calls before it do not count; `probe_at`: open until then; `ramp_from`: when it recovered."""

    state: BreakerState = BreakerState.CLOSED
    counted_from: datetime | None = None
    probe_at: datetime | None = None
    has_probe: bool = False
    ramp_from: datetime | None = None

    def window_start(self, rules: Rules, now: datetime) -> datetime:
        """From when on calls count."""
        start = now - timedelta(seconds=rules.window_s)
        return start if self.counted_from is None else max(start, self.counted_from)

    def judged(self, rules: Rules, *, calls: int, failures: int, probe: Probe, now: datetime) -> Breaker:
        """The breaker after so many calls and failures in its window, and the news of its probe."""
        if self.state is BreakerState.CLOSED:
            return (
                self.opened(rules, now) if _has_tripped(rules, calls, failures) else self._ramped(rules, now)
            )
        if self.state is BreakerState.OPEN:
            is_over = self.probe_at is None or now >= self.probe_at
            return Breaker(BreakerState.HALF_OPEN, self.counted_from) if is_over else self
        if probe is Probe.SUCCEEDED:
            return closed(now)
        if probe is Probe.FAILED:
            return self.opened(rules, now)
        return replace(self, has_probe=probe is Probe.RUNNING)

    def _ramped(self, rules: Rules, now: datetime) -> Breaker:
        """Closed, and no longer ramping once the ramp is over."""
        is_over = self.ramp_from is not None and now >= self.ramp_from + timedelta(seconds=rules.ramp_s)
        return replace(self, ramp_from=None) if is_over else self

    def opened(self, rules: Rules, now: datetime) -> Breaker:
        """Open from now on, until the next probe."""
        return Breaker(BreakerState.OPEN, self.counted_from, now + timedelta(seconds=rules.probe_after_s))


def closed(now: datetime) -> Breaker:
    """A breaker that has just recovered: earlier calls count no more, and starts ramp up."""
    return Breaker(BreakerState.CLOSED, now, ramp_from=now)


def _has_tripped(rules: Rules, calls: int, failures: int) -> bool:
    return rules.share is not None and calls >= rules.calls and failures >= rules.share * calls
