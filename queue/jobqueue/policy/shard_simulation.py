"""Many shards on a virtual clock: messages arrive, hubs claim by what shards said lately; what goes wrong is counted.

The hubs' routing is `policy.routing` and `policy.parts`, the same code that claims run; shards are queues in memory,
and what a claim or a look costs is time. Arrivals are spread by chance over shards; a shard may fall and come back.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jobqueue.policy.floor import Floor
from jobqueue.policy.parts import Part, in_parts
from jobqueue.policy.routing import Aim, Heads, Waiting, strict_aims, used, weighted_aims
from jobqueue.policy.types import BandPolicy, Chosen, Head, Policy, Take, Turn

STEP_S: Final = 0.001  # the clock's
COUNT_MAX: Final = 100  # of what a shard says it has in a band
ROUNDS_MAX: Final = 6
CLAIM_TRIPS: Final = 8  # for about so long a claim holds its slots before they run

FIVE: Final = Policy(
    1,
    [
        BandPolicy("P0", strict=True),
        BandPolicy("P1", 25),
        BandPolicy("P2", 13),
        BandPolicy("P3", 7, bulk=True),
        BandPolicy("P4", 5, bulk=True),
    ],
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is simulated. Times in seconds; `mix` is each band's part of the arrivals."""

    shards: int = 32
    rate_per_s: float = 56_000
    mix: Sequence[float] = (0.02, 0.08, 0.20, 0.30, 0.40)
    hubs: int = 16
    limit: int = 100  # of one claim
    service_s: float = 0.01
    spare: float = 0.05  # slots beyond what the arrivals need; negative: overload
    word_s: float = 0.02  # how long a shard's word is used again
    trip_s: float = 0.001  # what a look or a claim takes
    seconds: float = 5.0
    seed: int = 1
    falls_at: float | None = None  # shard 0 stops answering
    heals_at: float | None = None
    found_out_s: float = 0.5  # until a hub knows that it does, or does not any more


class Start(NamedTuple):
    """A message that was started: when, of which band and shard, why, how long it had waited, and for how long work two
    levels more urgent had been visible that its hub did not know of."""

    at: float
    band: int
    shard: int
    chosen: Chosen
    waited_s: float
    inverted_s: float


@dataclass(slots=True)
class Run:
    """What happened."""

    setup: Setup
    starts: list[Start] = field(default_factory=list)
    arrived: int = 0
    rerouted: int = 0
    claims: int = 0
    looks: int = 0
    asks: Counter[int] = field(default_factory=Counter)  # claims on each shard

    def waits(self, band: int, shards: frozenset[int] | None = None) -> list[float]:
        """How long the messages of a band waited, rising."""
        return sorted(
            start.waited_s
            for start in self.starts
            if start.band == band and (shards is None or start.shard in shards)
        )

    def inversions(self) -> list[float]:
        """The inversions of starts outside a share, rising; those of nothing are left out."""
        return sorted(start.inverted_s for start in self.starts if start.inverted_s > 0)

    def skew(self) -> float:
        """The busiest shard's starts over the mean."""
        counts = Counter(start.shard for start in self.starts)
        return max(counts.values()) / (sum(counts.values()) / self.setup.shards) if counts else 0.0


def quantile(rising: Sequence[float], share: float) -> float:
    """0 for none."""
    return rising[min(len(rising) - 1, int(share * len(rising)))] if rising else 0.0


def simulate(setup: Setup, policy: Policy = FIVE) -> Run:
    """Run it."""
    return _World(setup, policy).run()


class _Shard:
    __slots__ = ("is_up", "lanes", "told_at")

    def __init__(self, bands: int) -> None:
        self.lanes: list[deque[float]] = [deque() for _ in range(bands)]
        self.is_up = True
        self.told_at = float("-inf")  # when a message of band 0 or 1 came last

    def word(self) -> dict[int, Waiting]:
        return {
            band: Waiting(min(COUNT_MAX, len(lane)), lane[0]) for band, lane in enumerate(self.lanes) if lane
        }


