"""Admission as a pure decision: what is taken from which limit, who is refused by what, and when to return."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsplatform.errors import JobsPlatformError, QueueFull, QuotaExceeded, RateLimited
from tenants import admission
from tenants.admission import ALL_BANDS, ALL_QUEUES, ALL_TENANTS, Admitted, Ask, Cause, Limit, Refused, Scope

TENANT = Scope(1, ALL_QUEUES, ALL_BANDS)
IN_QUEUE = Scope(1, "default", ALL_BANDS)
IN_BAND = Scope(1, "default", 0)
QUEUE = Scope(ALL_TENANTS, "default", ALL_BANDS)


def _ask(queue: str = "default", band: int = 0, payload_bytes: int = 1) -> Ask:
    return Ask(1, queue, band, payload_bytes)


def _deep(scope: Scope, max_depth: int, waiting: int = 0) -> Limit:
    limit = Limit(scope, max_depth)
    limit.count(waiting)
    return limit


def _causes(asks: Sequence[Ask], *limits: Limit) -> list[Cause | None]:
    verdicts = admission.judge(asks, {limit.scope: limit for limit in limits})
    return [verdict.cause if isinstance(verdict, Refused) else None for verdict in verdicts]


def _error(limit: Limit, *, asked: int = 1, drain_per_s: float | None = None) -> JobsPlatformError:
    last = admission.judge([_ask(payload_bytes=100)] * asked, {limit.scope: limit})[-1]
    assert isinstance(last, Refused)
    return admission.error(last, drain_per_s)


def test_without_limits_all_come_in() -> None:
    assert admission.judge([_ask(payload_bytes=10**9)], {}) == [Admitted(())]


def test_asks_of_one_call_count_against_each_other() -> None:
    assert _causes([_ask()] * 4, _deep(TENANT, 3, waiting=1)) == [None, None, Cause.DEPTH, Cause.DEPTH]


def test_a_tenant_beyond_its_depth_takes_nothing() -> None:
    assert _causes([_ask()], _deep(TENANT, 3, waiting=7)) == [Cause.DEPTH]


def test_a_limit_of_a_band_binds_that_band() -> None:
    asks = [_ask(), _ask(), _ask(band=1), _ask("other")]
    assert _causes(asks, _deep(IN_BAND, 1)) == [None, Cause.DEPTH, None, None]


def test_every_covering_limit_must_have_room() -> None:
    asks = [_ask(), _ask(), _ask("other")]
    assert _causes(asks, _deep(TENANT, 9), _deep(IN_QUEUE, 1)) == [None, Cause.DEPTH, None]


def test_a_refused_ask_takes_nothing_from_other_limits() -> None:
    tenant = Limit(TENANT, 2, rate_per_s=1, burst=2, tokens=2)
    tenant.count(0)
    full = _deep(IN_QUEUE, 0)
    assert _causes([_ask(), _ask("other"), _ask("other")], tenant, full) == [Cause.DEPTH, None, None]


def test_a_large_payload_is_refused_and_takes_no_room() -> None:
    limit = Limit(TENANT, 1, max_payload_bytes=10)
    limit.count(0)
    assert _causes([_ask(payload_bytes=11), _ask(payload_bytes=10)], limit) == [Cause.BYTES, None]


def test_a_rate_admits_its_whole_tokens() -> None:
    limit = Limit(TENANT, rate_per_s=1, burst=5, tokens=2.7)
    assert _causes([_ask()] * 3, limit) == [None, None, Cause.RATE]


def test_rounding_loses_no_token() -> None:
    assert _causes([_ask()], Limit(TENANT, rate_per_s=0.1, burst=1, tokens=sum([0.1] * 10))) == [None]


@given(st.lists(st.tuples(st.sampled_from(["default", "other"]), st.integers(0, 2)), max_size=30), st.data())
def test_what_is_admitted_is_what_was_spent_and_never_more_than_was_left(
    wanted: list[tuple[str, int]], data: st.DataObject
) -> None:
    limits = {}
    for scope in (TENANT, IN_QUEUE, IN_BAND, QUEUE):
        if data.draw(st.booleans()):
            limits[scope] = _deep(scope, data.draw(st.integers(0, 20)), data.draw(st.integers(0, 25)))
            limits[scope].tokens = data.draw(st.none() | st.floats(0, 20))
    rooms = {scope: (limit.room, limit.tokens) for scope, limit in limits.items()}
    asks = [_ask(*one) for one in wanted]
    verdicts = admission.judge(asks, limits)
    for scope, limit in limits.items():
        room, tokens = rooms[scope]
        admitted = sum(
            isinstance(v, Admitted) and scope in a.scopes for a, v in zip(asks, verdicts, strict=True)
        )
        assert admitted == limit.taken
        assert room is not None
        assert limit.room == room - admitted >= 0
        assert tokens is None or admitted <= tokens + 1e-9
    refused = [(a, v) for a, v in zip(asks, verdicts, strict=True) if isinstance(v, Refused)]
    assert all(v.limit.scope in a.scopes for a, v in refused)


# Counting


def test_a_small_depth_is_counted_each_time() -> None:
    assert Limit(TENANT, 1_000, room=990, counted_s=0).must_count(1)


def test_far_from_a_large_depth_a_recent_count_will_do() -> None:
    assert not Limit(TENANT, 100_000, room=50_000, counted_s=0.5).must_count(100)
    assert Limit(TENANT, 100_000, room=50_000, counted_s=1.5).must_count(100)


def test_near_a_large_depth_it_is_counted_again() -> None:
    assert Limit(TENANT, 10_000, room=900, counted_s=0).must_count(1)
    assert Limit(TENANT, 10_000, room=1_900, counted_s=0).must_count(901)


def test_a_costly_count_is_not_made_by_every_refused_caller() -> None:
    assert not Limit(TENANT, 1_000_000, room=0, counted_s=0.5).must_count(1)
    assert Limit(TENANT, 1_000_000, room=0, counted_s=1.5).must_count(1)


def test_a_count_of_the_future_is_made_again() -> None:
    assert Limit(TENANT, 100_000, room=50_000, counted_s=-5).must_count(1)


def test_without_a_depth_nothing_is_counted() -> None:
    assert not Limit(TENANT, rate_per_s=1, burst=1, tokens=1).must_count(1)


# Warnings


@pytest.mark.parametrize(
    ("waiting", "asked", "is_told"), [(6, 1, False), (7, 1, True), (5, 5, True), (8, 1, False)]
)
def test_reaching_four_fifths_is_told_once(waiting: int, asked: int, is_told: bool) -> None:
    limit = _deep(TENANT, 10, waiting)
    admission.judge([_ask()] * asked, {TENANT: limit})
    assert limit.has_reached_warning == is_told


# Refusals


def test_a_full_depth_returns_when_the_drain_has_made_room() -> None:
    full = _error(_deep(IN_QUEUE, 3, waiting=3), drain_per_s=0.1)
    assert isinstance(full, QuotaExceeded)
    assert (full.status, full.code, full.retry_after) == (429, "quota_exceeded", 10)
    assert "queue default" in full.detail


def test_those_refused_together_return_one_after_the_other() -> None:
    assert _error(_deep(TENANT, 0), asked=30, drain_per_s=2).retry_after == 15


def test_a_full_queue_has_a_code_of_its_own() -> None:
    full = _error(_deep(QUEUE, 3, waiting=3), drain_per_s=100)
    assert isinstance(full, QueueFull)
    assert (full.status, full.code, full.retry_after) == (429, "queue_full", 1)


def test_a_time_to_return_is_bounded() -> None:
    assert _error(_deep(TENANT, 0), drain_per_s=1e-9).retry_after == admission.RETRY_SECONDS_MAX
    assert _error(_deep(TENANT, 0), drain_per_s=0.0).retry_after == admission.RETRY_SECONDS_UNMEASURED
    assert _error(_deep(TENANT, 0)).retry_after == admission.RETRY_SECONDS_UNMEASURED


def test_a_rate_returns_when_the_next_token_is_there() -> None:
    slow = _error(Limit(TENANT, rate_per_s=0.1, burst=1, tokens=0.5))
    assert isinstance(slow, RateLimited)
    assert (slow.status, slow.code, slow.retry_after) == (429, "rate_limited", 5)
    assert _error(Limit(TENANT, rate_per_s=100, burst=1, tokens=0.5)).retry_after == 1


def test_a_large_payload_is_over_the_quota() -> None:
    large = _error(Limit(TENANT, max_payload_bytes=10))
    assert isinstance(large, QuotaExceeded)
    assert (large.retry_after or 0) >= 1
    assert "10 bytes" in large.detail
