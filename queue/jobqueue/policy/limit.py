"""How many calls of a dependency may start now: its concurrency limit, its rate, the ramp after an outage. Pure.

The concurrency limit grows by one step for each full round of successes and is halved by overload, once for all calls
that were under way. The rate is a window and no bucket: in any `burst / rate` seconds at most `burst` calls start.
The statement `_dependency_rooms` computes the same; a test compares them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

LIMIT_MIN = 1.0
RAMP_STEP_S = 5.0  # the ramp's rate is raised that often
RAMP_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A concurrency limit: `now` between 1 and `most`; both None: no limit."""

    now: float | None = None
    most: int | None = None
    halved_at: datetime | None = None

    def after(
        self, *, succeeded: int, overloaded: int, overloaded_from: datetime | None, at: datetime
    ) -> Limit:
        """The limit after so many successes, and overloads of calls of which the latest began at `overloaded_from`.

        Overloads of calls that began before the limit was last halved tell nothing new.
        """
        if self.most is None:
            return Limit()
        value = float(self.most) if self.now is None else min(self.now, float(self.most))
        is_news = overloaded_from is not None and (self.halved_at is None or overloaded_from > self.halved_at)
        if overloaded > 0 and is_news:
            return Limit(max(LIMIT_MIN, value / 2), self.most, at)
        return Limit(grown(value, self.most, succeeded), self.most, self.halved_at)


def grown(limit: float, most: int, successes: int) -> float:
    """The limit after `successes`: each adds 1/limit, so that one round of `limit` calls adds one step.

    In closed form, so that two batches give what one gives.
    """
    return min(float(most), math.sqrt(limit * limit + 2 * successes))


def burst_of(rate_per_s: float, burst: int | None) -> int:
    """Starts that one window of the rate holds."""
    return burst if burst is not None else max(1, math.ceil(rate_per_s))


def window_s(rate_per_s: float, burst: int | None) -> float:
    """The length of the rate's window in seconds."""
    return burst_of(rate_per_s, burst) / rate_per_s


def ramp_at(ramp_per_s: int, elapsed_s: float) -> int:
    """Starts a second, so long after the recovery: `ramp_per_s` more every five seconds."""
    return ramp_per_s * (1 + math.floor(max(0.0, elapsed_s) / RAMP_STEP_S))


def left(most: float, used: int) -> int:
    """What is left of a whole number of starts."""
    return max(0, math.floor(most) - used)
