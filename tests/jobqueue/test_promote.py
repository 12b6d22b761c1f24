"""Due jobs become ready: delayed work and retries at the tail of their lane, released work at its old place."""

from __future__ import annotations

import pytest

from jobqueue import upkeep
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def test_a_due_job_becomes_ready() -> None:
    job_id = cast.enqueue(now=at(0), delay_s=10)
    assert upkeep.promote(now=at(10)) == 1
    assert cast.place(job_id) == "readyjob"


def test_a_job_is_not_promoted_before_its_time() -> None:
    job_id = cast.enqueue(now=at(0), delay_s=10)
    assert upkeep.promote(now=at(9.999)) == 0
    assert cast.place(job_id) == "scheduledjob"


def test_a_delayed_job_enters_at_the_tail() -> None:
    delayed = cast.enqueue(now=at(0), delay_s=10)
    fresh = cast.enqueue(now=at(11))
    upkeep.promote(now=at(12))
    assert [lease.job_id for lease in cast.claim(now=at(13), limit=2)] == [fresh, delayed]


def test_a_promoted_job_became_ready_when_it_was_promoted() -> None:
    job_id = cast.enqueue(now=at(0), delay_s=10)
    upkeep.promote(now=at(12))
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["first_ready_at"], ready["position"], ready["fresh"]) == (at(12), at(12), True)


def test_a_retry_enters_at_the_tail() -> None:
    retried = cast.leased(now=at(0))
    cast.fail(retried, now=at(1))
    waiting = cast.enqueue(now=at(2))
    upkeep.promote(now=at(10))
    assert [lease.job_id for lease in cast.claim(now=at(11), limit=2)] == [waiting, retried.job_id]


def test_released_work_returns_to_its_old_place() -> None:
    lease = cast.leased(now=at(0))
    cast.release(lease, now=at(1), delay_s=10)
    waiting = cast.enqueue(now=at(2))
    upkeep.promote(now=at(11))
    ready = cast.row("queue_readyjob", lease.job_id)
    assert (ready["position"], ready["fresh"]) == (at(0), False)
    assert [lease.job_id for lease in cast.claim(now=at(12), limit=2)] == [lease.job_id, waiting]


def test_a_pass_takes_the_longest_due_first_and_no_more_than_its_limit() -> None:
    late, early = cast.enqueue(now=at(0), delay_s=20), cast.enqueue(now=at(0), delay_s=10)
    assert upkeep.promote(limit=1, now=at(30)) == 1
    assert (cast.place(early), cast.place(late)) == ("readyjob", "scheduledjob")


def test_work_delayed_for_long_does_not_hide_what_is_due() -> None:
    for _ in range(3):
        cast.enqueue_many(100, now=at(0), delay_s=604_800)
    due = cast.enqueue(now=at(0), delay_s=1)
    assert upkeep.promote(limit=200, now=at(1)) == 1
    assert cast.place(due) == "readyjob"


def test_a_promoted_job_wakes_its_sleeping_lane() -> None:
    cast.enqueue(now=at(0), delay_s=10)
    cast.read("UPDATE queue_lane SET is_active = false RETURNING 1")
    upkeep.promote(now=at(10))
    assert len(cast.claim(now=at(11))) == 1


def test_the_ticket_travels_whole() -> None:
    lease = cast.leased(now=at(0), max_attempts=7, deadline=at(900))
    cast.renew(lease, now=at(0.5), checkpoint='{"page": 3}')
    cast.fail(lease, now=at(1), error_class="uncertain")
    before = cast.row("queue_scheduledjob", lease.job_id)
    upkeep.promote(now=at(60))
    after = cast.row("queue_readyjob", lease.job_id)
    shared = set(before) & set(after) - {"position"}
    assert len(shared) == 14
    assert {name: after[name] for name in shared} == {name: before[name] for name in shared}
