"""What a claim takes, given what the index says is there. Pure: the claim transaction and the simulation call it.

One opportunity after the other: the band whose turn it is (`turns`), inside it the tenant whose turn it is, of that
tenant the job that stands first. With the cost model `service_time` the tenant is the one that has had the least
service for its weight (start-time fair queueing, Goyal, Vin and Cheng, 1996): a start is charged the running mean of
its lane at once, and the difference is settled when the attempt ends; idleness earns nothing, debts are capped
(`capped`, where charges and settlements are added up).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
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
    turns = memory.floor if bulk_only else memory.bands
    takes: list[Take] = []
    while len(takes) < limit and offers.by_band:
        band = turns.next(offers.by_band.keys())
        lent = Chosen.LENT if memory.bands.is_lent_to(band, bands) else Chosen.SHARE
        takes.append(offers.take(memory, band, Chosen.FLOOR if bulk_only else lent))
    return Plan(takes, memory.state)


def plan_strict(policy: Policy, state: State, heads: Iterable[Head], limit: int) -> Plan:
    """At most `limit` jobs of strict bands, the most urgent band first; inside a band tenants take turns."""
    offers, memory = _Offers(policy, heads, policy.strict_bands, None), _Memory(policy, state)
    takes: list[Take] = []
    while len(takes) < limit and offers.by_band:
        takes.append(offers.take(memory, min(offers.by_band), Chosen.STRICT))
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
        self.policy = policy
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
        head = take.head
        self.tenants_of(take.band).use(head.tenant_id, head.weight)
        if take.chosen is Chosen.SHARE or take.chosen is Chosen.LENT:
            self.bands.use(take.band, self.policy.bands[take.band].weight)
        elif take.chosen is Chosen.FLOOR:
            self.floor.use(take.band, self.policy.bands[take.band].weight)
        if self.policy.is_costed:
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


class _Offers:
    """The jobs on offer, by band and tenant, each tenant's in the order in which they stand, the first one last."""

    def __init__(
        self, policy: Policy, heads: Iterable[Head], bands: Collection[int], now: datetime | None
    ) -> None:
        self.is_costed = policy.is_costed
        self.by_band: dict[int, dict[int, list[Head]]] = {}
        self.rooms: dict[int, int] = {}
        self.served: dict[int, float] = {}
        for head in heads:
            waited_s = (now - head.position).total_seconds() if now is not None else 0.0
            band = policy.effective_band(head.priority, waited_s)
            if band in bands:
                self.by_band.setdefault(band, {}).setdefault(head.tenant_id, []).append(head)
                self.served[head.tenant_id] = head.served_s
                self.rooms.update(head.rooms)
        for tenants in self.by_band.values():
            for queue in tenants.values():
                queue.sort(key=_place, reverse=True)
        self._settle_all()

    def take(self, memory: _Memory, band: int, chosen: Chosen) -> Take:
        """The next job of `band`, started in `memory`."""
        tenant = self._tenant(memory, band)
        head = self.by_band[band][tenant].pop()
        take = self._charged(memory, head, band, chosen) if self.is_costed else Take(head, band, chosen)
        memory.started(take)
        for limit, _ in head.rooms:
            self.rooms[limit] -= 1
        if any(limit < 0 and self.rooms[limit] <= 0 for limit, _ in head.rooms):
            self._settle_all()  # others share what is full now
            return take
        for other in list(self.by_band) if head.rooms else (band,):
            self._settle(other, tenant)
        return take

    def _tenant(self, memory: _Memory, band: int) -> int:
        tenants = self.by_band[band]
        eligible: Collection[int] = tenants.keys()
        if self.is_costed and len(tenants) > 1:
            starts = {tenant: memory.start_s(self.served[tenant]) for tenant in tenants}
            least = min(starts.values())
            eligible = [tenant for tenant, start in starts.items() if start == least]
        return memory.tenants_of(band).next(eligible)

    def _charged(self, memory: _Memory, head: Head, band: int, chosen: Chosen) -> Take:
        before = self.served[head.tenant_id]
        after = memory.start_s(before) + head.cost_s / max(1, head.weight)
        self.served[head.tenant_id] = after
        return Take(head._replace(served_s=before), band, chosen, head.cost_s, after - before)

    def _settle_all(self) -> None:
        for band, tenants in list(self.by_band.items()):
            for tenant in list(tenants):
                self._settle(band, tenant)

    def _settle(self, band: int, tenant: int) -> None:
        """Drop what a limit keeps out from the front of a tenant's jobs, and the tenant when nothing is left."""
        queue = self.by_band[band].get(tenant)
        if queue is None:
            return
        while queue and queue[-1].rooms and any(self.rooms[limit] <= 0 for limit, _ in queue[-1].rooms):
            queue.pop()
        if not queue:
            del self.by_band[band][tenant]
            if not self.by_band[band]:
                del self.by_band[band]
