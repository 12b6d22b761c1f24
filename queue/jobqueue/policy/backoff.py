"""When a failed job is tried again: exponential with jitter, never an overflow."""

from __future__ import annotations

DOUBLINGS_MAX = 62  # 2**62 s is beyond every cap; the exponent stays small at any attempt


def ceiling_s(attempt: int, *, base_s: float, cap_s: float) -> float:
    """The longest wait after `attempt` (1 = the first) in seconds: min(cap, base · 2^(attempt − 1))."""
    return min(cap_s, base_s * 2.0 ** min(attempt - 1, DOUBLINGS_MAX))


def delay_s(attempt: int, *, base_s: float, cap_s: float, jitter: float, retry_after_s: float = 0) -> float:
    """The wait in seconds: `jitter` in [0.5, 1] of the ceiling, so uniform in [d/2, d]; `retry_after_s` is a floor."""
    return max(retry_after_s, jitter * ceiling_s(attempt, base_s=base_s, cap_s=cap_s))
