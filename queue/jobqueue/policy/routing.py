"""Over several shards: which band is next, and which shards it is claimed from. Pure; claims and simulation call it.

A shard that holds only the least urgent work must not lend its turns to it while another holds urgent work: so bands
take turns over the sum of what all shards say they have. What a shard says may be old; who claims from it and gets
less than it said strikes it off and asks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jobqueue.policy.turns import Rotation
from jobqueue.policy.types import Chosen, Policy, Turn

PARALLEL_MAX: Final = 3  # shards that are asked at once for one band
STALE_S: Final = 0.1  # what a shard said longer ago is not known any more


class Waiting(NamedTuple):
    """What a shard says of one band: how many jobs wait (at least), and since when the first does (epoch seconds)."""

    jobs: int
    since: float


class Aim(NamedTuple):
    """A claim on one shard: so many jobs of this band, and why."""

    shard: int
    band: int
    limit: int
    chosen: Chosen


@dataclass
class Heads:
    """What the shards say of one queue and class of claims: shard → band → what waits.

    Among shards with equally old heads those from `first` on come first: who claims again and again varies it.
    """

    by_shard: dict[int, dict[int, Waiting]] = field(default_factory=dict)
    first: int = 0

    def bands(self, among: Collection[int]) -> list[int]:
        """The bands of `among` in which anything waits anywhere, most urgent first."""
        return sorted({band for bands in self.by_shard.values() for band in bands if band in among})

    def total(self, band: int) -> int:
        return sum(bands[band].jobs for bands in self.by_shard.values() if band in bands)

    def shards_of(self, band: int) -> list[int]:
        """The shards where the band waits, that of the oldest head first."""
        found = [
            (bands[band].since, shard < self.first, shard)
            for shard, bands in self.by_shard.items()
            if band in bands
        ]
        return [shard for *_, shard in sorted(found)]

    def took(self, aim: Aim, got: int) -> None:
        """A shard gave so many of what was asked: less means that it has no more."""
        waiting = self.by_shard.get(aim.shard, {}).get(aim.band)
        if waiting is None:
            return
        if got < aim.limit or waiting.jobs <= got:
            del self.by_shard[aim.shard][aim.band]
        else:
            self.by_shard[aim.shard][aim.band] = waiting._replace(jobs=waiting.jobs - got)


def strict_aims(policy: Policy, heads: Heads, bands: Collection[int], limit: int) -> list[Aim]:
    """The most urgent strict band that waits anywhere, from the shards with the oldest heads."""
    found = heads.bands(policy.strict_bands & set(bands))
    return _split(heads, found[0], limit, Chosen.STRICT) if found else []


def weighted_aims(
    policy: Policy,
    turn: Turn | None,
    heads: Heads,
    bands: Collection[int],
    limit: int,
    *,
    floor: bool = False,
) -> list[Aim]:
    """So many opportunities of the weighted bands (with `floor` the bulk ones), each band's from its best shards.

    `turn` is whose turn it is; `used` says whose it is after those starts that really happened.
    """
    allowed = (
        policy.bulk_bands if floor else frozenset(range(len(policy.bands))) - policy.strict_bands
    ) & set(bands)
    left = {band: heads.total(band) for band in heads.bands(allowed)}
    rotation, wanted = Rotation(turn), dict[int, int]()
    lent: dict[int, bool] = {}
    everyone = sorted(allowed)
    for _ in range(limit):
        eligible = sorted(band for band, count in left.items() if count > 0)
        if not eligible:
            break
        band = rotation.next(eligible)
        lent.setdefault(band, rotation.is_lent_to(band, everyone))
        rotation.use(band, policy.bands[band].weight)
        wanted[band] = wanted.get(band, 0) + 1
        left[band] -= 1
    aims: list[Aim] = []
    for band, count in sorted(wanted.items()):
        chosen = Chosen.FLOOR if floor else Chosen.LENT if lent[band] else Chosen.SHARE
        aims += _split(heads, band, count, chosen)
    return aims


def used(policy: Policy, turn: Turn | None, starts: Iterable[int]) -> Turn | None:
    """Whose turn it is after starts of these bands."""
    rotation = Rotation(turn)
    for band in starts:
        rotation.use(band, policy.bands[band].weight)
    return rotation.turn


def _split(heads: Heads, band: int, limit: int, chosen: Chosen) -> list[Aim]:
    """Share a limit among the best shards of a band, none more than it says it has."""
    shards = heads.shards_of(band)[:PARALLEL_MAX]
    aims, left = [], limit
    for place, shard in enumerate(shards):
        part = min(-(-left // (len(shards) - place)), heads.by_shard[shard][band].jobs, left)
        if part > 0:
            aims.append(Aim(shard, band, part, chosen))
            left -= part
    if left and aims:  # others said that they have less than their part
        for place, aim in enumerate(aims):
            more = min(left, heads.by_shard[aim.shard][band].jobs - aim.limit)
            aims[place] = aim._replace(limit=aim.limit + more)
            left -= more
    return aims


# Inversions


@dataclass(frozen=True, slots=True)
class _Start:
    at: float
    band: int
    chosen: Chosen
    known: frozenset[int]  # the bands that the map showed


class Inversions:
    """Finds starts outside a share while work two levels more urgent had been visible for long.

    A band that the map showed had its turns, so a start beside it was within its share. Work that the map did not
    show comes to light with a later word of its shard, which tells since when it waits.
    """

    def __init__(self, keep_s: float = 2.0) -> None:
        self._keep_s = keep_s
        self._starts: list[_Start] = []

    def started(self, at: float, band: int, chosen: Chosen, known: Collection[int]) -> None:
        """A job was started at this instant (epoch seconds), while the map showed these bands."""
        self._starts = [start for start in self._starts if at - start.at < self._keep_s]
        self._starts.append(_Start(at, band, chosen, frozenset(known)))

    def seen(self, bands: Mapping[int, Waiting]) -> list[tuple[_Start, float]]:
        """A shard's newest word. Returns the starts that it shows to have passed over something, and for how long."""
        found = []
        for start in self._starts:
            if start.chosen is Chosen.FLOOR:
                continue
            waits = [
                start.at - waiting.since
                for band, waiting in bands.items()
                if band <= start.band - 2 and band not in start.known and waiting.since < start.at
            ]
            if waits:
                found.append((start, max(waits)))
        for start, _ in found:
            self._starts.remove(start)
        return found
