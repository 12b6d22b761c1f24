"""Uncertain outcomes: whoever may have acted outside is resolved before the next attempt acts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobqueue import kinds, upkeep
from jobqueue.claiming import Lease
from tests import cast
from tests.cast import OPS, at

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _pay_acts_outside(db: None) -> None:
    kinds.change("pay", {"external_effects": True}, actor=OPS)


def lapse(lease: Lease, seconds: float) -> Lease:
    """The next lease, after this one has lapsed."""
    upkeep.reap(now=at(seconds))
    return cast.claim_one(now=at(seconds))


def test_a_lapsed_lease_of_a_kind_that_acts_outside_makes_the_next_reconcile() -> None:
    first = cast.leased(kind="pay", lease_s=10)
    again = lapse(first, 11)
    assert (again.job_id, again.generation) == (first.job_id, 2)
    assert (again.reconcile, again.earlier_generations) == (True, [1])


def test_a_lapsed_lease_of_any_other_kind_does_not() -> None:
    again = lapse(cast.leased(kind="count", lease_s=10), 11)
    assert (again.reconcile, again.earlier_generations, again.crashes) == (False, [], 1)


def test_also_a_lease_that_nobody_said_was_started_is_resolved() -> None:
    """Its worker may have acted within the moment before it would have said so."""
    cast.enqueue(kind="pay")
    first = cast.claim_one(lease_s=10, prefetch=True)
    again = lapse(first, 11)
    assert (again.reconcile, again.attempt, again.crashes) == (True, 1, 0)


def test_earlier_generations_grow_with_each_loss() -> None:
    lease = cast.leased(kind="pay", lease_s=10, max_attempts=10)
    second = lapse(lease, 11)
    third = lapse(second, 60)
    assert third.earlier_generations == [1, 2]


@pytest.mark.parametrize(("started", "reconcile"), [(True, True), (False, False)])
def test_what_is_given_back_while_it_ran_is_resolved(started: bool, reconcile: bool) -> None:
    cast.enqueue(kind="pay")
    lease = cast.claim_one(prefetch=True)
    if started:
        cast.renew(lease, now=at(1), started=True)
    cast.release(lease, now=at(2))
    assert cast.claim_one(now=at(3)).reconcile is reconcile


def test_uncertain_to_the_end_is_a_dead_letter_of_that_reason() -> None:
    lease = cast.leased(kind="any", max_attempts=2)
    assert cast.fail(lease, now=at(1), error_class="uncertain").state == "scheduled"
    upkeep.promote(now=at(10_000))
    again = cast.claim_one(now=at(10_000))
    assert again.reconcile
    dead = cast.fail(again, now=at(10_001), error_class="uncertain")
    assert (dead.state, dead.reason) == ("dead", "uncertain")


def test_a_last_attempt_that_lapsed_is_uncertain_where_it_may_have_acted() -> None:
    def reason(kind: str) -> str:
        lease = cast.leased(kind=kind, lease_s=10, max_attempts=1)
        upkeep.reap(now=at(11))
        return str(cast.row("dlq_deadletter", lease.job_id)["reason"])

    assert (reason("pay"), reason("count")) == ("uncertain", "exhausted")


@pytest.mark.parametrize(
    ("bury", "reason"),
    [
        (lambda: cast.buried(kind="any", error_class="uncertain"), "uncertain"),
        (lambda: _poisoned("pay"), "poison"),
    ],
)
def test_the_first_lease_after_a_redrive_reconciles(bury: Callable[[], int], reason: str) -> None:
    """Whatever the reason: a kind that acts outside is resolved after its worker has died, poison or not."""
    job_id = bury()
    assert cast.row("dlq_deadletter", job_id)["reason"] == reason
    if reason == "poison":
        cast.correct(job_id)
    cast.redriven(job_id, now=at(100_000))
    lease = cast.claim_one(now=at(100_000))
    assert (lease.job_id, lease.attempt, lease.redrive_generation, lease.reconcile) == (job_id, 1, 1, True)
    assert lease.earlier_generations == list(range(1, lease.generation))


def _poisoned(kind: str) -> int:
    lease = cast.leased(kind=kind, lease_s=10, max_attempts=10)
    for count in range(1, 4):
        upkeep.reap(now=at(count * 100))
        if count < 3:
            cast.claim_one(now=at(count * 100), lease_s=10)
    return lease.job_id
