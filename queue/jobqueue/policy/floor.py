"""The reserved share of bulk work: a credit that acts only where strict bands and weights give bulk less than it.

Every start adds the share, every bulk start takes 1 off, not below 0; when the next start would complete a whole one,
it is bulk's. Weighted starts alone never complete it where the weights give bulk its share, so that they keep their
proportions. Each claiming process keeps its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from jobqueue.policy.types import Policy

EARLY: Final = 1.05  # a window that cuts the cycle anywhere still holds the whole share
_FULL: Final = 1.0 - 1e-9  # twenty times 0.05 is one


class Split(NamedTuple):
    """Of a claim's opportunities: how many strict bands may use first, and how many are owed to bulk bands."""

    strict: int
    owed: int


@dataclass(frozen=True, slots=True)
class Floor:
    """The credit of one process for one queue and class of claims, 0 to 1."""

    credit: float = 0.0

    def split(self, policy: Policy, limit: int) -> Split:
        """If strict work took every opportunity, which of `limit` would be bulk's."""
        step, credit, owed = _step(policy), self.credit, 0
        for _ in range(limit if step > 0 else 0):
            credit += step
            if credit >= _FULL:
                owed, credit = owed + 1, credit - 1.0
        return Split(limit - owed, owed)

    def free(self, policy: Policy, limit: int) -> int:
        """How many of `limit` starts strict bands may have before the first that is bulk's."""
        step, credit = _step(policy), self.credit
        for count in range(limit if step > 0 else 0):
            credit += step
            if credit >= _FULL:
                return count
        return limit

    def ahead(self, policy: Policy, limit: int, *, is_flooded: bool) -> Floor:
        """What others see while `limit` starts are under way: bulk's are taken off, and where strict work is known to
        take the rest, those have earned.
        """
        earned = limit * _step(policy) if is_flooded else 0.0
        return self.moved(earned - self.split(policy, limit).owed)

    def moved(self, by: float) -> Floor:
        """The credit after starts beside others. What several add at once may exceed 1 for a while, or be owed."""
        return Floor(self.credit + by)

    def owed(self, policy: Policy, limit: int, strict: int) -> int:
        """How many of `limit` starts bulk is owed when strict work took that many and the weights share the rest."""
        step = _step(policy)
        if not _weights_suffice(policy):
            return self.split(policy, limit).owed
        # What claims under way are expected to take may leave less than nothing.
        return max(0, int(self.credit + (strict + 1) * step + 1e-9)) if step > 0 else 0

    def after(self, policy: Policy, *, strict: int, weighted: int, bulk: int) -> Floor:
        """The credit after so many strict and weighted starts, `bulk` of the latter in bulk bands."""
        step = _step(policy)
        credit = self.credit + weighted * step - bulk
        if _weights_suffice(policy):
            credit = min(credit, max(self.credit, 1.0 - step - 1e-6))
        return Floor(min(1.0, max(0.0, credit + strict * step)))


def _step(policy: Policy) -> float:
    return min(1.0, policy.reserved_share * EARLY)


def _weights_suffice(policy: Policy) -> bool:
    """Whether the weights alone give bulk bands the reserved share."""
    weighted = [band for band in policy.bands if not band.strict]
    total = sum(band.weight for band in weighted)
    bulk = sum(band.weight for band in weighted if band.bulk)
    return bulk >= policy.reserved_share * total
