"""Taking back lapsed leases: to the front of the lane, or to quarantine after too many crashes."""

from __future__ import annotations

import pytest

from jobqueue import reads, upkeep
from jobqueue.types import FLEET
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def test_a_lapsed_lease_is_taken_back_to_the_front() -> None:
    lease = cast.leased(now=at(0))
    assert upkeep.reap(now=at(30)) == {"ready": 1}
    ready = cast.row("queue_readyjob", lease.job_id)
    assert (ready["position"], ready["fresh"]) == (at(0), False)


def test_a_live_lease_is_left_alone() -> None:
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id):
        assert upkeep.reap(now=at(29.999)) == {}


def test_a_lapse_is_an_attempt_and_a_crash() -> None:
    lease = cast.leased(now=at(0))
    upkeep.reap(now=at(30))
    ready = cast.row("queue_readyjob", lease.job_id)
    assert (ready["attempt"], ready["crashes"], ready["lapses"], ready["generation"]) == (1, 1, 0, 1)
    attempt = cast.row("queue_attempt", lease.job_id)
    assert (attempt["outcome"], attempt["error_class"], attempt["led_to"]) == (
        "lease_lost",
        "worker_crash",
        "ready",
    )


def test_a_job_that_crashes_its_worker_is_quarantined() -> None:
    """S23: every crash is counted, by verbs."""
    q = cast.queue("grim", max_crashes=5, max_attempts=5)
    job_id = cast.enqueue(queue=q, now=at(0))
    other = cast.enqueue(queue=q, now=at(0), kind="calm")
    for turn in range(5):
        cast.claim_one(q, now=at(turn * 100), kinds=("noop",))
        upkeep.reap(now=at(turn * 100 + 30))
    dead = cast.row("dlq_deadletter", job_id)
    assert (dead["reason"], dead["error_class"]) == ("poison", "worker_crash")
    assert (dead["generation"], dead["crashes"], dead["attempt"]) == (5, 5, 5)
    assert cast.place(other) == "readyjob"
    assert cast.claim(q, now=at(999), kinds=("noop",)) == []


def test_the_queue_says_how_many_crashes_are_too_many() -> None:
    lease = cast.leased(now=at(0), queue=cast.queue("grim", max_crashes=1))
    assert upkeep.reap(now=at(30)) == {"dead": 1}
    assert cast.row("dlq_deadletter", lease.job_id)["reason"] == "poison"


def test_a_crash_at_the_last_attempt_is_exhausted() -> None:
    lease = cast.leased(now=at(0), max_attempts=1)
    upkeep.reap(now=at(30))
    assert cast.row("dlq_deadletter", lease.job_id)["reason"] == "exhausted"


def test_a_message_s_crashes_exhaust_it() -> None:
    lease = cast.leased(now=at(0), kind="message", queue=cast.queue("grim", max_crashes=1))
    upkeep.reap(now=at(30))
    assert cast.row("dlq_deadletter", lease.job_id)["reason"] == "exhausted"


def test_a_lapse_after_the_deadline_is_dead() -> None:
    lease = cast.leased(now=at(0), deadline=at(20))
    assert upkeep.reap(now=at(30)) == {"dead": 1}
    assert cast.row("dlq_deadletter", lease.job_id)["reason"] == "deadline_exceeded"


def test_a_lapse_after_a_cancel_is_cancelled() -> None:
    lease = cast.leased(now=at(0))
    cast.cancel(lease.job_id, now=at(1))
    assert upkeep.reap(now=at(30)) == {"cancelled": 1}
    assert reads.job(lease.job_id, scope=FLEET).state == "cancelled"


def test_a_failure_between_crashes_does_not_forget_them() -> None:
    q = cast.queue("grim", max_crashes=2, max_attempts=9)
    job_id = cast.enqueue(queue=q, now=at(0))
    cast.claim_one(q, now=at(1))
    upkeep.reap(now=at(50))
    cast.fail(cast.claim_one(q, now=at(51)), now=at(52))
    upkeep.promote(now=at(99))
    cast.claim_one(q, now=at(100))
    upkeep.reap(now=at(200))
    assert cast.row("dlq_deadletter", job_id)["reason"] == "poison"


