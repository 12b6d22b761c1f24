"""The retry budget of a queue: retries are at most a share of the first attempts in a window, plus a burst. Pure.

A spent budget delays retries and never ends one: what is due waits until first attempts earn more, or retries leave
the window. The statement `promote` computes the same; a test compares them.
"""

from __future__ import annotations

import math


def retries_left(*, share: float, burst: int, firsts: int, retries: int) -> int:
    """How many retries may be let through now, after so many first attempts and retries in the window."""
    return max(0, math.floor(share * firsts + burst) - retries)