class _Hub:
    """One process: its words of the shards, its turns, and the claim that it has under way."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.words: dict[int, tuple[float, dict[int, Waiting]]] = {}
        self.free = 0
        self.busy_until = 0.0
        self.weighted: Turn | None = None
        self.of_floor: Turn | None = None
        self.floor = Floor()
        self.down: dict[int, float] = {}  # shard → when this hub asks it again


class _Started(NamedTuple):
    take: Take | None


class _World:
    def __init__(self, setup: Setup, policy: Policy) -> None:
        self.setup, self.policy = setup, policy
        self.rng = random.Random(setup.seed)
        self.shards = [_Shard(len(policy.bands)) for _ in range(setup.shards)]
        held_s = setup.service_s + CLAIM_TRIPS * setup.trip_s
        slots = int(setup.rate_per_s * held_s * (1 + setup.spare)) + 1
        self.hubs = [_Hub(number) for number in range(setup.hubs)]
        for number in range(slots):
            self.hubs[number % setup.hubs].free += 1
        self.ends: list[tuple[float, int, int]] = []  # when, hub, how many slots
        self.now, self.owed = 0.0, 0.0
        self.out = Run(setup)
        self.bounds = [sum(setup.mix[: band + 1]) for band in range(len(setup.mix))]

    def run(self) -> Run:
        for step in range(int(self.setup.seconds / STEP_S)):
            self.now = step * STEP_S
            self._fall()
            self._arrive()
            while self.ends and self.ends[0][0] <= self.now:
                _, number, count = heapq.heappop(self.ends)
                self.hubs[number].free += count
            for hub in self.hubs:
                if hub.free > 0 and hub.busy_until <= self.now:
                    self._claim(hub)
        return self.out

    def _fall(self) -> None:
        falls, heals = self.setup.falls_at, self.setup.heals_at
        self.shards[0].is_up = not (falls is not None and falls <= self.now < (heals or float("inf")))

    def _arrive(self) -> None:
        self.owed += self.setup.rate_per_s * STEP_S
        count, self.owed = int(self.owed), self.owed % 1
        for _ in range(count):
            band = bisect_left(self.bounds, self.rng.random())
            number = self.rng.randrange(len(self.shards))
            if not self.shards[number].is_up:  # work without a key goes elsewhere
                self.out.rerouted += 1
                number = 1 + self.rng.randrange(len(self.shards) - 1)
            self.shards[number].lanes[min(band, len(self.setup.mix) - 1)].append(self.now)
            if band <= 1:
                self.shards[number].told_at = self.now
            self.out.arrived += 1

    # A claim

    def _claim(self, hub: _Hub) -> None:
        self.out.claims += 1
        took_s = self._look(hub)
        heads = Heads({number: dict(word) for number, (_, word) in hub.words.items() if word})
        limit, self.spent_s = min(self.setup.limit, hub.free), took_s
        started, hub.floor = in_parts(
            self.policy,
            hub.floor,
            limit,
            range(len(self.policy.bands)),
            lambda part, wanted: self._part(hub, heads, part, wanted),
        )
        hub.free -= len(started)
        hub.busy_until = self.now + max(STEP_S, self.spent_s)
        if started:
            heapq.heappush(self.ends, (hub.busy_until + self.setup.service_s, hub.number, len(started)))

    def _look(self, hub: _Hub) -> float:
        """Ask the shards whose words are old, or that have told of urgent work; all at once. Returns what it took."""
        looked = False
        for number, shard in enumerate(self.shards):
            if hub.down.get(number, 0.0) > self.now:
                continue
            at, _ = hub.words.get(number, (float("-inf"), {}))
            if self.now - at < self.setup.word_s and shard.told_at + self.setup.trip_s <= at:
                continue
            if (
                shard.told_at > at
                and self.now - at < self.setup.word_s
                and shard.told_at + self.setup.trip_s > self.now
            ):
                continue  # the hint is still on its way
            looked = True
            if shard.is_up:
                hub.words[number] = (self.now, shard.word())
                self.out.looks += 1
            else:
                hub.words.pop(number, None)
                hub.down[number] = self.now + self.setup.found_out_s
        return self.setup.trip_s if looked else 0.0

    def _part(self, hub: _Hub, heads: Heads, part: Part, limit: int) -> list[_Started]:
        started: list[_Started] = []
        for _ in range(ROUNDS_MAX):
            aims = self._aims(hub, heads, part, limit - len(started))
            if not aims:
                break
            known = frozenset(heads.bands(range(len(self.policy.bands))))
            self.spent_s += self.setup.trip_s
            for aim in aims:
                started += self._take(hub, heads, part, aim, known)
            if len(started) >= limit:
                break
        return started

    def _aims(self, hub: _Hub, heads: Heads, part: Part, limit: int) -> list[Aim]:
        bands = range(len(self.policy.bands))
        if limit <= 0:
            return []
        if part is Part.STRICT:
            return strict_aims(self.policy, heads, bands, limit)
        is_floor = part is Part.FLOOR
        turn = hub.of_floor if is_floor else hub.weighted
        return weighted_aims(self.policy, turn, heads, bands, limit, floor=is_floor)

    def _take(self, hub: _Hub, heads: Heads, part: Part, aim: Aim, known: frozenset[int]) -> list[_Started]:
        shard = self.shards[aim.shard]
        taken: list[_Started] = []
        self.out.asks[aim.shard] += 1
        lane = shard.lanes[aim.band]
        inverted_s = self._passed_over(hub, aim, known)
        while shard.is_up and lane and len(taken) < aim.limit:
            since = lane.popleft()
            waited_s = self.now + self.spent_s - since
            self.out.starts.append(Start(self.now, aim.band, aim.shard, aim.chosen, waited_s, inverted_s))
            taken.append(_Started(Take(_ANY_HEAD._replace(priority=aim.band), aim.band, aim.chosen)))
        heads.took(aim, len(taken))
        word = hub.words.get(aim.shard)
        if word is not None:
            hub.words[aim.shard] = (word[0], dict(heads.by_shard.get(aim.shard, {})))
        if part is Part.FLOOR:
            hub.of_floor = used(self.policy, hub.of_floor, [aim.band] * len(taken))
        elif part is Part.WEIGHTED:
            hub.weighted = used(self.policy, hub.weighted, [aim.band] * len(taken))
        return taken

    def _passed_over(self, hub: _Hub, aim: Aim, known: frozenset[int]) -> float:
        """For how long work two levels more urgent has been visible to this hub's questions, and unknown to it.

        On a shard that fell it is visible from when the hub asks again.
        """
        if aim.chosen is Chosen.FLOOR or aim.band < 2:
            return 0.0
        since = [
            max(shard.lanes[band][0], hub.down.get(number, 0.0))
            for number, shard in enumerate(self.shards)
            if shard.is_up
            for band in range(aim.band - 1)
            if band not in known and shard.lanes[band]
        ]
        return max(0.0, self.now - min(since)) if since else 0.0


_ANY_HEAD: Final = Head(0, 0, 0, "message", (), 0, None, True)  # type: ignore[arg-type]  # nothing looks at it
