"""Deadlines of waiting jobs: expired when it was never tried, a dead letter when it was."""

from __future__ import annotations

import pytest

from jobqueue import reads, upkeep
from jobqueue.types import FLEET
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def test_a_job_that_was_never_claimed_expires_without_a_dead_letter() -> None:
    """S81."""
    job_id = cast.enqueue(now=at(0), deadline=at(10))
    assert upkeep.expire(now=at(10)) == {"expired": 1}
    result = reads.result(job_id, scope=FLEET)
    assert (result.outcome, result.body, result.finished_at) == ("expired", None, at(10))
    assert cast.place(job_id) == "result"


def test_a_deadline_ahead_is_left_alone() -> None:
    job_id = cast.enqueue(now=at(0), deadline=at(10))
    with cast.changes_nothing(job_id):
        assert upkeep.expire(now=at(9.999)) == {}


def test_a_delayed_job_expires_too() -> None:
    job_id = cast.enqueue(now=at(0), delay_s=5, deadline=at(10))
    upkeep.expire(now=at(10))
    assert reads.job(job_id, scope=FLEET).state == "expired"


def test_a_tried_job_is_a_dead_letter() -> None:
    lease = cast.leased(now=at(0), deadline=at(100))
    cast.fail(lease, now=at(1))
    assert upkeep.expire(now=at(100)) == {"dead": 1}
    dead = cast.row("dlq_deadletter", lease.job_id)
    assert (dead["reason"], dead["failed_at"], dead["generation"]) == ("deadline_exceeded", at(100), 1)


def test_a_tried_job_that_waits_ready_is_a_dead_letter() -> None:
    lease = cast.leased(now=at(0), deadline=at(100))
    upkeep.reap(now=at(30))
    upkeep.expire(now=at(100))
    assert cast.row("dlq_deadletter", lease.job_id)["reason"] == "deadline_exceeded"


def test_a_tried_message_expires_without_a_dead_letter() -> None:
    lease = cast.leased(now=at(0), deadline=at(100), kind="message")
    upkeep.reap(now=at(30))
    upkeep.expire(now=at(100))
    assert reads.job(lease.job_id, scope=FLEET).state == "expired"


def test_a_running_job_is_left_to_its_worker() -> None:
    lease = cast.leased(now=at(0), deadline=at(10))
    with cast.changes_nothing(lease.job_id):
        assert upkeep.expire(now=at(11)) == {}
    assert cast.complete(lease, now=at(12)).late


def test_a_job_that_was_claimed_and_given_back_is_a_dead_letter() -> None:
    """The deadline passed after the first claim, tried or not."""
    job_id = cast.enqueue(now=at(0), deadline=at(100))
    cast.claim_one(now=at(0), prefetch=True)
    upkeep.reap(now=at(30))
    upkeep.expire(now=at(100))
    assert reads.job(job_id, scope=FLEET).dead_reason == "deadline_exceeded"


def test_a_pass_takes_the_earliest_deadlines_first() -> None:
    late = cast.enqueue(now=at(0), deadline=at(20))
    early = cast.enqueue(now=at(0), deadline=at(10))
    upkeep.expire(limit=1, now=at(30))
    assert (cast.place(early), cast.place(late)) == ("result", "readyjob")


def test_an_expired_job_is_never_given_out() -> None:
    cast.enqueue(now=at(0), deadline=at(10))
    upkeep.expire(now=at(10))
    assert cast.claim(now=at(11)) == []


def test_only_dead_letters_are_counted_as_dead() -> None:
    cast.enqueue(now=at(0), deadline=at(10))
    upkeep.expire(now=at(10))
    assert cast.read("SELECT coalesce(sum(dead), 0) FROM queue_lanedelta") == [(0,)]
