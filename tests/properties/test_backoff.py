"""The wait before a retry: bounded, growing, never an overflow; and the same in Python and in SQL."""

from __future__ import annotations

import math

import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobqueue.policy import backoff
from tests import cast
from tests.cast import at

seconds = st.floats(0.1, 86_400)
attempts = st.integers(1, 100_000)
jitters = st.floats(0.5, 1.0)


@given(attempts, seconds, seconds)
def test_the_longest_wait_is_positive_finite_and_capped(attempt: int, base: float, cap: float) -> None:
    ceiling = backoff.ceiling_s(attempt, base_s=base, cap_s=cap)
    assert 0 < ceiling <= cap
    assert math.isfinite(ceiling)


@given(attempts, seconds, seconds)
def test_the_longest_wait_never_falls(attempt: int, base: float, cap: float) -> None:
    here, next_ = (backoff.ceiling_s(n, base_s=base, cap_s=cap) for n in (attempt, attempt + 1))
    assert here <= next_ <= 2 * here


@given(attempts, seconds, seconds, jitters, st.integers(0, 86_400))
def test_a_wait_lies_in_the_upper_half_or_on_its_floor(
    attempt: int, base: float, cap: float, jitter: float, floor: int
) -> None:
    ceiling = backoff.ceiling_s(attempt, base_s=base, cap_s=cap)
    wait = backoff.delay_s(attempt, base_s=base, cap_s=cap, jitter=jitter, retry_after_s=floor)
    assert wait == floor or ceiling / 2 <= wait <= ceiling
    assert wait >= floor


@pytest.mark.parametrize(
    ("attempt", "wait"), [(1, 2), (2, 4), (11, 2048), (12, 3600), (47, 3600), (1_025, 3600), (100_000, 3600)]
)
def test_the_waits_of_the_default_queue(attempt: int, wait: float) -> None:
    """S83."""
    assert backoff.ceiling_s(attempt, base_s=2, cap_s=3600) == wait


@pytest.mark.django_db
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 99), seconds, seconds, jitters, st.none() | st.integers(0, 86_400))
def test_the_statement_waits_as_the_policy_says(
    attempt: int, base: float, cap: float, jitter: float, floor: int | None
) -> None:
    with transaction.atomic(using=cast.SHARD):
        lease = cast.leased(now=at(0), max_attempts=100)
        with connections[cast.SHARD].cursor() as cursor:
            cursor.execute("UPDATE queue_lease SET attempt = %s", [attempt])
            cursor.execute("UPDATE queue_policyrow SET backoff_base_s = %s, backoff_cap_s = %s", [base, cap])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("jobqueue.leases.random.uniform", lambda low, high: jitter)
            next_at = cast.fail(lease, now=at(0), retry_after_s=floor).next_attempt_at
        transaction.set_rollback(True, using=cast.SHARD)
    expected = backoff.delay_s(attempt, base_s=base, cap_s=cap, jitter=jitter, retry_after_s=floor or 0)
    assert next_at is not None
    assert (next_at - at(0)).total_seconds() == pytest.approx(expected, abs=2e-6)
