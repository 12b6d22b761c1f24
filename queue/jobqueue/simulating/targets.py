"""What bands and tenants may expect of a run: their weights' part, with borrowing, of what was started.

Looked at slice by slice of time, so that work which is there for a part of the run counts for that part alone.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TypeVar

from jobqueue.policy.simulated import Run, Sample, Start, TenantRules

K = TypeVar("K", bound=Hashable)

Cell = tuple[int, str]  # band and tenant


def slot_seconds(
    run: Run, starts: Sequence[Start], from_s: float = 0.0, until_s: float | None = None
) -> float:
    """How long those jobs held a slot between two instants."""
    end_s = run.setup.seconds if until_s is None else until_s
    return sum(
        max(0.0, min(end_s, start.at_s + start.service_s) - max(from_s, start.at_s)) for start in starts
    )


def filled(total: float, weights: Mapping[K, int], demands: Mapping[K, float]) -> dict[K, float]:
    """Share out by weight; what one cannot use goes to the others by weight."""
    given = dict.fromkeys(weights, 0.0)
    hungry = {key for key in weights if demands[key] > 0}
    while hungry and total > 1e-9:
        unit = total / sum(weights[key] for key in hungry)
        full = {key for key in hungry if demands[key] - given[key] <= unit * weights[key]}
        for key in full or hungry:
            part = demands[key] - given[key] if full else unit * weights[key]
            given[key] += part
            total -= part
        hungry = hungry - full if full else set()
    return given


class Targets:
    """Shares of all starts for bands, and of its band for a tenant; 0 where nothing was started."""

    def __init__(self, run: Run) -> None:
        self.run, self.policy = run, run.setup.policy
        self.cells = sorted(run.offered)
        self.service_s = self._service_s()
        self.slots, self.weight = self._slots(), self._weights()

    def of_bands(self) -> dict[int, float]:
        """Pool by pool: strict bands first, up to the floor; then the weights."""
        given: dict[int, float] = defaultdict(float)
        waiting: dict[int, float] = defaultdict(float)
        last = len(self.policy.bands) - 1
        for slice_ in self._slices():
            rooms: dict[int, float] = defaultdict(float)
            for cell in self.cells:
                waiting[cell[0]] = _more(waiting[cell[0]], slice_.arrived(cell))
                rooms[cell[0]] += self._room(slice_, cell)
            for pool in self.run.setup.pools:
                most = last if pool.max_priority is None else pool.max_priority
                demands = {band: min(waiting[band], rooms[band]) for band in rooms if band <= most}
                total = sum(start.pool == pool.name for start in slice_.starts)
                for band, amount in self._band_targets(total, demands).items():
                    given[band] += amount
                    waiting[band] -= amount
        whole = sum(given.values())
        return {band: given[band] / whole if whole else 0.0 for band, _ in self.cells}

    def of_tenants(self) -> dict[Cell, float]:
        """By weight inside each band; slot-seconds where these are charged."""
        given: dict[Cell, float] = dict.fromkeys(self.cells, 0.0)
        waiting: dict[Cell, float] = dict.fromkeys(self.cells, 0.0)
        for slice_ in self._slices():
            for cell in self.cells:
                waiting[cell] = _more(waiting[cell], slice_.arrived(cell))
            for cell, amount in self._tenant_targets(slice_, waiting).items():
                given[cell] += amount
                waiting[cell] -= amount / self._unit_s(cell)
        wholes: dict[int, float] = defaultdict(float)
        for (band, _), amount in given.items():
            wholes[band] += amount
        return {cell: given[cell] / wholes[cell[0]] if wholes[cell[0]] else 0.0 for cell in self.cells}

    def _band_targets(self, total: float, demands: Mapping[int, float]) -> dict[int, float]:
        policy = self.policy
        strict = sorted(band for band in demands if band in policy.strict_bands)
        weights = {band: policy.bands[band].weight for band in demands if band not in strict}
        bulk = {band: weight for band, weight in weights.items() if band in policy.bulk_bands}
        floor = min(total * policy.reserved_share, sum(demands[band] for band in bulk)) if strict else 0.0
        given, room = {}, total - floor
        for band in strict:
            given[band] = min(demands[band], room)
            room -= given[band]
        shared = filled(room + floor, weights, demands)
        if sum(shared[band] for band in bulk) < floor:
            others = {band: weight for band, weight in weights.items() if band not in bulk}
            shared = filled(room, others, demands) | filled(floor, bulk, demands)
        return given | shared

    def _tenant_targets(self, slice_: _Slice, waiting: Mapping[Cell, float]) -> dict[Cell, float]:
        totals: dict[int, float] = defaultdict(float)
        for start in slice_.starts:
            totals[start.band] += slot_seconds(self.run, [start]) if self.policy.is_costed else 1.0
        found: dict[Cell, float] = {}
        for band, total in totals.items():
            demands = {
                cell: min(waiting[cell], self._room(slice_, cell)) * self._unit_s(cell)
                for cell in self.cells
                if cell[0] == band
            }
            found |= filled(total, {cell: self.weight[cell] for cell in demands}, demands)
        return found

    def _unit_s(self, cell: Cell) -> float:
        return self.service_s[cell] if self.policy.is_costed else 1.0

    def _room(self, slice_: _Slice, cell: Cell) -> float:
        """How many starts its limits leave it in that time."""
        return max(slice_.had[cell], self.slots[cell] * slice_.seconds / self.service_s[cell])

    def _slices(self) -> Iterator[_Slice]:
        starts, begin = self.run.starts, 0
        for sample, following in pairwise(self.run.samples):
            end = begin
            while end < len(starts) and starts[end].at_s < following.at_s:
                end += 1
            yield _Slice(sample, following, starts[begin:end], self._endless(sample, following))
            begin = end

    def _endless(self, sample: Sample, following: Sample) -> set[Cell]:
        return {
            (one.band, one.tenant)
            for one in self.run.setup.sources
            if one.is_endless and one.from_s < following.at_s and one.until_s > sample.at_s
        }

    # What holds all the time

    def _service_s(self) -> dict[Cell, float]:
        measured: dict[Cell, list[float]] = defaultdict(list)
        for start in self.run.starts:
            measured[start.band, start.tenant].append(start.service_s)
        for source in self.run.setup.sources:
            if (source.band, source.tenant) not in measured:
                measured[source.band, source.tenant].append(source.service_s)
        return {cell: max(1e-6, fmean(values)) for cell, values in measured.items()}

    def _slots(self) -> dict[Cell, float]:
        found: dict[Cell, float] = {}
        for source in self.run.setup.sources:
            rules = self.run.setup.tenants.get(source.tenant, TenantRules())
            limits = [one for one in (source.max_running, rules.max_running) if one is not None]
            cell = source.band, source.tenant
            found[cell] = min([found.get(cell, math.inf), *limits])
        return found

    def _weights(self) -> dict[Cell, int]:
        found: dict[Cell, int] = {}
        for source in self.run.setup.sources:
            rules = self.run.setup.tenants.get(source.tenant, TenantRules())
            cell = source.band, source.tenant
            found[cell] = source.weight or found.get(cell, rules.weight)
        return found


def _more(waiting: float, arrived: float) -> float:
    """What waits after arrivals; of endless work nothing is left when it ends."""
    return max(0.0, arrived if math.isinf(waiting) else waiting + arrived)


class _Slice:
    """A short time: what was started in it, and what came."""

    def __init__(
        self, begin: Sample, end: Sample, starts: Sequence[Start], endless: Collection[Cell]
    ) -> None:
        self.begin, self.end, self.starts, self.endless = begin, end, starts, endless
        self.seconds = end.at_s - begin.at_s
        self.had = Counter((start.band, start.tenant) for start in starts)

    def arrived(self, cell: Cell) -> float:
        """How many jobs came; less than none where work was withdrawn, without end where it is endless."""
        if cell in self.endless:
            return math.inf
        return self.had[cell] + self.end.waiting[cell] - self.begin.waiting[cell]
