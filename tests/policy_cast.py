"""What the policy's tests offer it: policies, heads with rooms, and a caller that claims again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from jobqueue.policy.floor import Floor
from jobqueue.policy.parts import Part, in_parts
from jobqueue.policy.plan import plan, plan_strict
from jobqueue.policy.types import SERVICE_TIME, UNIT, BandPolicy, Head, Policy, State, Take
from tests.cast import at

HNL = Policy(1, [BandPolicy("H", 3), BandPolicy("N", 2), BandPolicy("L", 1)])
FIVE = Policy(
    1,
    [
        BandPolicy("P0", strict=True),
        BandPolicy("P1", 25),
        BandPolicy("P2", 13),
        BandPolicy("P3", 7, bulk=True),
        BandPolicy("P4", 5, bulk=True),
    ],
)
TENANTS = range(1, 6)


def head(job_id: int, band: int = 0, tenant: int = 1, **changes: Any) -> Head:
    """A job on offer, in the order of the ids."""
    made = Head(band * 100 + tenant, band, tenant, "noop", (), job_id, at(job_id), True)
    return made._replace(**changes)


@st.composite
def policies(draw: st.DrawFn, *, costed: bool | None = None) -> Policy:
    """Up to two strict bands before one to four weighted ones, of which the last may be bulk."""
    strict, weighted = draw(st.integers(0, 2)), draw(st.integers(1, 4))
    bulk = draw(st.integers(0, weighted))
    bands = [BandPolicy(f"S{index}", strict=True) for index in range(strict)]
    bands += [
        BandPolicy(f"W{index}", draw(st.integers(1, 9)), bulk=index >= weighted - bulk)
        for index in range(weighted)
    ]
    is_costed = draw(st.booleans()) if costed is None else costed
    return Policy(
        1,
        bands,
        reserved_share=draw(st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.5])),
        cost_model=SERVICE_TIME if is_costed else UNIT,
    )


@st.composite
def heads(draw: st.DrawFn, policy: Policy, *, most: int = 30) -> list[Head]:
    """Jobs of five tenants, some with a limit over all bands and some with one in a single band."""
    over_all = {tenant: draw(st.none() | st.integers(0, 4)) for tenant in TENANTS}
    bands = range(len(policy.bands))
    in_band = {(tenant, band): draw(st.none() | st.integers(0, 2)) for tenant in (1, 2) for band in bands}
    facts = st.fixed_dictionaries(
        {"weight": st.integers(1, 3), "cost_s": st.floats(0.001, 100), "served_s": st.floats(0, 5_000)}
    )
    of_tenant = {tenant: draw(facts) for tenant in TENANTS}
    made = draw(
        st.lists(
            st.tuples(
                st.sampled_from(list(bands)), st.sampled_from(list(TENANTS)), st.integers(0, 9), st.booleans()
            ),
            max_size=most,
        )
    )
    return [
        head(
            number,
            band,
            tenant,
            position=at(second),
            fresh=fresh,
            rooms=_rooms(over_all[tenant], in_band.get((tenant, band)), tenant, band),
            **of_tenant[tenant],
        )
        for number, (band, tenant, second, fresh) in enumerate(made, start=1)
    ]


def _rooms(over_all: int | None, in_band: int | None, tenant: int, band: int) -> tuple[tuple[int, int], ...]:
    rooms = [(tenant, over_all), (1_000 * tenant + band, in_band)]
    return tuple((limit, room) for limit, room in rooms if room is not None)


def after(offered: Iterable[Head], takes: Sequence[Take]) -> list[Head]:
    """What is left on offer once those were started, with the rooms and service that they left."""
    gone = {take.head.job_id for take in takes}
    used = Counter(limit for take in takes for limit, _ in take.head.rooms)
    moved: Counter[int] = Counter()
    for take in takes:
        moved[take.head.tenant_id] += take.moved_s  # type: ignore[assignment]
    return [
        one._replace(
            rooms=tuple((limit, room - used[limit]) for limit, room in one.rooms),
            served_s=one.served_s + moved[one.tenant_id],
        )
        for one in offered
        if one.job_id not in gone
    ]


@dataclass
class Caller:
    """Claims again and again in parts, from work that never ends in the bands that are open at that instant."""

    policy: Policy
    states: dict[bool, State] = field(default_factory=dict)
    floor: Floor = field(default_factory=Floor)
    jobs: int = 0

    def claim(self, limit: int, waiting: dict[int, int]) -> list[Take]:
        """Start up to `limit` jobs when so many wait in each band."""
        left = dict(waiting)

        def take(part: Part, most: int) -> list[_Started]:
            offered = [self._head(band) for band, jobs in left.items() for _ in range(min(jobs, most))]
            state = self.states.get(part is Part.STRICT, State())
            if part is Part.STRICT:
                planned = plan_strict(self.policy, state, offered, most)
            else:
                planned = plan(self.policy, state, offered, most, bulk_only=part is Part.FLOOR)
            self.states[part is Part.STRICT] = planned.state
            for one in planned.takes:
                left[one.band] -= 1
            return [_Started(one) for one in planned.takes]

        bands = range(len(self.policy.bands))
        started, self.floor = in_parts(self.policy, self.floor, limit, bands, take)
        return [one.take for one in started]

    def _head(self, band: int) -> Head:
        self.jobs += 1
        return head(self.jobs, band)


@dataclass(frozen=True)
class _Started:
    take: Take
