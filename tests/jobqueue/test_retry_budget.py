"""The retry budget of a queue: retries wait for it, nothing else does, and nobody dies of it."""

from __future__ import annotations

import pytest

from jobqueue import upkeep
from jobqueue.policy import budget
from jobqueue.types import FLEET
from jobqueue.why import why
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def retries(count: int, *, second: float = 0, queue: str = "default", **changes: object) -> list[int]:
    """Jobs that failed at that second and are due for another try two seconds later."""
    changes.setdefault("max_attempts", 100)
    job_ids = cast.enqueue_many(count, now=at(second), queue=cast.queue(queue), **changes)
    taken = 0
    while taken < count:
        found = cast.claim(queue, now=at(second), limit=100)
        taken += len(found)
        for lease in found:
            cast.fail(lease, now=at(second))
    return job_ids


def ready(job_ids: list[int]) -> int:
    return sum(cast.place(job_id) == "readyjob" for job_id in job_ids)


def test_no_more_retries_become_ready_than_the_budget_allows() -> None:
    cast.queue(retry_budget_share=0.5, retry_budget_burst=3)
    waiting = retries(10)
    assert upkeep.promote(now=at(2)) == 8  # half of ten first attempts, and three
    assert ready(waiting) == 8


@pytest.mark.parametrize("is_folded", [False, True])
def test_what_was_spent_is_counted_before_and_after_it_is_folded(is_folded: bool) -> None:
    cast.queue(retry_budget_share=0, retry_budget_burst=3)
    retries(10)
    upkeep.promote(now=at(2))
    if is_folded:
        upkeep.fold()
    assert upkeep.promote(now=at(3)) == 0


def test_a_retry_that_waits_for_the_budget_lives_and_gets_its_turn() -> None:
    cast.queue(retry_budget_share=0, retry_budget_burst=3, retry_budget_window_s=60)
    waiting = retries(5)
    assert upkeep.promote(now=at(2)) == 3
    assert upkeep.promote(now=at(61.9)) == 0
    assert upkeep.promote(now=at(62.1)) == 2
    assert ready(waiting) == 5


def test_first_attempts_earn_retries() -> None:
    cast.queue(retry_budget_share=0.2, retry_budget_burst=0)
    retries(5)
    assert upkeep.promote(now=at(2)) == 1
    cast.enqueue_many(10, now=at(3))
    cast.claim(now=at(3), limit=11)
    assert upkeep.promote(now=at(3)) == 2


def test_second_attempts_earn_none() -> None:
    cast.queue(retry_budget_share=1, retry_budget_burst=0)
    retries(5)
    upkeep.promote(now=at(2))
    for lease in cast.claim(now=at(2), limit=5):
        assert lease.attempt == 2
        cast.fail(lease, now=at(2))
    assert upkeep.promote(now=at(10)) == 0


def test_delayed_and_released_work_needs_no_budget() -> None:
    cast.queue(retry_budget_share=0, retry_budget_burst=0)
    cast.enqueue(now=at(0), delay_s=1)
    cast.release(cast.leased(now=at(0)), now=at(0), delay_s=1)
    assert upkeep.promote(now=at(5)) == 2


def test_retries_without_budget_hide_nobody() -> None:
    """Not delayed work, and not the retries of another queue."""
    cast.queue(retry_budget_share=0, retry_budget_burst=0)
    waiting = retries(30)
    other = retries(1, queue="other")
    delayed = cast.enqueue(now=at(0), delay_s=3)
    assert upkeep.promote(limit=2, now=at(60)) == 2
    assert ready([*other, delayed]) == 2
    assert ready(waiting) == 0


def test_the_longest_due_goes_first() -> None:
    cast.queue(retry_budget_share=0, retry_budget_burst=1)
    (late,) = retries(1, second=5)
    (early,) = retries(1, second=0)
    upkeep.promote(now=at(30))
    assert (cast.place(early), cast.place(late)) == ("readyjob", "scheduledjob")


def test_a_deadline_ends_a_retry_that_waits() -> None:
    cast.queue(retry_budget_share=0, retry_budget_burst=0)
    (job_id,) = retries(1, deadline=at(30))
    assert upkeep.promote(now=at(29)) == 0
    upkeep.expire(now=at(30))
    assert cast.row("dlq_deadletter", job_id)["reason"] == "deadline_exceeded"


def test_why_tells_of_a_retry_that_waits_for_the_budget() -> None:
    cast.queue(retry_budget_share=0, retry_budget_burst=0)
    (job_id,) = retries(1)
    before, after = (why(job_id, scope=FLEET, now=at(second)).gates[0] for second in (1, 10))
    assert (before.gate, before.until is not None) == ("retry_wait", True)
    assert (after.gate, after.until) == ("retry_wait", None)
    assert "retry budget" in after.detail


@pytest.mark.parametrize(("share", "burst", "firsts"), [(0.2, 0, 7), (0.2, 2, 10), (1.5, 0, 3), (0, 4, 9)])
def test_the_statement_allows_what_the_policy_allows(share: float, burst: int, firsts: int) -> None:
    cast.queue(retry_budget_share=share, retry_budget_burst=burst)
    retries(firsts)
    wanted = budget.retries_left(share=share, burst=burst, firsts=firsts, retries=0)
    assert upkeep.promote(now=at(2)) == min(firsts, wanted)
