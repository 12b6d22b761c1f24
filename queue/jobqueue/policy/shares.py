"""How a limit is split over shards: by what each uses and wants. Pure.

A shard always keeps what it uses; what is left goes first to those that want more, evenly, then evenly to all that
take new work, so that the next start anywhere finds room.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Use(NamedTuple):
    """One shard's part of a limit: what it may use, what it uses, and how much more it could use now."""

    share: int
    used: int
    wanted: int

    @property
    def is_starved(self) -> bool:
        return self.wanted > 0 and self.used >= self.share


def targets(
    limit: int, uses: Mapping[int, Use], first: int = 0, among: Collection[int] | None = None
) -> dict[int, int]:
    """What each shard should have; together no more than `limit`, unless more is used already.

    What nobody wants goes to the shards of `among` (None: to all).

    Among equals those from `first` on come first: whoever asks again and again varies it, so that none is always last.

    While nobody is starved and nothing is spare or owed, all stays as it is: shares that move cost round trips.
    """
    total = sum(use.share for use in uses.values())
    if total == limit and not any(use.is_starved for use in uses.values()):
        return {number: use.share for number, use in uses.items()}
    after = {number: use.used for number, use in uses.items()}
    left = limit - sum(after.values())
    wants = {number: use.wanted for number, use in uses.items()}
    while left > 0 and any(wants.values()):
        for number in sorted(wants, key=lambda number: (after[number], number < first, number)):
            if left > 0 and wants[number] > 0:
                after[number] += 1
                wants[number] -= 1
                left -= 1
    others = sorted(set(after) & set(among) if among is not None else after) or sorted(after)
    if left > 0 and others:
        whole, rest = divmod(left, len(others))
        for place, number in enumerate(others):
            after[number] += whole + (place < rest)
    return after
