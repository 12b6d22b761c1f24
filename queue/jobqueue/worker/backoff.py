"""Waits between tries that failed: doubling, bounded, with jitter so that a fleet does not return in step."""

from __future__ import annotations

import random


class Backoff:
    """Seconds to wait after each failure in a row."""

    def __init__(self, *, first_s: float, cap_s: float) -> None:
        self.first_s = first_s
        self.cap_s = cap_s
        self.failures = 0

    def fail(self) -> float:
        """Count a failure and answer how long to wait: uniform in [d/2, d]."""
        delay_s = min(self.cap_s, self.first_s * 2 ** min(self.failures, 30))
        self.failures += 1
        return random.uniform(delay_s / 2, delay_s)

    def reset(self) -> None:
        self.failures = 0