# Prefetched jobs that nobody started


def _prefetch(turn: int) -> None:
    cast.claim_one(now=at(turn * 100), prefetch=True)
    upkeep.reap(now=at(turn * 100 + 30))


def test_an_unstarted_lapse_is_not_charged() -> None:
    job_id = cast.enqueue(now=at(0))
    _prefetch(0)
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["attempt"], ready["crashes"], ready["lapses"], ready["generation"]) == (0, 0, 1, 1)


def test_the_twentieth_unstarted_lapse_is_charged() -> None:
    job_id = cast.enqueue(now=at(0))
    for turn in range(19):
        _prefetch(turn)
    assert cast.row("queue_readyjob", job_id)["crashes"] == 0
    _prefetch(19)
    assert cast.row("queue_readyjob", job_id)["crashes"] == 1


def test_unstarted_lapses_end_in_quarantine_at_last() -> None:
    job_id = cast.enqueue(now=at(0))
    for turn in range(22):
        _prefetch(turn)
    assert cast.row("dlq_deadletter", job_id)["reason"] == "poison"


def test_a_prefetched_job_that_was_started_is_charged() -> None:
    job_id = cast.enqueue(now=at(0))
    cast.renew(cast.claim_one(now=at(0), prefetch=True), now=at(1))
    upkeep.reap(now=at(99))
    assert cast.row("queue_readyjob", job_id)["crashes"] == 1


def test_an_unstarted_lapse_at_one_allowed_attempt_is_tried() -> None:
    job_id = cast.enqueue(now=at(0), max_attempts=1)
    _prefetch(0)
    assert cast.place(job_id) == "readyjob"


def test_a_prefetched_job_may_be_completed_without_a_start() -> None:
    cast.enqueue(now=at(0))
    assert not cast.complete(cast.claim_one(now=at(0), prefetch=True), now=at(1)).replayed


# Many


def test_a_dead_fleet_s_work_comes_back_whole() -> None:
    """S27's counting: two hundred running jobs, every worker gone."""
    ids = set(cast.enqueue_many(200, now=at(0)))
    for _ in range(2):
        cast.claim(now=at(0), limit=100)
    while upkeep.reap(limit=70, now=at(31)):
        pass
    assert cast.read("SELECT count(*) FROM queue_lease") == [(0,)]
    again = [lease for _ in range(2) for lease in cast.claim(now=at(36), limit=100)]
    assert {lease.job_id for lease in again} == ids
    assert {(lease.attempt, lease.generation) for lease in again} == {(2, 2)}
    assert {cast.complete(lease, now=at(37)).replayed for lease in again} == {False}
    assert cast.read("SELECT count(*) FROM dlq_deadletter") == [(0,)]


def test_a_pass_takes_the_longest_lapsed_first() -> None:
    cast.enqueue_many(2)
    young = cast.claim_one(now=at(0), lease_s=60)
    old = cast.claim_one(now=at(0), lease_s=30)
    upkeep.reap(limit=1, now=at(99))
    assert (cast.place(old.job_id), cast.place(young.job_id)) == ("readyjob", "lease")


def test_a_job_taken_back_wakes_its_sleeping_lane() -> None:
    cast.leased(now=at(0))
    cast.read("UPDATE queue_lane SET is_active = false RETURNING 1")
    upkeep.reap(now=at(30))
    assert len(cast.claim(now=at(31))) == 1


def test_lapses_are_counted() -> None:
    cast.leased(now=at(0))
    upkeep.reap(now=at(30))
    assert cast.read("SELECT sum(lease_lost), sum(service_ms) FROM queue_lanedelta") == [(1, 30_000)]
