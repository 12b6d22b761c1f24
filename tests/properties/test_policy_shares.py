"""How opportunities are shared: by weight among bands, by turns and by service among tenants."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue.policy.plan import DEBT_MAX_S, capped, plan
from jobqueue.policy.types import SERVICE_TIME, BandPolicy, Chosen, Head, Policy, State, Take
from tests.policy_cast import FIVE, HNL, Caller, head

weights = st.lists(st.integers(1, 20), min_size=1, max_size=5)
# Which of the other bands have work at each opportunity.
openings = st.lists(st.sets(st.integers(0, 4)), max_size=120)


def weighted(values: list[int]) -> Policy:
    return Policy(1, [BandPolicy(f"B{index}", weight) for index, weight in enumerate(values)])


def bands_of(takes: list[Take]) -> str:
    return "".join("HNL"[take.band] for take in takes)


# Bands


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 12])
def test_twelve_opportunities_are_h_h_h_n_n_l_twice(limit: int) -> None:
    caller = Caller(HNL)
    takes = [take for _ in range(12 // limit) for take in caller.claim(limit, {0: 99, 1: 99, 2: 99})]
    assert bands_of(takes) == "HHHNNLHHHNNL"
    assert {take.chosen for take in takes} == {Chosen.SHARE}


def test_an_empty_band_lends_its_turns_three_to_one() -> None:
    caller = Caller(HNL)
    takes = [take for _ in range(16) for take in caller.claim(1, {0: 99, 2: 99})]
    assert bands_of(takes) == "HHHL" * 4
    assert [take.chosen for take in takes[:4]] == [Chosen.SHARE] * 3 + [Chosen.LENT]


@given(st.lists(st.sets(st.integers(0, 1)), max_size=60))
def test_a_lone_l_in_a_flood_is_selected_within_six_opportunities(before: list[set[int]]) -> None:
    caller = Caller(HNL)
    for present in before:
        caller.claim(1, dict.fromkeys(present, 1))
    takes = [take for _ in range(6) for take in caller.claim(1, {0: 99, 1: 99, 2: 1})]
    assert 2 in [take.band for take in takes]


@given(weights, st.integers(0, 200), st.integers(1, 4))
def test_every_window_of_whole_cycles_has_exactly_the_weights(
    values: list[int], skipped: int, cycles: int
) -> None:
    caller = Caller(weighted(values))
    everything = dict.fromkeys(range(len(values)), 1)
    for _ in range(skipped):
        caller.claim(1, everything)
    count = Counter(caller.claim(1, everything)[0].band for _ in range(cycles * sum(values)))
    assert [count[band] for band in range(len(values))] == [cycles * weight for weight in values]


@given(weights, openings)
def test_whatever_others_do_a_band_with_work_gets_its_weight_in_each_cycle(
    values: list[int], others: list[set[int]]
) -> None:
    caller, cycle, got = Caller(weighted(values)), sum(values), 0
    band = len(values) - 1  # the last has most before it
    for number, present in enumerate(others, start=1):
        open_bands = {other for other in present if other < band} | {band}
        got += caller.claim(1, dict.fromkeys(open_bands, 1))[0].band == band
        assert got >= number // cycle * values[band]


@given(weights, openings, st.integers(1, 4))
def test_a_band_that_was_idle_has_no_credit(values: list[int], before: list[set[int]], cycles: int) -> None:
    caller, everything = Caller(weighted(values)), dict.fromkeys(range(len(values)), 1)
    for present in before:
        caller.claim(1, dict.fromkeys({band for band in present if 0 < band < len(values)}, 1))
    count = Counter(caller.claim(1, everything)[0].band for _ in range(cycles * sum(values)))
    assert all(abs(count[band] - cycles * weight) <= weight for band, weight in enumerate(values))


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_weighted_bands_alone_share_by_weight_and_the_floor_stays_out(limit: int) -> None:
    caller, count = Caller(FIVE), Counter[int]()
    while (left := 10_000 - count.total()) > 0:
        takes = caller.claim(min(limit, left), dict.fromkeys(range(1, 5), 100))
        count.update(take.band for take in takes)
        assert all(take.chosen is Chosen.SHARE for take in takes)
    assert [round(count[band] / 100) for band in range(1, 5)] == [50, 26, 14, 10]


# Tenants


def tenants_in(takes: list[Take]) -> list[int]:
    return [take.head.tenant_id for take in takes]


def test_five_tenants_in_a_claim_of_ten() -> None:
    ready = {1: 40, 2: 10, 3: 10, 4: 1, 5: 1}
    found = [head(tenant * 100 + n, 1, tenant) for tenant, jobs in ready.items() for n in range(jobs)]
    assert Counter(tenants_in(list(plan(HNL, State(), found, 10).takes))) == {1: 3, 2: 3, 3: 2, 4: 1, 5: 1}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 30), st.integers(1, 3))
def test_tenants_of_a_band_share_by_weight_in_every_round(
    values: list[int], skipped: int, rounds: int
) -> None:
    found = [
        head(tenant * 1_000 + n, 1, tenant, weight=weight)
        for tenant, weight in enumerate(values, start=1)
        for n in range(150)
    ]
    takes = plan(HNL, State(), found, skipped + rounds * sum(values)).takes[skipped:]
    assert Counter(tenants_in(list(takes))) == {
        tenant: rounds * weight for tenant, weight in enumerate(values, start=1)
    }


@given(st.lists(st.sets(st.integers(1, 6), min_size=1), min_size=1, max_size=80))
def test_a_tenant_with_work_waits_for_no_more_than_one_start_of_each_other(present: list[set[int]]) -> None:
    state, since_last = State(), 0
    for number, tenants in enumerate(present):
        found = [head(number * 10 + tenant, 1, tenant) for tenant in tenants | {4}]
        planned = plan(HNL, state, found, 1)
        since_last = 0 if planned.takes[0].head.tenant_id == 4 else since_last + 1
        assert since_last <= 5
        state = planned.state


# Service time

COSTED = Policy(1, [BandPolicy("only", 1)], cost_model=SERVICE_TIME)
costs = st.floats(0.001, 60)


class _Service:
    """Tenants with endless jobs of one cost each, started one after the other."""

    def __init__(self, cost_s: dict[int, float], weight: dict[int, int]) -> None:
        self.cost_s, self.weight, self.state = cost_s, weight, State()
        self.served_s = dict.fromkeys(cost_s, 0.0)  # as the ledger has it
        self.got_s = dict.fromkeys(cost_s, 0.0)  # for its weight, as it really was
        self.jobs = 0

    def start(self, tenants: set[int]) -> int:
        self.jobs += 10
        found: list[Head] = [
            head(
                self.jobs + tenant,
                0,
                tenant,
                weight=self.weight[tenant],
                cost_s=self.cost_s[tenant],
                served_s=self.served_s[tenant],
            )
            for tenant in tenants
        ]
        planned = plan(COSTED, self.state, found, 1)
        take = planned.takes[0]
        tenant = take.head.tenant_id
        self.served_s[tenant] += take.moved_s
        self.got_s[tenant] += self.cost_s[tenant] / self.weight[tenant]
        self.state = planned.state
        return tenant


def step_s(service: _Service) -> float:
    """One job of each of the two tenants with the greatest: no fair order of whole jobs can promise less."""
    return sum(sorted(cost / service.weight[tenant] for tenant, cost in service.cost_s.items())[-2:]) + 1e-6


@given(st.tuples(costs, costs, costs), st.tuples(*[st.integers(1, 4)] * 3), st.integers(1, 150))
def test_tenants_share_service_within_one_job_each(
    cost: tuple[float, float, float], weight: tuple[int, int, int], starts: int
) -> None:
    service = _Service(dict(enumerate(cost, 1)), dict(enumerate(weight, 1)))
    for _ in range(starts):
        service.start({1, 2, 3})
    assert max(service.got_s.values()) - min(service.got_s.values()) <= step_s(service)


@given(costs, costs, st.integers(1, 100), st.integers(1, 100))
def test_a_tenant_that_was_idle_is_owed_nothing(first: float, second: float, alone: int, both: int) -> None:
    service = _Service({1: first, 2: second}, {1: 1, 2: 1})
    for _ in range(alone):
        service.start({1})
    before_s = service.got_s[1]
    for _ in range(both):
        service.start({1, 2})
    assert abs(service.got_s[1] - before_s - service.got_s[2]) <= step_s(service)


@settings(max_examples=20)
@given(st.floats(DEBT_MAX_S * 2, 1e9), st.floats(1, 60))
def test_a_debt_is_capped(owed_s: float, cost_s: float) -> None:
    """A tenant whose service was counted far too high starts again after at most an hour of the other's service."""
    service = _Service({1: 1.0, 2: cost_s}, {1: 1, 2: 1})
    service.served_s[1] = capped(owed_s, service.state.virtual_s)
    starts = 1
    while service.start({1, 2}) == 2:
        starts += 1
        assert starts * cost_s <= DEBT_MAX_S + 2 * cost_s
