"""The reserved share of bulk bands: it holds under any strict flood, and does nothing where it is not needed."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.policy.floor import EARLY, Floor
from jobqueue.policy.plan import plan
from jobqueue.policy.types import BandPolicy, Chosen, Policy, State
from tests.cast import at
from tests.policy_cast import FIVE, Caller, head

shares = st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.3, 0.5])
limits = st.lists(st.integers(1, 100), min_size=1, max_size=60)


def five(share: float) -> Policy:
    return Policy(1, FIVE.bands, reserved_share=share)


def bulk_marks(policy: Policy, claims: list[tuple[int, dict[int, int]]]) -> list[bool]:
    """Of each start in turn, whether it was in a bulk band."""
    caller = Caller(policy)
    return [take.band in policy.bulk_bands for limit, ready in claims for take in caller.claim(limit, ready)]


@given(shares, limits)
def test_under_a_strict_flood_bulk_has_its_share_at_every_instant(share: float, sizes: list[int]) -> None:
    marks = bulk_marks(five(share), [(size, dict.fromkeys(range(5), 100)) for size in sizes])
    largest = max(sizes)
    for number, bulk in enumerate(accumulate(marks), start=1):
        # Inside a claim the strict part is listed before what is owed.
        assert bulk >= share * (number - largest) - 1


@pytest.mark.parametrize("limit", [1, 10, 100])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_every_window_of_a_flood_has_the_whole_share(share: float, limit: int) -> None:
    marks = bulk_marks(five(share), [(limit, dict.fromkeys(range(5), 100))] * (8_000 // limit))
    sums = [0, *accumulate(marks)]
    for window in (4_000, 4_013, 6_001):
        least = min(sums[end] - sums[end - window] for end in range(window, len(sums)))
        assert least >= share * window


@given(shares, st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=80))
def test_however_much_of_each_claim_is_strict_bulk_gets_its_share(
    share: float, claims: list[tuple[int, int]]
) -> None:
    marks = bulk_marks(
        five(share),
        [(limit, {0: min(limit, strict), 1: 50, 2: 50, 3: 50, 4: 50}) for limit, strict in claims],
    )
    # A cycle of the weights may begin with all that is not bulk.
    slack = 2 + share * (sum(band.weight for band in FIVE.bands) + max(limit for limit, _ in claims))
    assert sum(marks) >= share * len(marks) - slack


@given(limits)
def test_the_floor_is_shared_by_the_bulk_bands_weights(sizes: list[int]) -> None:
    caller, count = Caller(FIVE), Counter[int]()
    for size in sizes * 3:
        count.update(take.band for take in caller.claim(size, dict.fromkeys(range(5), 100)))
    bulk = count[3] + count[4]
    assert abs(count[3] - bulk * 7 / 12) <= 7


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=40), st.integers(1, 100))
def test_absent_bulk_work_earns_no_more_than_one_start(before: list[tuple[int, int]], limit: int) -> None:
    caller = Caller(FIVE)
    for size, strict in before:
        caller.claim(size, {0: strict, 1: 50})
    takes = caller.claim(limit, {0: 100, 3: 100})
    owed = sum(take.chosen is Chosen.FLOOR for take in takes)
    assert owed <= 1 + limit * FIVE.reserved_share * EARLY + 1e-6


@given(st.floats(0, 1), st.integers(1, 200))
def test_the_floor_never_takes_the_whole_of_a_claim_that_has_strict_work(credit: float, limit: int) -> None:
    split = Floor(credit).split(FIVE, limit)
    assert split.strict + split.owed == limit
    assert split.owed <= 1 + limit * FIVE.reserved_share * EARLY + 1e-6


@given(st.floats(0, 1), st.integers(1, 200))
def test_strict_work_is_free_until_just_before_the_first_start_that_is_owed(
    credit: float, limit: int
) -> None:
    floor = Floor(credit)
    free = floor.free(FIVE, limit)
    assert floor.split(FIVE, free) == (free, 0)
    assert free == limit or floor.split(FIVE, free + 1) == (free, 1)
    assert floor.free(five(0.0), limit) == limit


def test_without_a_reserved_share_a_flood_takes_everything() -> None:
    assert not any(bulk_marks(five(0.0), [(10, dict.fromkeys(range(5), 100))] * 50))


def test_without_bulk_bands_there_is_no_floor() -> None:
    policy = Policy(1, [BandPolicy("urgent", strict=True), BandPolicy("rest")])
    takes = [take for _ in range(50) for take in Caller(policy).claim(3, {0: 99, 1: 99})]
    assert {take.chosen for take in takes} == {Chosen.STRICT}


def test_a_bulk_job_that_has_waited_long_is_still_bulk_to_the_floor() -> None:
    ageing = Policy(1, FIVE.bands, ageing_s=10)
    takes = plan(ageing, State(), [head(1, 4)], 1, now=at(1_000), bulk_only=True).takes
    assert [take.band for take in takes] == [4]
