"""The parts of one claim and their order: strict bands first, then what is owed to bulk bands, then the weights.

The claim's transactions and the simulation both go through `in_parts`; only how a part is taken differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from jobqueue.policy.floor import Floor, Split
from jobqueue.policy.types import Chosen, Policy, Take


class Part(StrEnum):
    """Each part is planned apart; the floor's part belongs to the weighted bands."""

    STRICT = "strict"
    FLOOR = "floor"
    WEIGHTED = "weighted"


class Started(Protocol):
    """Something that was started."""

    @property
    def take(self) -> Take | None: ...


S = TypeVar("S", bound=Started)


def in_parts(
    policy: Policy, floor: Floor, limit: int, bands: Sequence[int], take: Callable[[Part, int], list[S]]
) -> tuple[list[S], Floor]:
    """Start up to `limit` jobs of `bands` by calling `take` part by part; returns them and the floor afterwards."""
    strict = policy.strict_bands & set(bands)
    bulk = policy.bulk_bands & set(bands)
    if not strict:
        return take(Part.WEIGHTED, limit), floor
    split = floor.split(policy, limit) if bulk else Split(limit, 0)
    started = take(Part.STRICT, split.strict) if split.strict else []
    is_flooded = len(started) == split.strict
    owed = split.owed if is_flooded else floor.owed(policy, limit, len(started)) if bulk else 0
    if owed:
        of_floor = take(Part.FLOOR, min(owed, limit - len(started)))
        floor = floor if of_floor else Floor()  # nothing bulk was there: idleness earns nothing
        started += of_floor
        if is_flooded and len(started) < limit:
            started += take(Part.STRICT, limit - len(started))
    if len(started) < limit and len(strict) < len(set(bands)):
        started += take(Part.WEIGHTED, limit - len(started))
    return started, _spent(policy, floor, bulk, started)


def _spent(policy: Policy, floor: Floor, bulk: frozenset[int], started: Sequence[Started]) -> Floor:
    takes = [one.take for one in started if one.take is not None]
    strict = sum(take.chosen is Chosen.STRICT for take in takes)
    return floor.after(
        policy, strict=strict, weighted=len(takes) - strict, bulk=sum(take.band in bulk for take in takes)
    )
