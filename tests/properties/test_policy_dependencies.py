"""What a dependency bears and what retries may cost: the algebra, and the statements that compute the same."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobqueue.policy import budget, limit
from jobqueue.policy.breaker import Breaker, BreakerState, Probe, Rules, closed
from jobqueue.policy.limit import Limit
from jobsplatform import sql
from tests import cast
from tests.cast import at

counts = st.integers(0, 10_000)
rules = st.builds(
    Rules,
    share=st.none() | st.floats(0.01, 1),
    calls=st.integers(1, 100),
    window_s=st.integers(1, 600),
    probe_after_s=st.integers(1, 600),
    ramp_s=st.integers(1, 600),
)
news = st.tuples(counts, st.floats(0, 1), st.sampled_from(list(Probe)), st.floats(0.01, 100))


def judged(breaker: Breaker, rule: Rules, one: tuple[int, float, Probe, float], now: datetime) -> Breaker:
    calls, share, probe, _ = one
    return breaker.judged(rule, calls=calls, failures=int(calls * share), probe=probe, now=now)


# The breaker


@given(rules, st.lists(news, max_size=40))
def test_it_closes_by_a_successful_probe_alone(
    rule: Rules, story: list[tuple[int, float, Probe, float]]
) -> None:
    breaker, now = Breaker(), at(0)
    for one in story:
        now += timedelta(seconds=one[3])
        after = judged(breaker, rule, one, now)
        if breaker.state is not BreakerState.CLOSED and after.state is BreakerState.CLOSED:
            assert breaker.state is BreakerState.HALF_OPEN
            assert one[2] is Probe.SUCCEEDED
            assert after.counted_from == after.ramp_from == now
        breaker = after


@given(rules, st.lists(news, max_size=40))
def test_it_stays_open_for_its_whole_time(rule: Rules, story: list[tuple[int, float, Probe, float]]) -> None:
    breaker, now = Breaker(), at(0)
    opened_at = None
    for one in story:
        now += timedelta(seconds=one[3])
        after = judged(breaker, rule, one, now)
        if after.state is BreakerState.OPEN and breaker.state is not BreakerState.OPEN:
            opened_at = now
            assert after.probe_at == now + timedelta(seconds=rule.probe_after_s)
        if after.state is BreakerState.HALF_OPEN and breaker.state is BreakerState.OPEN:
            assert opened_at is not None
            assert now - opened_at >= timedelta(seconds=rule.probe_after_s)
        breaker = after


@given(rules, counts, counts)
def test_it_opens_at_the_share_of_enough_calls_and_not_before(rule: Rules, calls: int, failures: int) -> None:
    failures = min(calls, failures)
    after = Breaker().judged(rule, calls=calls, failures=failures, probe=Probe.NONE, now=at(0))
    wanted = rule.share is not None and calls >= rule.calls and failures >= rule.share * calls
    assert (after.state is BreakerState.OPEN) == wanted


@given(rules, st.sampled_from([Probe.NONE, Probe.SILENT, Probe.RUNNING]), st.floats(0, 10_000))
def test_a_half_open_breaker_waits_for_its_probe_for_ever(rule: Rules, probe: Probe, later: float) -> None:
    half = Breaker(BreakerState.HALF_OPEN, has_probe=True)
    after = half.judged(rule, calls=100, failures=100, probe=probe, now=at(later))
    assert (after.state, after.has_probe) == (BreakerState.HALF_OPEN, probe is Probe.RUNNING)


@given(rules, st.floats(0, 2_000))
def test_the_ramp_ends_with_its_time(rule: Rules, later: float) -> None:
    after = closed(at(0)).judged(rule, calls=0, failures=0, probe=Probe.NONE, now=at(later))
    assert (after.ramp_from is None) == (at(later) >= at(rule.ramp_s))


@given(rules, st.none() | st.floats(-1_000, 0))
def test_the_window_begins_with_the_recovery_or_later(rule: Rules, recovered: float | None) -> None:
    breaker = Breaker(counted_from=None if recovered is None else at(recovered))
    start = breaker.window_start(rule, at(0))
    assert start >= at(-rule.window_s)
    assert recovered is None or start >= at(recovered)


# The concurrency limit


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    most = draw(st.integers(1, 1_000))
    return Limit(draw(st.floats(1, most)), most, draw(st.none() | st.just(at(0))))


@given(limits(), counts, counts, st.floats(-10, 10))
def test_the_limit_stays_between_one_and_its_most(value: Limit, good: int, bad: int, began: float) -> None:
    after = value.after(succeeded=good, overloaded=bad, overloaded_from=at(began) if bad else None, at=at(11))
    assert after.now is not None
    assert after.most is not None
    assert 1 <= after.now <= after.most


@given(limits(), counts, counts)
def test_successes_count_the_same_in_one_batch_or_two(value: Limit, first: int, second: int) -> None:
    assert value.now is not None
    assert value.most is not None
    together = limit.grown(value.now, value.most, first + second)
    apart = limit.grown(limit.grown(value.now, value.most, first), value.most, second)
    assert apart == pytest.approx(together)


@given(st.integers(1, 500), st.integers(2, 1_000))
def test_a_round_of_successes_adds_one_step(whole: int, most: int) -> None:
    grown = limit.grown(whole, most, whole)
    assert grown <= min(most, whole + 1) or whole > most
    assert grown >= min(most, whole + 0.7)


@given(limits(), st.integers(1, 100), st.integers(1, 100))
def test_overload_halves_once_for_calls_that_were_under_way(value: Limit, one: int, other: int) -> None:
    first = value.after(succeeded=0, overloaded=one, overloaded_from=at(5), at=at(6))
    again = first.after(succeeded=0, overloaded=other, overloaded_from=at(5.5), at=at(7))
    assert value.now is not None
    assert first.now == max(1, value.now / 2)
    assert again.now == first.now


@given(counts, st.none() | st.floats(-5, 5))
def test_what_has_no_limit_gets_none(bad: int, began: float | None) -> None:
    started = None if began is None else at(began)
    assert Limit(3.0, None).after(succeeded=1, overloaded=bad, overloaded_from=started, at=at(6)) == Limit()


# The rate and the ramp


@given(st.floats(0.001, 10_000), st.none() | st.integers(1, 1_000))
def test_a_full_window_after_the_other_gives_the_rate(rate: float, burst: int | None) -> None:
    assert limit.burst_of(rate, burst) / limit.window_s(rate, burst) == pytest.approx(rate)
    assert limit.window_s(rate, None) >= 0.999


def test_the_ramp_of_the_defaults() -> None:
    """S85."""
    assert [limit.ramp_at(50, second) for second in (0, 4.9, 5, 9.9, 10, 59)] == [50, 50, 100, 100, 150, 600]


@given(st.integers(1, 1_000), st.floats(-5, 600), st.floats(0, 600))
def test_the_ramp_never_falls(step: int, now: float, later: float) -> None:
    assert step <= limit.ramp_at(step, now) <= limit.ramp_at(step, now + later)


@pytest.mark.django_db
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    most=st.none() | st.integers(1, 6),
    rate=st.none() | st.sampled_from([0.5, 1.0, 3.0]),
    burst=st.none() | st.integers(1, 6),
    ramp_age=st.none() | st.sampled_from([0.0, 4.5, 5.5, 30.0, 90.0]),
    starts=st.lists(st.sampled_from([-30.05, -2.25, -1.55, -0.45, 0.0]), max_size=8),
)
def test_the_statement_leaves_what_the_policy_leaves(
    most: int | None, rate: float | None, burst: int | None, ramp_age: float | None, starts: list[float]
) -> None:
    with transaction.atomic(using=cast.SHARD):
        with connections[cast.SHARD].cursor() as cursor:
            cursor.execute(
                "INSERT INTO queue_dependencystate (name, max_running, limit_now, rate_per_s, rate_burst, ramp_from,"
                " ramp_per_s) VALUES ('d', %s, %s, %s, %s, %s, 2) RETURNING id",
                [most, most, rate, burst, None if ramp_age is None else at(-ramp_age)],
            )
            (number,) = cursor.fetchone()
            for second in starts:
                cursor.execute(
                    "INSERT INTO queue_dependencydelta (dependency, at, started) VALUES ('d', %s, 1)",
                    [at(second)],
                )
        params = {"dependency_ids": [number], "now": at(0)}
        ((_, left),) = sql.rows("jobqueue/dependency_rooms", params, alias=cast.SHARD)
        transaction.set_rollback(True, using=cast.SHARD)
    wanted = [1_000_000]
    if most is not None:
        wanted.append(limit.left(most, 0))
    if rate is not None:
        window = limit.window_s(rate, burst)
        wanted.append(limit.left(limit.burst_of(rate, burst), sum(-window < second for second in starts)))
    if ramp_age is not None and ramp_age < 60:
        wanted.append(limit.left(limit.ramp_at(2, ramp_age), sum(second > -1 for second in starts)))
    assert left == min(wanted)


# The retry budget


@given(st.floats(0, 10), counts, counts, counts)
def test_a_budget_is_spent_whole_and_never_over(share: float, burst: int, firsts: int, retries: int) -> None:
    left = budget.retries_left(share=share, burst=burst, firsts=firsts, retries=retries)
    assert left >= 0
    assert left == 0 or retries + left <= share * firsts + burst < retries + left + 1


@given(st.floats(0, 10), counts, counts, counts, counts)
def test_first_attempts_never_take_budget_away(
    share: float, burst: int, firsts: int, more: int, retries: int
) -> None:
    before = budget.retries_left(share=share, burst=burst, firsts=firsts, retries=retries)
    assert budget.retries_left(share=share, burst=burst, firsts=firsts + more, retries=retries) >= before
