"""Weighted rotations: whose turn is next among those that can use it. An absent one lends its turn, gets no debt back.

Deficit round robin at unit cost (Shreedhar and Varghese, 1996): a visit grants `weight` opportunities, used one after
the other; what is left when its owner has nothing to do is forfeited.
"""

from __future__ import annotations

from collections.abc import Collection

from jobqueue.policy.types import Turn


class Rotation:
    """A rotation in use. What an opportunity changes depends on who used it alone, so that it can be replayed."""

    __slots__ = ("key", "left")

    def __init__(self, turn: Turn | None) -> None:
        self.key: int | None = None if turn is None else turn.key
        self.left = 0 if turn is None else turn.left

    def next(self, eligible: Collection[int]) -> int:
        """The key that uses the next opportunity. Raises ValueError when none is eligible."""
        if self.left > 0 and self.key in eligible:
            return self.key  # type: ignore[return-value]  # left > 0 only with a key
        if self.key is None:
            return min(eligible)
        return min((key for key in eligible if key > self.key), default=None) or min(eligible)

    def use(self, key: int, weight: int) -> None:
        """`key` used an opportunity."""
        if self.key == key and self.left > 0:
            self.left -= 1
        else:
            self.key, self.left = key, max(1, weight) - 1

    def is_lent_to(self, key: int, everyone: Collection[int]) -> bool:
        """Whether `key` would use an opportunity that somebody before it in the cycle cannot use."""
        if self.left > 0:
            return self.key != key and self.key in everyone
        if self.key is None:
            return key != min(everyone)
        return key != min((other for other in everyone if other > self.key), default=min(everyone))

    @property
    def turn(self) -> Turn | None:
        return None if self.key is None else Turn(self.key, self.left)
