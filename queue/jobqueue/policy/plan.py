"""What a claim takes, given what the index says is there. Pure: the claim transaction and the simulation call it.

One opportunity after the other: the band whose turn it is (`turns`), inside it the tenant whose turn it is, of that
tenant the job that stands first. With the cost model `service_time` the tenant is the one that has had the least
service for its weight (start-time fair queueing, Goyal, Vin and Cheng, 1996): a start is charged the running mean of
its lane at once, and the difference is settled when the attempt ends; idleness earns nothing, debts are capped
(`capped`, where charges and settlements are added up).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush
from operator import itemgetter

from jobqueue.policy.turns import Rotation
from jobqueue.policy.types import Chosen, Head, Plan, Policy, State, Take

DEBT_MAX_S = 3_600.0  # a tenant is never kept waiting for more service of others than this

_place = itemgetter(Head._fields.index("fresh"), Head._fields.index("position"), Head._fields.index("job_id"))


def plan(
    policy: Policy,
    state: State,
    heads: Iterable[Head],
    limit: int,
    *,
    now: datetime | None = None,
    bulk_only: bool = False,
) -> Plan:
    """At most `limit` jobs of weighted bands; `bulk_only` gives all opportunities to the bulk bands (the floor).

    Deterministic; work is left over only when `limit` or a tenant's room is reached. `now` is needed for ageing,
    which the floor does not look at: a bulk job that has waited long is still bulk.
    """
    bands = policy.bulk_bands if bulk_only else frozenset(range(len(policy.bands))) - policy.strict_bands
    offers, memory = _Offers(policy, heads, bands, None if bulk_only else now), _Memory(policy, state)
    turns, everyone = memory.floor if bulk_only else memory.bands, sorted(bands)
    takes: list[Take] = []
    while len(takes) < limit and offers.bands:
        band = turns.next(offers.bands)
        lent = Chosen.LENT if turns.is_lent_to(band, everyone) else Chosen.SHARE
        takes.append(offers.take(memory, band, Chosen.FLOOR if bulk_only else lent))
    return Plan(takes, memory.state)


def plan_strict(policy: Policy, state: State, heads: Iterable[Head], limit: int) -> Plan:
    """At most `limit` jobs of strict bands, the most urgent band first; inside a band tenants take turns."""
    offers, memory = _Offers(policy, heads, policy.strict_bands, None), _Memory(policy, state)
    takes: list[Take] = []
    while len(takes) < limit and offers.bands:
        takes.append(offers.take(memory, offers.bands[0], Chosen.STRICT))
    return Plan(takes, memory.state)


def replay(policy: Policy, state: State, takes: Iterable[Take]) -> State:
    """The state after those starts alone that really happened."""
    memory = _Memory(policy, state)
    for take in takes:
        memory.started(take)
    return memory.state


def capped(served_s: float, virtual_s: float) -> float:
    """A tenant's service as it is kept: no further ahead of virtual time than the greatest debt."""
    return min(served_s, virtual_s + DEBT_MAX_S)


class _Memory:
    """The state while it is used. A start changes it in a way that depends on the start alone."""

    def __init__(self, policy: Policy, state: State) -> None:
        self.weights = [band.weight for band in policy.bands]
        self.is_costed = policy.is_costed
        self.bands = Rotation(state.band)
        self.floor = Rotation(state.floor)
        self.tenants = {band: Rotation(turn) for band, turn in state.tenants.items()}
        self.virtual_s = state.virtual_s

    def tenants_of(self, band: int) -> Rotation:
        rotation = self.tenants.get(band)
        if rotation is None:
            rotation = self.tenants[band] = Rotation(None)
        return rotation

    def started(self, take: Take) -> None:
        head, band, chosen = take[:3]
        self.tenants_of(band).use(head.tenant_id, head.weight)
        if chosen is Chosen.SHARE or chosen is Chosen.LENT:
            self.bands.use(band, self.weights[band])
        elif chosen is Chosen.FLOOR:
            self.floor.use(band, self.weights[band])
        if self.is_costed:
            self.virtual_s = max(self.virtual_s, self.start_s(head.served_s))

    def start_s(self, served_s: float) -> float:
        """A tenant's start tag: idle time earns nothing, debts are capped."""
        return capped(max(served_s, self.virtual_s), self.virtual_s)

    @property
    def state(self) -> State:
        tenants = {
            band: turn for band, rotation in self.tenants.items() if (turn := rotation.turn) is not None
        }
        return State(self.bands.turn, tenants, self.virtual_s, self.floor.turn)


