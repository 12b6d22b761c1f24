"""What holds for a plan whatever is on offer: bounds, work conservation, order, and that it can be replayed."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from jobqueue.policy.plan import plan, plan_strict, replay
from jobqueue.policy.types import Head, Plan, Policy, State
from tests.cast import at
from tests.policy_cast import after, heads, policies

limits = st.integers(1, 40)
a_policy = st.shared(policies(), key="policy")
a_unit_policy = st.shared(policies(costed=False), key="unit policy")
offered_to_it = a_policy.flatmap(heads)
offered_at_unit_cost = a_unit_policy.flatmap(heads)


@st.composite
def states(draw: st.DrawFn, policy: Policy) -> State:
    """A state that claims before this one left behind."""
    earlier = draw(heads(policy, most=15))
    return plan(policy, State(), earlier, draw(st.integers(0, 15))).state


def both(policy: Policy, state: State, found: list[Head], limit: int) -> tuple[Plan, Plan]:
    return plan_strict(policy, state, found, limit), plan(policy, state, found, limit)


@given(a_policy, a_policy.flatmap(states), offered_to_it, limits, st.integers())
def test_a_plan_does_not_depend_on_the_order_in_which_jobs_are_listed(
    policy: Policy, state: State, found: list[Head], limit: int, seed: int
) -> None:
    shuffled = list(found)
    Random(seed).shuffle(shuffled)
    assert both(policy, state, found, limit) == both(policy, state, shuffled, limit)


@given(a_policy, a_policy.flatmap(states), offered_to_it, limits)
def test_a_plan_takes_each_job_once_and_no_more_than_its_limit(
    policy: Policy, state: State, found: list[Head], limit: int
) -> None:
    for planned in both(policy, state, found, limit):
        ids = [take.head.job_id for take in planned.takes]
        assert len(ids) == len(set(ids)) <= limit
        assert set(ids) <= {head.job_id for head in found}


@given(a_policy, a_policy.flatmap(states), offered_to_it, limits)
def test_no_limit_is_ever_exceeded(policy: Policy, state: State, found: list[Head], limit: int) -> None:
    rooms = {name: room for head in found for name, room in head.rooms}
    for planned in both(policy, state, found, limit):
        used = Counter(name for take in planned.takes for name, _ in take.head.rooms)
        assert all(used[name] <= room for name, room in rooms.items())


@given(a_policy, a_policy.flatmap(states), offered_to_it, limits)
def test_nothing_is_left_that_could_be_taken(
    policy: Policy, state: State, found: list[Head], limit: int
) -> None:
    for planned, is_strict in zip(both(policy, state, found, limit), (True, False), strict=True):
        left = [one for one in after(found, planned.takes) if policy.bands[one.priority].strict == is_strict]
        if len(planned.takes) < limit:
            assert all(any(room <= 0 for _, room in one.rooms) for one in left)


@given(a_policy, a_policy.flatmap(states), offered_to_it, limits)
def test_strict_bands_are_served_in_order_and_weighted_ones_are_not_touched_by_their_plan(
    policy: Policy, state: State, found: list[Head], limit: int
) -> None:
    strict, weighted = both(policy, state, found, limit)
    bands = [take.band for take in strict.takes]
    assert set(bands) <= policy.strict_bands
    assert not {take.band for take in weighted.takes} & policy.strict_bands
    if not any(head.rooms for head in found):
        assert bands == sorted(bands)


@given(a_policy, a_policy.flatmap(states), offered_to_it, limits)
def test_a_tenants_jobs_of_a_band_are_taken_in_their_order(
    policy: Policy, state: State, found: list[Head], limit: int
) -> None:
    for planned in both(policy, state, found, limit):
        by_tenant: dict[tuple[int, int], list[tuple[bool, object, int]]] = {}
        for take in planned.takes:
            head = take.head
            place = (head.fresh, head.position, head.job_id)
            by_tenant.setdefault((take.band, head.tenant_id), []).append(place)
        assert all(places == sorted(places) for places in by_tenant.values())


@given(a_unit_policy, a_unit_policy.flatmap(states), offered_at_unit_cost, limits)
def test_a_claim_of_n_is_n_claims_of_one_at_unit_cost(
    policy: Policy, state: State, found: list[Head], limit: int
) -> None:
    for verb in (plan, plan_strict):
        at_once = verb(policy, state, found, limit)
        ids, left, one_by_one = [], found, state
        for _ in range(limit):
            single = verb(policy, one_by_one, left, 1)
            ids += [take.head.job_id for take in single.takes]
            left, one_by_one = after(left, single.takes), single.state
        assert [take.head.job_id for take in at_once.takes] == ids
        assert at_once.state == one_by_one


@given(a_policy, a_policy.flatmap(states), offered_to_it, limits)
def test_replaying_what_was_started_gives_the_plans_state(
    policy: Policy, state: State, found: list[Head], limit: int
) -> None:
    for planned in both(policy, state, found, limit):
        assert replay(policy, state, planned.takes) == planned.state


@given(a_unit_policy, a_unit_policy.flatmap(states), offered_at_unit_cost, limits, st.integers(0, 40))
def test_a_claim_cut_short_leaves_the_state_of_a_smaller_claim(
    policy: Policy, state: State, found: list[Head], limit: int, kept: int
) -> None:
    whole = plan(policy, state, found, limit)
    kept = min(kept, len(whole.takes))
    assert replay(policy, state, whole.takes[:kept]) == plan(policy, state, found, kept).state


@given(a_policy, a_policy.flatmap(states), offered_to_it, limits)
def test_a_state_survives_its_storage(policy: Policy, state: State, found: list[Head], limit: int) -> None:
    for bulk_only in (False, True):
        after_it = plan(policy, state, found, limit, bulk_only=bulk_only).state
        assert State.from_json(json.loads(json.dumps(after_it.to_json()))) == after_it


@given(a_policy, st.floats(1, 10_000), st.integers(0, 6), st.floats(0, 1e9), st.floats(0, 1e6))
def test_ageing_makes_a_job_more_urgent_but_never_strict(
    policy: Policy, ageing_s: float, band: int, waited_s: float, more_s: float
) -> None:
    band = min(band, len(policy.bands) - 1)
    ageing = Policy(1, policy.bands, ageing_s=ageing_s)
    effective = ageing.effective_band(band, waited_s)
    assert effective == band if policy.bands[band].strict else effective not in policy.strict_bands
    assert 0 <= ageing.effective_band(band, waited_s + more_s) <= effective <= band
    assert policy.effective_band(band, waited_s) == band


@given(a_policy, offered_to_it, limits, st.floats(1, 100), st.floats(0, 10_000))
def test_no_job_is_started_as_strict_because_of_its_age_and_its_own_band_is_kept(
    policy: Policy, found: list[Head], limit: int, ageing_s: float, waited_s: float
) -> None:
    ageing = Policy(1, policy.bands, ageing_s=ageing_s)
    takes = plan(ageing, State(), found, limit, now=at(waited_s)).takes
    offered = {head.job_id: head for head in found}
    for take in takes:
        assert take.band not in policy.strict_bands
        assert take.band <= take.head.priority == offered[take.head.job_id].priority
