"""Handing out leases: one a job, the most urgent first, never more of a tenant than its limit."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue import policies, upkeep
from jobqueue.claiming import Lease
from jobqueue.types import Scope
from jobsplatform.errors import KeyConflict
from tenants import registry
from tests import cast
from tests.cast import OPS, acme, at, globex

pytestmark = pytest.mark.django_db


# The lease


def test_a_claim_moves_the_job_from_ready_to_a_lease() -> None:
    lease = cast.leased(now=at(0))
    assert cast.place(lease.job_id) == "lease"
    assert (lease.generation, lease.attempt) == (1, 1)
    assert (lease.claimed_at, lease.expires_at, lease.max_run_at) == (at(0), at(30), at(43_200))
    assert len(lease.token) == 16


def test_every_claim_raises_generation_and_attempt() -> None:
    first = cast.leased(now=at(0))
    upkeep.reap(now=at(30))
    second = cast.claim_one(now=at(31))
    assert (second.generation, second.attempt) == (2, 2)
    assert second.token != first.token


def test_a_lease_carries_what_a_worker_needs() -> None:
    job_id = cast.enqueue(
        kind="email.send",
        priority=1,
        payload='{"to": 1}',
        request_key="k",
        deadline=at(99),
        traceparent="00-a-b-01",
    )
    lease = cast.claim_one(now=at(1))
    assert (lease.job_id, lease.kind, lease.priority, lease.payload) == (job_id, "email.send", 1, '{"to": 1}')
    assert (lease.request_key, lease.deadline, lease.traceparent) == ("k", at(99), "00-a-b-01")
    assert (lease.tenant_id, lease.queue_id) == (acme().pk, cast.queue().id)
    assert (lease.reconcile, lease.earlier_generations, lease.checkpoint) == (False, [], None)


def test_an_asked_lease_time_wins_over_the_queue_s() -> None:
    cast.enqueue()
    assert cast.claim_one(now=at(0), lease_s=90).expires_at == at(90)


def test_a_lease_never_outlasts_the_longest_run() -> None:
    q = cast.queue("quick", max_run_s=60)
    cast.enqueue(queue=q)
    assert cast.claim_one(q, now=at(0), lease_s=90).expires_at == at(60)


def test_an_empty_queue_gives_no_lease() -> None:
    cast.queue()
    assert cast.claim() == []


def test_a_claim_takes_no_more_than_its_limit() -> None:
    cast.enqueue_many(5)
    assert len(cast.claim(limit=3)) == 3
    assert len(cast.claim(limit=3)) == 2


def test_a_claimed_job_is_not_claimed_again() -> None:
    cast.leased()
    assert cast.claim(limit=100) == []


def test_the_ledger_counts_starts() -> None:
    cast.enqueue_many(3)
    cast.claim(limit=3)
    assert cast.read("SELECT sum(started) FROM queue_lanedelta") == [(3,)]


# Order


def test_a_lane_is_first_in_first_out() -> None:
    ids = [cast.enqueue(now=at(second)) for second in range(5)]
    assert [lease.job_id for lease in cast.claim(now=at(9), limit=5)] == ids


def test_jobs_of_one_batch_keep_their_order() -> None:
    ids = cast.enqueue_many(20)
    assert [lease.job_id for lease in cast.claim(limit=20)] == ids


def test_the_most_urgent_band_is_first() -> None:
    ids = {priority: cast.enqueue(now=at(4 - priority), priority=priority) for priority in (3, 1, 4, 0, 2)}
    assert [lease.job_id for lease in cast.claim(now=at(9), limit=5)] == [ids[p] for p in range(5)]


def test_work_that_came_back_is_before_work_that_is_fresh() -> None:
    lapsed, released = cast.enqueue(now=at(0)), cast.enqueue(now=at(1))
    leases = {lease.job_id: lease for lease in cast.claim(now=at(2), limit=2)}
    fresh = cast.enqueue(now=at(3))
    cast.release(leases[released], now=at(4))
    upkeep.reap(now=at(60))
    assert [lease.job_id for lease in cast.claim(now=at(61), limit=3)] == [lapsed, released, fresh]


def test_priority_can_be_bounded() -> None:
    cast.enqueue(priority=3)
    urgent = cast.enqueue(priority=1)
    assert [lease.job_id for lease in cast.claim(limit=9, max_priority=2)] == [urgent]


def test_only_kinds_that_were_asked_for_are_given() -> None:
    cast.enqueue(kind="a")
    b, c = cast.enqueue(kind="b"), cast.enqueue(kind="c")
    assert [lease.job_id for lease in cast.claim(limit=9, kinds=("b", "c"))] == [b, c]


def test_no_capability_gets_no_work() -> None:
    cast.enqueue()
    assert cast.claim(limit=9, kinds=()) == []


# Gates


def test_a_tenant_s_token_gets_its_own_work_alone() -> None:
    cast.enqueue()
    theirs = cast.enqueue(tenant_id=globex().pk)
    assert [lease.job_id for lease in cast.claim(limit=9, scope=cast.mallory())] == [theirs]


def test_a_passed_deadline_is_not_started() -> None:
    cast.enqueue(now=at(0), deadline=at(10))
    assert cast.claim(now=at(10)) == []


def test_a_deadline_in_front_does_not_hide_what_stands_behind() -> None:
    cast.enqueue(now=at(0), deadline=at(10))
    behind = cast.enqueue(now=at(1))
    assert cast.claim_one(now=at(10)).job_id == behind


def test_a_paused_queue_starts_nothing() -> None:
    cast.enqueue()
    policies.pause("default", actor=OPS)
    assert cast.claim() == []


def test_a_resumed_queue_starts_again() -> None:
    cast.enqueue()
    policies.pause("default", actor=OPS)
    policies.resume("default", actor=OPS)
    assert len(cast.claim()) == 1


def test_a_paused_queue_still_takes_work_and_results() -> None:
    lease = cast.leased()
    policies.pause("default", actor=OPS)
    cast.enqueue()
    assert not cast.complete(lease, now=at(1)).replayed


def test_a_paused_tenant_s_work_is_not_started_and_hides_nobody_s() -> None:
    cast.enqueue_many(50, now=at(0))
    theirs = cast.enqueue(now=at(1), tenant_id=globex().pk)
    registry.pause("acme", actor=OPS)
    assert [lease.job_id for lease in cast.claim(now=at(2), limit=9)] == [theirs]


def test_a_resumed_tenant_s_work_is_started() -> None:
    cast.enqueue()
    registry.pause("acme", actor=OPS)
    registry.resume("acme", actor=OPS)
    assert len(cast.claim()) == 1


def test_a_limit_on_running_jobs_is_kept() -> None:
    cast.enqueue_many(9)
    registry.set_quota("acme", {"max_running": 4}, actor=OPS)
    assert [len(cast.claim(limit=3)) for _ in range(3)] == [3, 1, 0]


def test_a_limit_on_running_jobs_counts_over_queues() -> None:
    other = cast.queue("other")
    cast.enqueue_many(3)
    cast.enqueue_many(3, queue=other)
    registry.set_quota("acme", {"max_running": 4}, actor=OPS)
    assert (len(cast.claim(limit=9)), len(cast.claim(other, limit=9))) == (3, 1)


def test_a_limit_counts_over_a_tenant_s_lanes() -> None:
    for kind in "abc":
        cast.enqueue_many(3, kind=kind)
    registry.set_quota("acme", {"max_running": 2}, actor=OPS)
    assert len(cast.claim(limit=9)) == 2


def test_a_full_tenant_leaves_the_others_their_place() -> None:
    cast.enqueue_many(5, now=at(0))
    theirs = cast.enqueue_many(3, now=at(1), tenant_id=globex().pk)
    registry.set_quota("acme", {"max_running": 1}, actor=OPS)
    assert [lease.job_id for lease in cast.claim(now=at(2), limit=4)][1:] == theirs


def test_an_ended_job_makes_room() -> None:
    cast.enqueue_many(2)
    registry.set_quota("acme", {"max_running": 1}, actor=OPS)
    lease = cast.claim_one()
    cast.complete(lease, now=at(1))
    assert len(cast.claim(now=at(2))) == 1


# Several queues


def test_a_claim_over_queues_takes_from_all_of_them() -> None:
    names = ["a", "b", "c"]
    ids = {name: cast.enqueue_many(4, queue=cast.queue(name)) for name in names}
    taken = {lease.job_id for lease in cast.claim(*names, limit=12)}
    assert taken == {job_id for group in ids.values() for job_id in group}


def test_a_claim_over_queues_is_shared_between_them() -> None:
    for name in "ab":
        cast.enqueue_many(10, queue=cast.queue(name))
    by_queue = [lease.queue_id for lease in cast.claim("a", "b", limit=10)]
    assert sorted(by_queue.count(policies.by_name(name).id) for name in "ab") == [5, 5]


def test_a_claim_over_queues_fills_up_where_one_is_short() -> None:
    cast.enqueue_many(2, queue=cast.queue("a"))
    cast.enqueue_many(20, queue=cast.queue("b"))
    for _ in range(2):  # whichever is asked first
        assert len(cast.claim("a", "b", limit=10)) == 10


def test_strict_work_of_any_queue_is_first_oldest_first() -> None:
    a, b = cast.queue("a"), cast.queue("b")
    cast.enqueue_many(5, now=at(0), queue=a)
    younger = cast.enqueue(now=at(2), queue=a, priority=0)
    older = cast.enqueue(now=at(1), queue=b, priority=0)
    assert [lease.job_id for lease in cast.claim(a, b, now=at(3), limit=2)] == [older, younger]


def test_strict_work_is_given_whole_before_any_other() -> None:
    a, b = cast.queue("a"), cast.queue("b")
    cast.enqueue_many(5, queue=a)
    urgent = set(cast.enqueue_many(4, queue=b, priority=0))
    assert {lease.job_id for lease in cast.claim(a, b, limit=4)} == urgent


# claim_key


def repeat(*queues: str, **asked: Any) -> list[Lease]:
    return cast.claim(*queues, claim_key="c-1", **asked)


def test_a_repeated_claim_returns_the_same_leases() -> None:
    cast.enqueue_many(6)
    first = repeat(limit=3)
    assert repeat(limit=3, now=at(20)) == first
    assert len(first) == 3


def test_a_repeated_claim_with_other_arguments_conflicts() -> None:
    cast.enqueue_many(6)
    repeat(limit=3)
    with pytest.raises(KeyConflict):
        repeat(limit=4)


def test_a_claim_key_is_free_when_its_leases_have_lapsed() -> None:
    cast.enqueue_many(2)
    first = repeat()
    second = repeat(now=at(30))
    assert second != first
    assert len(second) == 1


def test_a_claim_key_is_the_token_s_own() -> None:
    cast.enqueue_many(2)
    mine = cast.claim(claim_key="c", scope=Scope(token_id=1))
    theirs = cast.claim(claim_key="c", scope=Scope(token_id=2))
    assert {lease.job_id for lease in mine}.isdisjoint(lease.job_id for lease in theirs)
    assert cast.claim(claim_key="c", scope=Scope(token_id=1)) == mine


def test_a_claim_key_never_brings_another_tenant_s_leases() -> None:
    """A fleet token acts for one tenant, then for another."""
    cast.enqueue_many(2)
    acme, globex = (Scope(tenant_id=owner().pk, token_id=1) for owner in (cast.acme, cast.globex))
    cast.claim(claim_key="c", scope=acme)
    with pytest.raises(KeyConflict):
        cast.claim(claim_key="c", scope=globex)


def test_a_claim_key_is_the_claimed_queues_own() -> None:
    for name in "ab":
        cast.enqueue(queue=cast.queue(name))
    assert repeat("a") != repeat("b")


def test_a_repeated_claim_over_queues_returns_the_same_leases() -> None:
    for name in "ab":
        cast.enqueue_many(3, queue=cast.queue(name))
    first = repeat("a", "b", limit=4)
    assert len(first) == 4
    assert {lease.job_id for lease in repeat("b", "a", limit=4)} == {lease.job_id for lease in first}


def test_a_keyed_claim_over_queues_gives_no_lease_twice() -> None:
    cast.enqueue_many(20, queue=cast.queue("a"))
    cast.enqueue_many(2, queue=cast.queue("b"))
    first = cast.claim("a", "b", limit=10, claim_key="c")
    assert len({lease.job_id for lease in first}) == len(first)
    assert cast.read("SELECT count(*) FROM queue_lease") == [(len(first),)]
    assert {lease.job_id for lease in cast.claim("a", "b", limit=10, claim_key="c")} == {
        x.job_id for x in first
    }


def test_a_repeated_claim_returns_only_what_is_still_leased() -> None:
    cast.enqueue_many(2)
    first, second = cast.claim(limit=2, claim_key="c")
    cast.complete(first, now=at(1))
    assert cast.claim(limit=2, claim_key="c", now=at(2)) == [second]


# What an earlier attempt left


def test_a_checkpoint_reaches_the_next_attempt() -> None:
    lease = cast.leased(now=at(0))
    cast.renew(lease, now=at(1), checkpoint='{"row": 7}')
    upkeep.reap(now=at(60))
    assert cast.claim_one(now=at(61)).checkpoint == '{"row": 7}'


def test_an_uncertain_failure_asks_the_next_attempt_to_reconcile() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1), error_class="uncertain")
    upkeep.promote(now=at(60))
    again = cast.claim_one(now=at(61))
    assert (again.reconcile, again.earlier_generations) == (True, [1])
