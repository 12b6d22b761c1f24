"""What a claim takes is decided by arithmetic alone: the same heads give the same plan, within every bound."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jobqueue.policy.plan import BandPolicy, Head, Policy, plan
from tests.cast import at

POLICY = Policy(1, [BandPolicy(f"P{index}") for index in range(5)])
ROOMS = {1: None, 2: 3, 3: 0, 4: 1}


@st.composite
def heads(draw: st.DrawFn) -> list[Head]:
    found = draw(
        st.lists(
            st.tuples(st.integers(0, 4), st.sampled_from(list(ROOMS)), st.integers(0, 20), st.booleans()),
            max_size=40,
        )
    )
    return [
        Head(
            lane_id=priority * 10 + tenant,
            priority=priority,
            tenant_id=tenant,
            kind="noop",
            room=ROOMS[tenant],
            job_id=index + 1,
            position=at(second),
            fresh=fresh,
        )
        for index, (priority, tenant, second, fresh) in enumerate(found)
    ]


limits = st.integers(1, 50)


@given(heads(), limits, st.randoms())
def test_a_plan_does_not_depend_on_the_order_of_its_heads(
    found: list[Head], limit: int, random: object
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert plan(POLICY, None, found, limit).takes == plan(POLICY, None, shuffled, limit).takes


@given(heads(), limits)
def test_a_plan_takes_each_head_once_and_no_more_than_its_limit(found: list[Head], limit: int) -> None:
    takes = plan(POLICY, None, found, limit).takes
    assert len(takes) <= limit
    assert len({head.job_id for head in takes}) == len(takes)
    assert set(takes) <= set(found)


@given(heads(), limits)
def test_a_plan_never_takes_more_of_a_tenant_than_its_room(found: list[Head], limit: int) -> None:
    taken = Counter(head.tenant_id for head in plan(POLICY, None, found, limit).takes)
    assert all(taken[tenant] <= room for tenant, room in ROOMS.items() if room is not None)


@given(heads(), limits)
def test_a_plan_leaves_nothing_that_it_could_take(found: list[Head], limit: int) -> None:
    takes = plan(POLICY, None, found, limit).takes
    taken = Counter(head.tenant_id for head in takes)
    left = [head for head in found if head not in takes]
    if len(takes) < limit:
        assert all(head.room is not None and taken[head.tenant_id] >= head.room for head in left)


@given(heads(), limits)
def test_a_more_urgent_band_is_never_passed_over(found: list[Head], limit: int) -> None:
    takes = plan(POLICY, None, found, limit).takes
    taken = Counter(head.tenant_id for head in takes)
    least_urgent = max((head.priority for head in takes), default=-1)
    for head in found:
        if head not in takes and head.priority < least_urgent:
            assert head.room is not None
            assert taken[head.tenant_id] >= head.room


@given(heads(), limits)
def test_inside_a_band_returned_work_is_first_and_the_rest_by_age(found: list[Head], limit: int) -> None:
    takes = plan(POLICY, None, found, limit).takes
    keys = [(head.priority, head.fresh, head.position, head.job_id) for head in takes]
    assert keys == sorted(keys)
