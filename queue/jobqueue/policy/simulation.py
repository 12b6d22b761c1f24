"""The scheduler on a virtual clock: the real policy, with arrivals, slots and service times that are made up.

Deterministic: one setup gives one run. What stands in for the database is as near to it as arithmetic allows: a bounded
walk over lanes from each band's cursor, a state for each part and class of claims, running limits counted at each
claim, costs charged by a lane's running mean and settled when the attempt ends. Times in seconds from the beginning.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, count, islice, takewhile
from random import Random
from typing import Final, NamedTuple

from jobqueue.policy.floor import Floor
from jobqueue.policy.parts import Part, in_parts
from jobqueue.policy.plan import capped, plan, plan_strict, replay
from jobqueue.policy.simulated import Left, Pool, Run, Sample, Setup, Source, Start, TenantRules
from jobqueue.policy.types import Head, Plan, Policy, State, Take

PROBES_MAX: Final = 512  # lanes of a band that one claim may look at
SPARE_LANES: Final = 8  # more lanes than wanted, as a claim lists them
ROUNDS_MAX: Final = 4  # of one claim
MEAN_MINUTES: Final = 5  # a lane's running mean looks back so far
SAMPLES: Final = 120  # of the waiting jobs, in a run
BEGINNING: Final = datetime(2035, 1, 1, tzinfo=UTC)


def simulate(setup: Setup) -> Run:
    """Run the setup to its end."""
    return _Simulation(setup).run()


# Its parts


class _Job(NamedTuple):
    job_id: int
    at_s: float
    position: datetime
    source: int


class _Stopwatch:
    """The longest time between two starts while it ran."""

    __slots__ = ("longest_s", "since_s")

    def __init__(self) -> None:
        self.since_s: float | None = None
        self.longest_s = 0.0

    def lap(self, now_s: float) -> None:
        if self.since_s is not None:
            self.longest_s = max(self.longest_s, now_s - self.since_s)
            self.since_s = now_s

    def stop(self, now_s: float) -> None:
        self.lap(now_s)
        self.since_s = None


class _Cell:
    """A tenant in a band."""

    __slots__ = ("band", "limits", "tenant_id", "waiting", "watch", "weight")

    def __init__(self, band: int, tenant_id: int, weight: int) -> None:
        self.band, self.tenant_id, self.weight = band, tenant_id, weight
        self.limits: list[int] = []
        self.waiting = 0
        self.watch = _Stopwatch()


class _Lane:
    """A tenant's jobs of one kind in one band, first in, first out."""

    __slots__ = ("cell", "cost_s", "id", "kind", "minutes", "waiting")

    def __init__(self, lane_id: int, cell: _Cell, kind: str) -> None:
        self.id, self.cell, self.kind = lane_id, cell, kind
        self.waiting: deque[_Job] = deque()
        self.cost_s = 1.0  # what a start is charged before anything was measured
        self.minutes: dict[int, tuple[float, int]] = {}

    def measure(self, now_s: float, service_s: float) -> None:
        """The running mean of the latest minutes; a change of up to a twentieth is not worth a write."""
        minute = int(now_s // 60)
        total_s, ended = self.minutes.get(minute, (0.0, 0))
        self.minutes[minute] = (total_s + service_s, ended + 1)
        for old in [one for one in self.minutes if one < minute - MEAN_MINUTES]:
            del self.minutes[old]
        mean_s = sum(one[0] for one in self.minutes.values()) / sum(one[1] for one in self.minutes.values())
        if abs(self.cost_s - mean_s) > 0.05 * max(self.cost_s, 0.001):
            self.cost_s = mean_s

    def remove(self, job_id: int) -> _Job:
        """Take a job out; it stands at the front or, where jobs of a lane have different ages, near it."""
        for index, job in enumerate(self.waiting):
            if job.job_id == job_id:
                del self.waiting[index]
                return job
        raise KeyError(job_id)


class _Workers:
    """A pool in use, with its own credit for the floor."""

    def __init__(self, pool: Pool, policy: Policy) -> None:
        self.pool, self.free, self.floor = pool, pool.slots, Floor()
        self.claims_at_s = 0.0
        self.is_waking = False
        last = len(policy.bands) if pool.max_priority is None else pool.max_priority + 1
        self.bands = range(min(last, len(policy.bands)))
        strict, bulk = policy.strict_bands, policy.bulk_bands
        self.bands_of = {
            Part.STRICT: [band for band in self.bands if band in strict],
            Part.WEIGHTED: [band for band in self.bands if band not in strict],
            Part.FLOOR: [band for band in self.bands if band in bulk],
        }

    def state_key(self, part: Part) -> tuple[object, ...]:
        """Claims that ask for the same share a state."""
        return self.pool.max_priority, self.pool.kinds, part is Part.STRICT


class _Started(NamedTuple):
    take: Take | None


class _Simulation:
    """One run. Events at the same instant all happen before the claims of that instant."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.policy, self.now_s = setup, setup.policy, 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order, self.job_ids, self.limit_ids = count(), count(1), count(1)
        self.workers = deque(_Workers(pool, setup.policy) for pool in setup.pools)
        self.lanes: dict[int, _Lane] = {}
        self.active: list[list[tuple[int, int]]] = [[] for _ in setup.policy.bands]  # (tenant, lane), sorted
        self.states: dict[tuple[object, ...], State] = {}
        self.served_s: dict[int, float] = defaultdict(float)
        self.rooms: dict[int, int] = {}
        self.contention = Random(f"{setup.seed}/contention")
        self.endless_depth = max(pool.batch for pool in setup.pools)
        self._prepare()
        self._prepare_records()

    def _prepare(self) -> None:
        names = list(dict.fromkeys(source.tenant for source in self.setup.sources))
        self.names = dict(enumerate(names, start=1))
        ids = {name: tenant_id for tenant_id, name in self.names.items()}
        self.cells: dict[tuple[int, int], _Cell] = {}
        self.cells_of: dict[int, list[_Cell]] = defaultdict(list)
        self.lane_of: list[_Lane] = []
        by_key: dict[tuple[int, int, str], _Lane] = {}
        shared = {
            ids[name]: self._limit(rules.max_running)
            for name, rules in self.setup.tenants.items()
            if name in ids and rules.max_running is not None
        }
        for source in self.setup.sources:
            cell = self._cell(source, ids[source.tenant], shared)
            key = (source.band, cell.tenant_id, source.kind)
            lane = by_key.setdefault(key, _Lane(len(by_key), cell, source.kind))
            self.lanes[lane.id] = lane
            self.lane_of.append(lane)

    def _cell(self, source: Source, tenant_id: int, shared: Mapping[int, int]) -> _Cell:
        cell = self.cells.get((source.band, tenant_id))
        if cell is None:
            weight = self.setup.tenants.get(source.tenant, TenantRules()).weight
            cell = self.cells[source.band, tenant_id] = _Cell(source.band, tenant_id, weight)
            cell.limits += [shared[tenant_id]] if tenant_id in shared else []
            self.cells_of[tenant_id].append(cell)
        if source.weight is not None:
            cell.weight = source.weight
        if source.max_running is not None:
            cell.limits.append(self._limit(source.max_running))
        return cell

    def _limit(self, max_running: int) -> int:
        limit = next(self.limit_ids)
        self.rooms[limit] = max_running
        return limit

    def _prepare_records(self) -> None:
        bands = range(len(self.policy.bands))
        self.starts: list[Start] = []
        self.samples: list[Sample] = []
        self.offered: Counter[tuple[int, int]] = Counter()
        self.waiting = [0 for _ in bands]
        self.eligible = [0 for _ in bands]  # tenants of the band that could start something
        self.watches = [_Stopwatch() for _ in bands]
        self.emptied_s: dict[int, float] = {}
        self.running: Counter[int] = Counter()
        self.most_running: Counter[int] = Counter()

    # The clock

    def run(self) -> Run:
        for sample in range(SAMPLES):  # before what else happens at that instant
            self._at(sample * self.setup.seconds / SAMPLES, self._sample)
        for index, source in enumerate(self.setup.sources):
            self._begin(index, source)
        while self.events and self.events[0][0] < self.setup.seconds:
            self.now_s = self.events[0][0]
            while self.events and self.events[0][0] == self.now_s:
                heapq.heappop(self.events)[2]()
            self._claim_all()
        return self._end()

    def _at(self, at_s: float, happen: Callable[[], None]) -> None:
        """Let something happen then; to the microsecond, as the database's clock has it."""
        heapq.heappush(self.events, (round(at_s, 6), next(self.order), happen))

    def _sample(self) -> None:
        waiting = {(cell.band, self.names[cell.tenant_id]): cell.waiting for cell in self.cells.values()}
        self.samples.append(Sample(self.now_s, waiting))

    def _end(self) -> Run:
        self.now_s = end_s = self.setup.seconds
        self._sample()
        for watch in chain(self.watches, (cell.watch for cell in self.cells.values())):
            watch.lap(end_s)
        left = [
            Left(lane.cell.band, self.names[lane.cell.tenant_id], end_s - job.at_s)
            for lane in self.lanes.values()
            for job in lane.waiting
        ]
        return Run(
            setup=self.setup,
            starts=self.starts,
            left=left,
            samples=self.samples,
            offered={(band, self.names[tenant]): jobs for (band, tenant), jobs in self.offered.items()},
            gap_of_band={band: watch.longest_s for band, watch in enumerate(self.watches)},
            gap_of={
                (cell.band, self.names[cell.tenant_id]): cell.watch.longest_s for cell in self.cells.values()
            },
            emptied_s=self.emptied_s,
            most_running={self.names[tenant]: running for tenant, running in self.most_running.items()},
        )

    # Arrivals

    def _begin(self, index: int, source: Source) -> None:
        backlog = self.endless_depth if source.is_endless else source.backlog
        if backlog:
            self._at(source.from_s, lambda: self._arrive(index, backlog))
        if source.is_endless and source.until_s < self.setup.seconds:
            self._at(source.until_s, lambda: self._withdraw(index))
        if source.rate_per_s > 0:
            instants = self._instants(source, Random(f"{self.setup.seed}/arrivals/{index}"))
            self._arrive_at_next(index, instants)

    def _instants(self, source: Source, random: Random) -> Iterator[float]:
        at_s = source.from_s
        for number in count(1):
            if at_s >= source.until_s:
                return
            yield at_s
            if source.is_random:
                at_s += random.expovariate(source.rate_per_s)
            else:
                at_s = source.from_s + number / source.rate_per_s

    def _arrive_at_next(self, index: int, instants: Iterator[float]) -> None:
        at_s = next(instants, None)
        if at_s is not None and at_s < self.setup.seconds:
            self._at(at_s, lambda: self._arrive_and_go_on(index, instants))

    def _arrive_and_go_on(self, index: int, instants: Iterator[float]) -> None:
        self._arrive(index, 1)
        self._arrive_at_next(index, instants)

    def _arrive(self, index: int, jobs: int) -> None:
        lane = self.lane_of[index]
        if not lane.waiting:
            insort(self.active[lane.cell.band], (lane.cell.tenant_id, lane.id))
        position = BEGINNING + timedelta(seconds=self.now_s)
        for _ in range(jobs):
            lane.waiting.append(_Job(next(self.job_ids), self.now_s, position, index))
        self.offered[lane.cell.band, lane.cell.tenant_id] += jobs
        self._count(lane, jobs)
        self._judge(lane.cell)

    def _withdraw(self, index: int) -> None:
        lane = self.lane_of[index]
        kept = deque(job for job in lane.waiting if job.source != index)
        gone = len(lane.waiting) - len(kept)
        lane.waiting = kept
        self.offered[lane.cell.band, lane.cell.tenant_id] -= gone
        self._count(lane, -gone)
        self._judge(lane.cell)

    def _count(self, lane: _Lane, jobs: int) -> None:
        band = lane.cell.band
        lane.cell.waiting += jobs
        self.waiting[band] += jobs
        if jobs < 0 and not lane.waiting:
            self.active[band].remove((lane.cell.tenant_id, lane.id))
        if not self.waiting[band]:
            self.emptied_s.setdefault(band, self.now_s)

    def _judge(self, cell: _Cell) -> None:
        """Whether the tenant could start something in this band now."""
        is_eligible = cell.waiting > 0 and all(self.rooms[limit] > 0 for limit in cell.limits)
        if is_eligible == (cell.watch.since_s is not None):
            return
        band = self.watches[cell.band]
        if is_eligible:
            cell.watch.since_s = self.now_s
            self.eligible[cell.band] += 1
            band.since_s = self.now_s if band.since_s is None else band.since_s
        else:
            cell.watch.stop(self.now_s)
            self.eligible[cell.band] -= 1
            if not self.eligible[cell.band]:
                band.stop(self.now_s)

    # Claims

    def _claim_all(self) -> None:
        for workers in list(self.workers):
            while workers.free and workers.claims_at_s <= self.now_s and self._has_work(workers.bands):
                wanted = min(workers.free, workers.pool.batch)
                if self._claim(workers, wanted) < wanted:
                    break
            if workers.claims_at_s > self.now_s and not workers.is_waking:
                self._wake(workers)
        self.workers.rotate(-1)

    def _wake(self, workers: _Workers) -> None:
        def awake() -> None:
            workers.is_waking = False

        workers.is_waking = True
        self._at(workers.claims_at_s, awake)

    def _claim(self, workers: _Workers, wanted: int) -> int:
        def take(part: Part, limit: int) -> list[_Started]:
            return self._take(workers, part, limit)

        started, workers.floor = in_parts(self.policy, workers.floor, wanted, workers.bands, take)
        workers.claims_at_s = round(self.now_s + workers.pool.claim_every_s, 6)
        return len(started)

    def _has_work(self, bands: Sequence[int]) -> bool:
        return any(self.waiting[band] for band in bands)

    def _take(self, workers: _Workers, part: Part, limit: int) -> list[_Started]:
        """One claim transaction: plan, start what is there to be started, remember; again for what is missing."""
        bands, key = workers.bands_of[part], workers.state_key(part)
        state, started = self.states.get(key, State()), list[_Started]()
        for _ in range(ROUNDS_MAX if self._has_work(bands) else 0):
            wanted = limit - len(started)
            planned = self._plan(part, state, self._heads(workers, bands, state, wanted), wanted)
            takes = [take for take in planned.takes if not self._is_passed_over()]
            is_whole = len(takes) == len(planned.takes)
            state = planned.state if is_whole else replay(self.policy, state, takes)
            for take in takes:
                self._start(workers, take)
                started.append(_Started(take))
            if not planned.takes or len(started) == limit:
                break
        self.states[key] = state
        return started

    def _is_passed_over(self) -> bool:
        return self.setup.passed_over > 0 and self.contention.random() < self.setup.passed_over

    def _plan(self, part: Part, state: State, heads: Sequence[Head], limit: int) -> Plan:
        if part is Part.STRICT:
            return plan_strict(self.policy, state, heads, limit)
        now = BEGINNING + timedelta(seconds=self.now_s) if self.policy.ageing_s is not None else None
        return plan(self.policy, state, heads, limit, now=now, bulk_only=part is Part.FLOOR)

    def _heads(self, workers: _Workers, bands: Sequence[int], state: State, wanted: int) -> list[Head]:
        heads: list[Head] = []
        for band in bands:
            lanes = self._listed(self._walk(workers, band, state), wanted)
            for lane in lanes:
                cell = lane.cell
                depth = min(wanted, 1 + 2 * wanted // len(lanes) * max(1, cell.weight))
                rooms = tuple((limit, self.rooms[limit]) for limit in cell.limits)
                for job in islice(lane.waiting, depth):
                    heads.append(self._head(lane, job, rooms))
        return heads

    def _listed(self, walk: Iterator[_Lane], wanted: int) -> list[_Lane]:
        """As many lanes as a claim lists, and the rest of those of a tenant that this bound cut off."""
        most = PROBES_MAX if self.policy.is_costed else wanted + SPARE_LANES
        lanes = list(islice(walk, most))
        if len(lanes) == most and len({lane.cell.tenant_id for lane in lanes}) <= wanted:
            rest = takewhile(lambda lane: lane.cell.tenant_id == lanes[most - 1].cell.tenant_id, walk)
            lanes += islice(rest, PROBES_MAX)
        return lanes

    def _walk(self, workers: _Workers, band: int, state: State) -> Iterator[_Lane]:
        """The lanes of a band that this pool can work on now, from the tenant whose turn it is and round."""
        active, turn = self.active[band], state.tenants.get(band)
        begin = bisect_left(active, (0 if turn is None else turn.key + (turn.left == 0), -1))
        for _, lane_id in chain(islice(active, begin, None), islice(active, begin)):
            lane = self.lanes[lane_id]
            has_room = all(self.rooms[limit] > 0 for limit in lane.cell.limits)
            if has_room and (workers.pool.kinds is None or lane.kind in workers.pool.kinds):
                yield lane

    def _head(self, lane: _Lane, job: _Job, rooms: tuple[tuple[int, int], ...]) -> Head:
        cell = lane.cell
        return Head(
            lane_id=lane.id,
            priority=cell.band,
            tenant_id=cell.tenant_id,
            kind=lane.kind,
            rooms=rooms,
            job_id=job.job_id,
            position=job.position,
            fresh=True,
            weight=cell.weight,
            cost_s=lane.cost_s,
            served_s=self.served_s[cell.tenant_id],
        )

    # A job's run

    def _start(self, workers: _Workers, take: Take) -> None:
        lane = self.lanes[take.head.lane_id]
        job, cell = lane.remove(take.head.job_id), lane.cell
        source = self.setup.sources[job.source]
        service_s = self._service_s(job, source)
        self.starts.append(
            Start(
                at_s=self.now_s,
                band=cell.band,
                turn=take.band,
                tenant=self.names[cell.tenant_id],
                pool=workers.pool.name,
                waited_s=self.now_s - job.at_s,
                service_s=service_s,
                chosen=take.chosen,
            )
        )
        workers.free -= 1
        self.served_s[cell.tenant_id] += take.moved_s
        self._occupy(cell, 1)
        cell.watch.lap(self.now_s)
        self.watches[cell.band].lap(self.now_s)
        self._count(lane, -1)
        self._judge(cell)
        self._at(self.now_s + service_s, lambda: self._finish(workers, lane, service_s, take.charged_s))
        if source.is_endless and self.now_s < source.until_s:
            self._arrive(job.source, 1)

    def _service_s(self, job: _Job, source: Source) -> float:
        """A job's own, whatever the order in which jobs are started."""
        if not source.is_exponential:
            return source.service_s
        uniform = Random(self.setup.seed << 40 ^ job.job_id).random()
        return -math.log(1.0 - uniform) * source.service_s

    def _finish(self, workers: _Workers, lane: _Lane, service_s: float, charged_s: float) -> None:
        workers.free += 1
        self._occupy(lane.cell, -1)
        if self.policy.is_costed:
            served_s = self.served_s[lane.cell.tenant_id] + (service_s - charged_s) / max(1, lane.cell.weight)
            self.served_s[lane.cell.tenant_id] = capped(served_s, self._virtual_s())
            lane.measure(self.now_s, service_s)

    def _virtual_s(self) -> float:
        return max((state.virtual_s for state in self.states.values()), default=0.0)

    def _occupy(self, cell: _Cell, slots: int) -> None:
        tenant_id = cell.tenant_id
        self.running[tenant_id] += slots
        self.most_running[tenant_id] = max(self.most_running[tenant_id], self.running[tenant_id])
        for limit in cell.limits:
            self.rooms[limit] -= slots
        if cell.limits:
            for other in self.cells_of[tenant_id]:
                self._judge(other)
