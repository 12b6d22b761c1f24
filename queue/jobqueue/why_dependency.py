"""What of a job's dependency holds it back, in words."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from jobqueue.policy.breaker import BreakerState
from jobqueue.types import Gate
from jobsplatform import sql


class _Facts(NamedTuple):
    """The row of `why_dependency`."""

    is_held_open: bool
    breaker: str
    probe_at: datetime | None
    has_probe: bool
    limit_now: float | None
    running: int
    rate_per_s: float | None
    frees_at: datetime | None
    is_ramping: bool | None
    starts_left: int


def gates(name: str, alias: str, at: datetime) -> list[Gate]:
    """The gates `breaker`, `dependency` and `rate` that hold jobs of this dependency (empty: none) at this instant."""
    rows = sql.rows("jobqueue/why_dependency", {"name": name, "now": at}, alias=alias) if name else []
    if not rows:
        return []
    facts = _Facts(*rows[0])
    if facts.is_held_open or facts.breaker != BreakerState.CLOSED:
        return [_breaker(name, facts)] if facts.starts_left <= 0 else []
    found = []
    if facts.limit_now is not None and facts.running >= int(facts.limit_now):
        detail = f"Dependency {name} bears {int(facts.limit_now)} jobs at once, and {facts.running} run."
        found.append(Gate("dependency", detail))
    if facts.frees_at is not None:
        detail = f"Dependency {name} bears {facts.rate_per_s:g} starts a second."
        found.append(Gate("rate", detail, facts.frees_at))
    if not found and facts.starts_left <= 0 and facts.is_ramping:
        detail = f"Dependency {name} has recovered and is given its work step by step."
        found.append(Gate("rate", detail))
    return found


def _breaker(name: str, facts: _Facts) -> Gate:
    if facts.is_held_open:
        return Gate("breaker", f"An operator holds the breaker of {name} open.")
    if facts.breaker == BreakerState.OPEN:
        return Gate("breaker", f"The breaker of {name} is open; one job probes then.", facts.probe_at)
    return Gate("breaker", f"The breaker of {name} is half open: one job probes it now.")
