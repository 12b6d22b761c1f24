"""Claims over several shards: what is aimed at is there, is most urgent first, and keeps the bands' shares."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jobqueue.policy.routing import PARALLEL_MAX, Heads, Inversions, Waiting, strict_aims, used, weighted_aims
from jobqueue.policy.shares import Use, targets
from jobqueue.policy.types import BandPolicy, Chosen, Policy

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
BANDS = range(5)

waitings = st.builds(Waiting, st.integers(1, 50), st.floats(0, 1_000))
heads_of_shards = st.dictionaries(
    st.integers(0, 7), st.dictionaries(st.integers(0, 4), waitings, max_size=5), min_size=1, max_size=8
).map(lambda found: Heads({shard: dict(bands) for shard, bands in found.items()}))


@given(heads_of_shards, st.integers(1, 100))
def test_strict_work_is_claimed_from_the_shards_with_the_oldest_heads(heads: Heads, limit: int) -> None:
    aims = strict_aims(FIVE, heads, BANDS, limit)
    there = heads.shards_of(0)
    assert [aim.shard for aim in aims] == there[: len(aims)]
    assert bool(aims) == bool(there)
    assert len(aims) <= PARALLEL_MAX
    assert all(aim.band == 0 and aim.chosen is Chosen.STRICT for aim in aims)
    room = sum(heads.by_shard[shard][0].jobs for shard in there[:PARALLEL_MAX])
    assert sum(aim.limit for aim in aims) <= limit
    if len(there) <= limit:
        assert sum(aim.limit for aim in aims) == min(limit, room)


@given(heads_of_shards, st.integers(1, 100), st.booleans())
def test_weighted_aims_ask_for_no_more_than_is_there_and_lose_no_opportunity(
    heads: Heads, limit: int, floor: bool
) -> None:
    aims = weighted_aims(FIVE, None, heads, BANDS, limit, floor=floor)
    allowed = {3, 4} if floor else {1, 2, 3, 4}
    for aim in aims:
        assert aim.band in allowed
        assert 0 < aim.limit <= heads.by_shard[aim.shard][aim.band].jobs
    assert len({(aim.shard, aim.band) for aim in aims}) == len(aims)
    assert sum(aim.limit for aim in aims) <= limit
    assert bool(aims) == bool(heads.bands(allowed))


@given(st.lists(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, unique=True), min_size=2, max_size=8))
def test_bands_share_by_weight_wherever_their_work_is(spread: list[list[int]]) -> None:
    """A shard that holds P4 alone does not lend its turns to P4 while another has P1."""
    full = {shard: {band: Waiting(10_000, 0.0) for band in bands} for shard, bands in enumerate(spread)}
    present = {band for bands in spread for band in bands}
    turn, counts = None, Counter[int]()
    weights = {band: FIVE.bands[band].weight for band in present}
    rounds = 4 * sum(weights.values())
    for _ in range(rounds):
        (aim,) = weighted_aims(FIVE, turn, Heads(full), BANDS, 1)
        turn = used(FIVE, turn, [aim.band])
        counts[aim.band] += 1
    assert counts == {band: 4 * weight for band, weight in weights.items()}


@given(heads_of_shards, st.integers(1, 60))
def test_taking_what_was_aimed_at_ends(heads: Heads, limit: int) -> None:
    turn = None
    for _ in range(2_000):
        aims = strict_aims(FIVE, heads, BANDS, limit) or weighted_aims(FIVE, turn, heads, BANDS, limit)
        if not aims:
            break
        for aim in aims:
            heads.took(aim, aim.limit)
            if aim.chosen is not Chosen.STRICT:
                turn = used(FIVE, turn, [aim.band] * aim.limit)
    assert heads.bands(BANDS) == []


def test_a_start_that_passed_over_hidden_work_is_found_out_with_how_long_that_had_waited() -> None:
    meter = Inversions()
    meter.started(10.0, 4, Chosen.LENT, {4})
    meter.started(10.0, 4, Chosen.SHARE, {1, 4})  # the map showed it: this was P4's own share
    meter.started(10.0, 4, Chosen.FLOOR, {4})  # and so is the floor
    meter.started(10.0, 2, Chosen.SHARE, {2})  # one level is no inversion
    assert [(start.band, waited) for start, waited in meter.seen({1: Waiting(3, 9.75)})] == [(4, 0.25)]
    assert meter.seen({1: Waiting(3, 9.75)}) == []
    meter.started(20.0, 3, Chosen.SHARE, {3})
    assert meter.seen({0: Waiting(1, 20.5)}) == []  # it came later


# Shares of limits

uses_of_shards = st.dictionaries(
    st.integers(0, 7),
    st.builds(Use, st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)),
    min_size=1,
    max_size=8,
)


@given(st.integers(0, 100), uses_of_shards)
def test_targets_never_exceed_the_limit_nor_take_what_is_used(limit: int, uses: dict[int, Use]) -> None:
    after = targets(limit, uses)
    total_used = sum(use.used for use in uses.values())
    is_kept = after == {number: use.share for number, use in uses.items()}
    assert sum(after.values()) <= max(limit, total_used)
    if not is_kept:
        assert all(after[number] >= use.used for number, use in uses.items())
        assert sum(after.values()) == max(limit, total_used)


@given(st.integers(1, 100), uses_of_shards)
def test_no_room_is_kept_from_a_shard_that_wants_it(limit: int, uses: dict[int, Use]) -> None:
    after = targets(limit, uses)
    starved = [number for number, use in uses.items() if use.is_starved]
    for number in starved:
        is_filled = after[number] >= uses[number].used + uses[number].wanted
        has_spare = any(after[n] > use.used + use.wanted for n, use in uses.items())
        assert is_filled or not has_spare


def test_no_shard_is_last_for_ever() -> None:
    uses = {number: Use(0, 0, 5) for number in range(4)}
    assert {max(targets(1, uses, first), key=lambda n: targets(1, uses, first)[n]) for first in range(4)} == {
        0,
        1,
        2,
        3,
    }


def test_what_is_spare_is_spread() -> None:
    assert targets(10, {n: Use(0, 0, 0) for n in range(4)}) == {0: 3, 1: 3, 2: 2, 3: 2}
    assert targets(10, {0: Use(3, 3, 20), 1: Use(3, 0, 0), 2: Use(2, 0, 0), 3: Use(2, 1, 0)}) == {
        0: 9,
        1: 0,
        2: 0,
        3: 1,
    }
