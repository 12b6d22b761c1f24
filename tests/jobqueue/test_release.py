"""Giving a lease back: not charged, place kept, as often as the queue allows."""

from __future__ import annotations

import pytest

from jobqueue import leases, reads, upkeep
from jobqueue.hub.claims import give_back
from jobqueue.types import FLEET
from jobsplatform.errors import AlreadyFinished, LeaseExpired, StaleGeneration
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def test_a_released_job_is_ready_uncharged_at_its_old_place() -> None:
    lease = cast.leased(now=at(0))
    assert cast.release(lease, now=at(5)) == leases.Released("ready")
    ready = cast.row("queue_readyjob", lease.job_id)
    assert (ready["attempt"], ready["generation"], ready["releases"]) == (0, 1, 1)
    assert (ready["position"], ready["fresh"]) == (at(0), False)


def test_a_release_may_wait() -> None:
    lease = cast.leased(now=at(0))
    assert cast.release(lease, now=at(5), delay_s=60) == leases.Released("scheduled")
    waiting = cast.row("queue_scheduledjob", lease.job_id)
    assert (waiting["due_at"], waiting["reason"], waiting["position"]) == (at(65), "released", at(0))


def test_a_release_of_no_time_is_at_once() -> None:
    lease = cast.leased(now=at(0))
    assert cast.release(lease, now=at(5), delay_s=0).state == "ready"


def test_a_repeat_is_replayed() -> None:
    lease = cast.leased(now=at(0))
    cast.release(lease, now=at(1), delay_s=60)
    with cast.changes_nothing(lease.job_id):
        assert cast.release(lease, now=at(2), delay_s=60) == leases.Released("scheduled", replayed=True)


def test_a_repeat_is_replayed_while_a_later_generation_runs() -> None:
    lease = cast.leased(now=at(0))
    cast.release(lease, now=at(1))
    later = cast.claim_one(now=at(2))
    with cast.changes_nothing(later.job_id):
        assert cast.release(lease, now=at(3)).replayed


def test_a_release_with_another_delay_is_no_repeat() -> None:
    lease = cast.leased(now=at(0))
    cast.release(lease, now=at(1))
    with cast.changes_nothing(lease.job_id), pytest.raises(StaleGeneration):
        cast.release(lease, now=at(2), delay_s=60)


def test_a_release_at_expiry_is_refused() -> None:
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id), pytest.raises(LeaseExpired):
        cast.release(lease, now=at(30))


def test_a_release_after_completion_is_refused() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    with cast.changes_nothing(lease.job_id), pytest.raises(AlreadyFinished):
        cast.release(lease, now=at(2))


def test_releases_cost_no_attempt_however_many() -> None:
    """S87, short: generation and releases count on, attempts don't."""
    job_id = cast.enqueue(now=at(0), max_attempts=2)
    for turn in range(60):
        cast.release(cast.claim_one(now=at(turn)), now=at(turn))
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["attempt"], ready["max_attempts"], ready["releases"], ready["generation"]) == (0, 2, 60, 60)


def test_counts_pass_the_range_of_small_numbers() -> None:
    """S87: forty thousand releases leave no number behind."""
    job_id = cast.enqueue(now=at(0))
    cast.read("UPDATE queue_readyjob SET releases = 40000, generation = 40000 RETURNING 1")
    cast.release(cast.claim_one(now=at(1)), now=at(2))
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["releases"], ready["generation"]) == (40_001, 40_001)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_forty_thousand_releases_cost_no_attempt() -> None:
    """S87."""
    job_id = cast.enqueue(now=at(0))
    for _ in range(40_000):
        cast.release(cast.claim_one(now=at(0)), now=at(0))
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["attempt"], ready["max_attempts"], ready["releases"], ready["generation"]) == (
        0,
        5,
        40_000,
        40_000,
    )


def test_a_queue_may_bound_releases() -> None:
    q = cast.queue("strict", max_releases=2)
    job_id = cast.enqueue(queue=q, now=at(0))
    states = [cast.release(cast.claim_one(q, now=at(turn)), now=at(turn)).state for turn in range(3)]
    assert states == ["ready", "ready", "dead"]
    dead = cast.row("dlq_deadletter", job_id)
    assert (dead["reason"], dead["attempt"]) == ("released_too_often", 0)


def test_what_nobody_started_may_be_given_back_for_ever() -> None:
    q = cast.queue("strict", max_releases=1)
    job_id = cast.enqueue(queue=q, now=at(0))
    for turn in range(25):
        lease = cast.claim_one(q, now=at(turn), prefetch=True)
        assert cast.release(lease, now=at(turn)).state == "ready"
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["attempt"], ready["releases"], ready["lapses"]) == (0, 0, 0)


def test_a_release_by_a_handler_counts_though_its_start_was_not_told() -> None:
    q = cast.queue("strict", max_releases=1)
    cast.enqueue(queue=q, now=at(0))
    states = [
        cast.release(cast.claim_one(q, now=at(turn), prefetch=True), now=at(turn), counts=True).state
        for turn in range(2)
    ]
    assert states == ["ready", "dead"]


def test_what_reached_no_consumer_kills_no_job() -> None:
    q = cast.queue("strict", max_releases=1)
    job_id = cast.enqueue(queue=q)
    for _ in range(3):
        give_back([cast.claim_one(q, now=None)])
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["attempt"], ready["releases"], ready["generation"]) == (0, 0, 3)


def test_a_release_that_was_one_too_many_is_replayed() -> None:
    q = cast.queue("strict", max_releases=1)
    cast.enqueue(queue=q, now=at(0))
    cast.release(cast.claim_one(q, now=at(0)), now=at(0))
    last = cast.claim_one(q, now=at(1))
    cast.release(last, now=at(1))
    assert cast.release(last, now=at(2)) == leases.Released("dead", replayed=True)


def test_a_release_after_a_cancel_is_cancelled() -> None:
    lease = cast.leased(now=at(0))
    cast.cancel(lease.job_id, now=at(1))
    assert cast.release(lease, now=at(2)).state == "cancelled"
    assert reads.job(lease.job_id, scope=FLEET).state == "cancelled"


def test_a_checkpoint_survives_a_release() -> None:
    lease = cast.leased(now=at(0))
    cast.renew(lease, now=at(1), checkpoint="[1]")
    cast.release(lease, now=at(2))
    assert cast.claim_one(now=at(3)).checkpoint == "[1]"


def test_a_release_past_the_deadline_does_not_hide_it() -> None:
    """It was tried: the deadline makes it a dead letter, not an expired job."""
    lease = cast.leased(now=at(0), deadline=at(10))
    cast.release(lease, now=at(11))
    upkeep.expire(now=at(11))
    assert cast.row("dlq_deadletter", lease.job_id)["reason"] == "deadline_exceeded"


def test_a_release_is_history() -> None:
    lease = cast.leased(now=at(0))
    cast.release(lease, now=at(2))
    attempt = cast.row("queue_attempt", lease.job_id)
    assert (attempt["outcome"], attempt["led_to"], attempt["attempt"]) == ("released", "ready", 1)