class _Band:
    """What one band offers: each tenant's jobs in the order in which they stand, the first one last."""

    __slots__ = ("ahead", "level", "order", "tenants")

    def __init__(self) -> None:
        self.tenants: dict[int, list[Head]] = {}
        self.order: list[int] = []  # the tenants, rising
        # Where service counts: those level with virtual time, rising; and (service, tenant) of those ahead of it, a
        # heap in which what no longer holds is passed over. So a turn costs no look at each tenant.
        self.level: list[int] = []
        self.ahead: list[tuple[float, int]] = []

    def drop(self, tenant: int) -> None:
        del self.tenants[tenant]
        del self.order[bisect_left(self.order, tenant)]
        self._leave_level(tenant)

    def moved(self, tenant: int, served_s: float) -> None:
        """A tenant's service has grown."""
        if tenant in self.tenants:
            self._leave_level(tenant)
            heappush(self.ahead, (served_s, tenant))

    def _leave_level(self, tenant: int) -> None:
        place = bisect_left(self.level, tenant)
        if self.level[place : place + 1] == [tenant]:
            del self.level[place]

    def least(self, virtual_s: float, served: dict[int, float]) -> Sequence[int]:
        """The tenants that have had the least service, rising: ties are theirs in turn."""
        while self.ahead and self.ahead[0][0] <= virtual_s:
            service, tenant = heappop(self.ahead)
            if self._holds(service, tenant, served):
                insort(self.level, tenant)
        if self.level:
            return self.level
        equal: list[tuple[float, int]] = []
        while self.ahead and (not equal or self.ahead[0][0] == equal[0][0]):
            first = heappop(self.ahead)
            if self._holds(*first, served) and first not in equal:
                equal.append(first)
        for first in equal:
            heappush(self.ahead, first)
        is_capped = equal[0][0] >= virtual_s + DEBT_MAX_S  # then all are: equal
        return self.order if is_capped else [tenant for _, tenant in equal]

    def _holds(self, service: float, tenant: int, served: dict[int, float]) -> bool:
        return tenant in self.tenants and served[tenant] == service


class _Offers:
    """The jobs on offer, by band and tenant."""

    def __init__(
        self, policy: Policy, heads: Iterable[Head], bands: Collection[int], now: datetime | None
    ) -> None:
        self.is_costed = policy.is_costed
        self.by_band: dict[int, _Band] = {}
        self.rooms: dict[int, int] = {}
        self.served: dict[int, float] = {}
        ages = policy.ageing_s is not None and now is not None
        for head in heads:
            band, tenant = head.priority, head.tenant_id
            if ages:
                band = policy.effective_band(band, (now - head.position).total_seconds())  # type: ignore[operator]
            if band not in bands:
                continue
            offer = self.by_band.get(band)
            if offer is None:
                offer = self.by_band[band] = _Band()
            queue = offer.tenants.get(tenant)
            if queue is None:
                queue = offer.tenants[tenant] = []
                self.served[tenant] = head.served_s
            queue.append(head)
            if head.rooms:
                self.rooms.update(head.rooms)
        self.bands = sorted(self.by_band)
        for band in list(self.bands):
            self._order(band)

    def _order(self, band: int) -> None:
        offer = self.by_band[band]
        offer.order = sorted(offer.tenants)
        for queue in offer.tenants.values():
            queue.sort(key=_place, reverse=True)
        if self.is_costed:
            offer.ahead = [(self.served[tenant], tenant) for tenant in offer.order]
            heapify(offer.ahead)
        for tenant in list(offer.order):
            self._settle(band, tenant)

    def take(self, memory: _Memory, band: int, chosen: Chosen) -> Take:
        """The next job of `band`, started in `memory`."""
        offer = self.by_band[band]
        turns = memory.tenants_of(band)
        if self.is_costed and len(offer.order) > 1:
            tenant = turns.next(offer.least(memory.virtual_s, self.served))
        else:
            tenant = turns.next(offer.order, offer.tenants)
        head = offer.tenants[tenant].pop()
        take = self._charged(memory, head, band, chosen) if self.is_costed else Take(head, band, chosen)
        memory.started(take)
        for limit, _ in head.rooms:
            self.rooms[limit] -= 1
        if any(limit < 0 and self.rooms[limit] <= 0 for limit, _ in head.rooms):
            self._settle_all()  # others share what is full now
        elif head.rooms:
            for other in list(self.bands):
                self._settle(other, tenant)
        elif not offer.tenants[tenant]:
            self._settle(band, tenant)
        return take

    def _charged(self, memory: _Memory, head: Head, band: int, chosen: Chosen) -> Take:
        before = self.served[head.tenant_id]
        after = memory.start_s(before) + head.cost_s / max(1, head.weight)
        self.served[head.tenant_id] = after
        for offer in self.by_band.values():
            offer.moved(head.tenant_id, after)
        return Take(head._replace(served_s=before), band, chosen, head.cost_s, after - before)

    def _settle_all(self) -> None:
        for band in list(self.bands):
            for tenant in list(self.by_band[band].order):
                self._settle(band, tenant)

    def _settle(self, band: int, tenant: int) -> None:
        """Drop what a limit keeps out from the front of a tenant's jobs, and the tenant when nothing is left."""
        offer = self.by_band[band]
        queue = offer.tenants.get(tenant)
        if queue is None:
            return
        while queue and queue[-1].rooms and any(self.rooms[limit] <= 0 for limit, _ in queue[-1].rooms):
            queue.pop()
        if not queue:
            offer.drop(tenant)
            if not offer.order:
                del self.by_band[band]
                self.bands.remove(band)
