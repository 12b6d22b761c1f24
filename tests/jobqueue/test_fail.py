"""Failing: tried again after a wait, out of the schedule, or cancelled as was asked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobqueue import leases, reads, upkeep
from jobqueue.types import FLEET
from jobsplatform.errors import AlreadyFinished, LeaseExpired, UnknownErrorClass
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def test_a_transient_failure_is_tried_again_after_a_wait() -> None:
    lease = cast.leased(now=at(0))
    failed = cast.fail(lease, now=at(1))
    assert (failed.state, failed.reason, failed.replayed) == ("scheduled", None, False)
    assert failed.next_attempt_at is not None
    assert at(2) <= failed.next_attempt_at <= at(3)
    waiting = cast.row("queue_scheduledjob", lease.job_id)
    assert (waiting["due_at"], waiting["reason"]) == (failed.next_attempt_at, "retry")


@pytest.mark.parametrize("error_class", ["transient", "overload", "uncertain"])
def test_every_class_but_permanent_is_tried_again(error_class: str) -> None:
    lease = cast.leased(now=at(0))
    assert cast.fail(lease, now=at(1), error_class=error_class).state == "scheduled"


def test_a_permanent_failure_is_dead_at_once() -> None:
    lease = cast.leased(now=at(0))
    failed = cast.fail(lease, now=at(1), error_class="permanent")
    assert (failed.state, failed.reason, failed.next_attempt_at) == ("dead", "invalid", None)
    assert cast.row("dlq_deadletter", lease.job_id)["attempt"] == 1


def test_used_up_attempts_are_exhausted() -> None:
    job_id = cast.enqueue(now=at(0), max_attempts=3)
    for turn in range(3):
        lease = cast.claim_one(now=at(100 * turn + 1))
        failed = cast.fail(lease, now=at(100 * turn + 2))
        upkeep.promote(now=at(100 * turn + 90))
    assert (failed.state, failed.reason) == ("dead", "exhausted")
    dead = cast.row("dlq_deadletter", job_id)
    assert (dead["attempt"], dead["generation"], dead["error_class"]) == (3, 3, "transient")


def test_an_uncertain_last_failure_is_uncertain() -> None:
    lease = cast.leased(now=at(0), max_attempts=1)
    assert cast.fail(lease, now=at(1), error_class="uncertain").reason == "uncertain"


def test_the_wait_doubles_and_is_capped() -> None:
    q = cast.queue("quick", backoff_base_s=1, backoff_cap_s=3, max_attempts=9)
    cast.enqueue(queue=q, now=at(0))
    for turn, ceiling in enumerate((1, 2, 3, 3, 3)):
        lease = cast.claim_one(q, now=at(100 * turn + 1))
        next_at = cast.fail(lease, now=at(100 * turn + 2)).next_attempt_at
        assert next_at is not None
        assert ceiling / 2 <= (next_at - at(100 * turn + 2)).total_seconds() <= ceiling
        upkeep.promote(now=at(100 * turn + 90))


def test_the_worker_s_wait_is_a_floor() -> None:
    lease = cast.leased(now=at(0))
    assert cast.fail(lease, now=at(1), retry_after_s=500).next_attempt_at == at(501)


def test_a_short_floor_does_not_shorten_the_wait() -> None:
    lease = cast.leased(now=at(0), queue=cast.queue("slow", backoff_base_s=100))
    failed = cast.fail(lease, now=at(1), retry_after_s=1)
    assert failed.next_attempt_at is not None
    assert failed.next_attempt_at >= at(51)


def test_jobs_that_fail_together_come_back_apart() -> None:
    cast.enqueue_many(30, queue=cast.queue("slow", backoff_base_s=100))
    held = cast.claim("slow", limit=30, now=at(0))
    calls = [leases.Fail(**cast.key_of(lease), error_class="transient") for lease in held]
    answers = leases.fail(calls, now=at(1))
    assert len({answer.next_attempt_at for answer in answers if isinstance(answer, leases.Failed)}) > 20


def test_an_unknown_class_is_refused_before_anything_is_done() -> None:
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id), pytest.raises(UnknownErrorClass):
        cast.fail(lease, now=at(1), error_class="zzz")


def test_a_repeat_is_replayed_with_its_first_answer() -> None:
    lease = cast.leased(now=at(0))
    first = cast.fail(lease, now=at(1), message="m")
    with cast.changes_nothing(lease.job_id):
        again = cast.fail(lease, now=at(2), message="m")
    assert again == leases.Failed(first.state, first.next_attempt_at, first.reason, replayed=True)


def test_a_repeat_is_replayed_while_a_later_generation_runs() -> None:
    lease = cast.leased(now=at(0))
    first = cast.fail(lease, now=at(1))
    upkeep.promote(now=at(60))
    later = cast.claim_one(now=at(61))
    with cast.changes_nothing(later.job_id):
        assert cast.fail(lease, now=at(62)).next_attempt_at == first.next_attempt_at


def test_a_repeat_of_a_fatal_failure_is_replayed() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1), error_class="permanent")
    with cast.changes_nothing(lease.job_id):
        again = cast.fail(lease, now=at(2), error_class="permanent")
    assert (again.state, again.reason, again.replayed) == ("dead", "invalid", True)


def test_a_failure_with_other_words_is_no_repeat() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1), error_class="permanent", message="one")
    with cast.changes_nothing(lease.job_id), pytest.raises(AlreadyFinished):
        cast.fail(lease, now=at(2), error_class="permanent", message="two")


def test_a_failure_at_expiry_is_refused() -> None:
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id), pytest.raises(LeaseExpired):
        cast.fail(lease, now=at(30))


def test_nul_in_a_message_is_replaced() -> None:
    """S69."""
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1), message="a\0b")
    assert cast.row("queue_attempt", lease.job_id)["message"] == "a\ufffdb"


def test_a_long_message_is_cut_between_characters() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1), message="x" + "é" * 5_000)
    kept = cast.row("queue_attempt", lease.job_id)["message"]
    assert kept == "x" + "é" * 4_095


def test_two_long_messages_with_one_beginning_are_two_calls() -> None:
    lease = cast.leased(now=at(0), max_attempts=1)
    cast.fail(lease, now=at(1), message="x" * 9_000)
    with pytest.raises(AlreadyFinished):
        cast.fail(lease, now=at(2), message="x" * 9_000 + "y")


def test_a_job_shows_its_last_error() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1), message="no route")
    view = reads.job(lease.job_id, scope=FLEET)
    assert (view.error_class, view.error_message, view.error_at) == ("transient", "no route", at(1))


def test_failures_are_history_and_counted() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(2))
    attempt = cast.row("queue_attempt", lease.job_id)
    assert (attempt["outcome"], attempt["led_to"], attempt["service_ms"]) == ("failed", "scheduled", 2000)
    assert cast.read("SELECT sum(failed), sum(retried), sum(dead) FROM queue_lanedelta") == [(1, 1, 0)]


# Deadlines


def test_a_retry_that_would_start_after_the_deadline_is_dead() -> None:
    lease = cast.leased(now=at(0), deadline=at(100))
    failed = cast.fail(lease, now=at(1), retry_after_s=99)
    assert (failed.state, failed.reason) == ("dead", "deadline_exceeded")


def test_a_retry_before_the_deadline_is_tried() -> None:
    lease = cast.leased(now=at(0), deadline=at(100))
    assert cast.fail(lease, now=at(1), retry_after_s=98).state == "scheduled"


def test_a_failure_after_the_deadline_is_dead() -> None:
    lease = cast.leased(now=at(0), deadline=at(10))
    assert cast.fail(lease, now=at(11)).reason == "deadline_exceeded"


def test_a_permanent_failure_says_so_even_after_the_deadline() -> None:
    lease = cast.leased(now=at(0), deadline=at(10))
    assert cast.fail(lease, now=at(11), error_class="permanent").reason == "invalid"


# Cancel of a running job


def test_a_failure_after_a_cancel_is_cancelled() -> None:
    lease = cast.leased(now=at(0))
    cast.cancel(lease.job_id, now=at(1))
    assert cast.fail(lease, now=at(2)).state == "cancelled"
    assert cast.place(lease.job_id) == "result"
    assert reads.result(lease.job_id, scope=FLEET).outcome == "cancelled"


def test_a_fatal_failure_after_a_cancel_is_cancelled_too() -> None:
    lease = cast.leased(now=at(0))
    cast.cancel(lease.job_id, now=at(1))
    assert cast.fail(lease, now=at(2), error_class="permanent").state == "cancelled"


def test_a_message_queue_s_dead_letters_carry_the_last_error() -> None:
    lease = cast.leased(now=at(0), max_attempts=1)
    cast.fail(lease, now=at(1), message="lost")
    dead = cast.row("dlq_deadletter", lease.job_id)
    assert (dead["message"], dead["error_class"], dead["failed_at"]) == ("lost", "transient", at(1))


def test_a_batch_of_failures_answers_in_order() -> None:
    cast.enqueue_many(3)
    held = cast.claim(limit=3, now=at(0))
    classes = ["transient", "permanent", "transient"]
    calls = [
        leases.Fail(**cast.key_of(x), error_class=c) for x, c in zip(reversed(held), classes, strict=True)
    ]
    answers = leases.fail(calls, now=at(0) + timedelta(seconds=1))
    assert [answer.state for answer in answers if isinstance(answer, leases.Failed)] == [
        "scheduled",
        "dead",
        "scheduled",
    ]
