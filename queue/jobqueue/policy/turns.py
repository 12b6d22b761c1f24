"""Weighted rotations: whose turn is next among those that can use it. An absent one lends its turn, gets no debt back.

Deficit round robin at unit cost (Shreedhar and Varghese, 1996): a visit grants `weight` opportunities, used one after
the other; what is left when its owner has nothing to do is forfeited.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence

from jobqueue.policy.types import Turn


class Rotation:
    """A rotation in use. What an opportunity changes depends on who used it alone, so that it can be replayed."""

    __slots__ = ("key", "left")

    def __init__(self, turn: Turn | None) -> None:
        self.key: int | None = None if turn is None else turn.key
        self.left = 0 if turn is None else turn.left

    def next(self, eligible: Sequence[int], present: Container[int] | None = None) -> int:
        """The key that uses the next opportunity, of those `eligible` (in rising order; `present`: the same, to look
        up). Raises IndexError when none is eligible.
        """
        key = self.key
        if key is None:
            return eligible[0]
        if self.left > 0 and key in (eligible if present is None else present):
            return key
        place = bisect_right(eligible, key)
        return eligible[place] if place < len(eligible) else eligible[0]

    def use(self, key: int, weight: int) -> None:
        """`key` used an opportunity. What is left never passes its weight, which may have been lowered meanwhile."""
        granted = min(self.left, max(1, weight)) if self.key == key and self.left > 0 else max(1, weight)
        self.key, self.left = key, granted - 1

    def is_lent_to(self, key: int, everyone: Sequence[int]) -> bool:
        """Whether `key` would use an opportunity that somebody before it in the cycle cannot use."""
        return self.next(everyone) != key

    @property
    def turn(self) -> Turn | None:
        return None if self.key is None else Turn(self.key, self.left)
