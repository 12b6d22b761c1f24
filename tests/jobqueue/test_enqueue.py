"""Accepting work: one job a request key, refusals as values, every item of a batch alone."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from jobqueue import policies, reads, upkeep
from jobqueue.enqueue import Accepted, NewJob
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.models import Queue
from jobqueue.types import FLEET
from jobsplatform.errors import (
    DeadlineInPast,
    Invalid,
    QuotaExceeded,
    RequestKeyConflict,
    Unavailable,
)
from tenants import registry
from tests import cast
from tests.cast import OPS, acme, at, globex

pytestmark = pytest.mark.django_db


def test_an_accepted_job_is_ready_at_once() -> None:
    job_id = cast.enqueue(now=at(0))
    assert cast.place(job_id) == "readyjob"
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["position"], ready["first_ready_at"], ready["fresh"]) == (at(0), at(0), True)
    assert (ready["generation"], ready["attempt"], ready["max_attempts"]) == (0, 0, 5)


def test_a_job_with_a_future_instant_is_scheduled() -> None:
    job_id = cast.enqueue(now=at(0), not_before=at(60))
    waiting = cast.row("queue_scheduledjob", job_id)
    assert (waiting["due_at"], waiting["reason"], waiting["first_ready_at"]) == (at(60), "delayed", None)


def test_a_delay_counts_from_the_database_s_clock() -> None:
    job_id = cast.enqueue(now=at(5), delay_s=60)
    assert cast.row("queue_scheduledjob", job_id)["due_at"] == at(65)
    assert cast.row("queue_job", job_id)["not_before"] == at(65)


def test_an_instant_that_has_passed_does_not_delay() -> None:
    assert cast.place(cast.enqueue(now=at(0), not_before=at(-1))) == "readyjob"


def test_the_payload_is_kept_byte_for_byte() -> None:
    text = '{ "z":1.10, "a" :[1e2,"é\\u00e9"], "big": 12345678901234567890123456789 }'
    job_id = cast.enqueue(payload=text)
    assert reads.payload(job_id, scope=FLEET) == (text, None)


def test_a_job_may_carry_a_reference_instead_of_a_payload() -> None:
    job_id = cast.enqueue(payload=None, payload_ref="s3://bucket/key")
    assert reads.payload(job_id, scope=FLEET) == (None, "s3://bucket/key")


def test_the_job_s_own_limit_of_attempts_wins_over_the_queue_s() -> None:
    assert cast.row("queue_readyjob", cast.enqueue(max_attempts=2))["max_attempts"] == 2


def test_the_queue_s_limit_of_attempts_is_the_default() -> None:
    q = cast.queue("patient", max_attempts=9)
    assert cast.row("queue_readyjob", cast.enqueue(queue=q))["max_attempts"] == 9


def test_ids_name_the_shard_and_rise() -> None:
    first, second = cast.enqueue_many(2)
    assert (first >> 48, second >> 48) == (0, 0)
    assert second > first


def test_a_shard_that_never_heard_of_the_queue_is_told_on_the_way() -> None:
    owner = acme()
    cast.read("DELETE FROM queue_policyrow RETURNING 1")
    job = NewJob(tenant_id=owner.pk, queue=policies.by_name("default"), kind="noop", priority=2, payload="1")
    assert isinstance(enqueue_jobs([job])[0], Accepted)


# Request keys


def test_a_repeat_with_the_same_content_is_replayed() -> None:
    job = cast.new_job(request_key="order-1", payload='{"a": 1, "b": 2}')
    again = cast.new_job(request_key="order-1", payload='{"b":2,"a":1}')
    (first,) = enqueue_jobs([job], now=at(0))
    assert enqueue_jobs([again], now=at(1)) == [Accepted(cast.accepted(first).job_id, replayed=True)]


@pytest.mark.parametrize(
    "change",
    [
        {"payload": '{"a": 2}'},
        {"payload": '{"a": 1.0}'},
        {"kind": "other"},
        {"priority": 1},
        {"delay_s": 1},
        {"dependency": "smtp"},
        {"payload": None, "payload_ref": "x"},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_repeat_with_other_content_conflicts_and_names_the_job(change: dict[str, Any]) -> None:
    job_id = cast.enqueue(request_key="k", payload='{"a": 1}')
    with cast.changes_nothing(job_id), pytest.raises(RequestKeyConflict) as refused:
        cast.enqueue(request_key="k", **{"payload": '{"a": 1}'} | change)
    assert refused.value.extra == {"job_id": f"0-{job_id}"}


def test_a_conflict_does_not_spoil_the_key() -> None:
    """S31: body X, body Y, X at another priority, X again."""
    x = cast.new_job(request_key="k", payload="1")
    first = cast.accepted(enqueue_jobs([x])[0])
    refusals = enqueue_jobs([cast.new_job(request_key="k", payload="2")]) + enqueue_jobs(
        [cast.new_job(request_key="k", payload="1", priority=1)]
    )
    assert [type(refusal) for refusal in refusals] == [RequestKeyConflict, RequestKeyConflict]
    assert enqueue_jobs([x]) == [Accepted(first.job_id, replayed=True)]


def test_two_tenants_may_use_one_key() -> None:
    """S35."""
    ours = cast.enqueue(request_key="k")
    theirs = cast.enqueue(request_key="k", tenant_id=globex().pk)
    assert ours != theirs
    replay = enqueue_jobs([cast.new_job(request_key="k", tenant_id=globex().pk)])
    assert replay == [Accepted(theirs, replayed=True)]


def test_two_queues_may_use_one_key() -> None:
    assert cast.enqueue(request_key="k") != cast.enqueue(request_key="k", queue=cast.queue("other"))


def test_two_namespaces_may_use_one_key() -> None:
    assert cast.enqueue(request_key="k") != cast.enqueue(request_key="k", namespace=1)


def test_a_batch_answers_in_order_with_its_repeats() -> None:
    """S37: one item repeats a stored key, one repeats the item before it."""
    stored = cast.enqueue(request_key="stored", payload="7")
    jobs = [cast.new_job(request_key=f"k{i}", payload=str(i)) for i in range(100)]
    jobs[37] = cast.new_job(request_key="stored", payload="7")
    jobs[51] = jobs[50]
    outcomes = [cast.accepted(outcome) for outcome in enqueue_jobs(jobs)]
    assert [i for i, outcome in enumerate(outcomes) if outcome.replayed] == [37, 51]
    assert outcomes[37].job_id == stored
    assert outcomes[51].job_id == outcomes[50].job_id
    assert len({outcome.job_id for outcome in outcomes}) == 99
    assert [o.job_id for i, o in enumerate(outcomes) if i not in (37, 51)] == sorted(
        o.job_id for i, o in enumerate(outcomes) if i not in (37, 51)
    )


def test_a_repeat_in_a_batch_with_other_content_conflicts_with_its_first_use() -> None:
    jobs = [cast.new_job(request_key="k", payload="1"), cast.new_job(request_key="k", payload="2")]
    first, second = enqueue_jobs(jobs)
    assert isinstance(first, Accepted)
    assert isinstance(second, RequestKeyConflict)


def test_a_repeat_of_a_refused_item_is_refused_alike() -> None:
    late = cast.new_job(request_key="k", deadline=at(-1))
    assert [type(outcome) for outcome in enqueue_jobs([late, late], now=at(0))] == [DeadlineInPast] * 2


def test_other_content_under_a_refused_item_s_key_stands_alone() -> None:
    late = cast.new_job(request_key="k", deadline=at(-1))
    good = cast.new_job(request_key="k", deadline=at(60))
    first, second, third = enqueue_jobs([late, good, late], now=at(0))
    assert isinstance(first, DeadlineInPast)
    assert isinstance(second, Accepted)
    assert isinstance(third, DeadlineInPast)


def test_a_smaller_payload_under_the_key_of_one_too_large_stands_alone() -> None:
    cast.acme()
    registry.set_quota("acme", {"max_payload_bytes": 6}, actor=OPS)
    jobs = [cast.new_job(request_key="k", payload=payload) for payload in ('"too large"', "1")]
    first, second = enqueue_jobs(jobs)
    assert isinstance(first, QuotaExceeded)
    assert isinstance(second, Accepted)


def test_a_replay_behind_a_conflict_in_one_batch_is_a_replay() -> None:
    stored = cast.enqueue(request_key="k", payload="1")
    first, second = enqueue_jobs([cast.new_job(request_key="k", payload=text) for text in "21"])
    assert isinstance(first, RequestKeyConflict)
    assert second == Accepted(stored, replayed=True)


def test_many_refused_contents_of_one_key_are_refused_each() -> None:
    """However many: they are not nested."""
    jobs = [
        cast.new_job(request_key="k", payload=str(i), not_before=at(60), deadline=at(30))
        for i in range(1_000)
    ]
    assert {type(outcome) for outcome in enqueue_jobs(jobs, now=at(0))} == {Invalid}


def test_one_bad_item_does_not_spoil_a_batch() -> None:
    jobs = [cast.new_job(), cast.new_job(deadline=at(-1)), cast.new_job()]
    assert [type(outcome) for outcome in enqueue_jobs(jobs, now=at(0))] == [
        Accepted,
        DeadlineInPast,
        Accepted,
    ]


def test_a_refused_request_leaves_its_key_free() -> None:
    enqueue_jobs([cast.new_job(request_key="k", deadline=at(-1))], now=at(0))
    assert isinstance(enqueue_jobs([cast.new_job(request_key="k")])[0], Accepted)


def test_a_key_of_255_emoji_is_accepted() -> None:
    """S39."""
    cast.enqueue(request_key="😀" * 255)


def test_a_random_key_of_1024_bytes_fits_the_index() -> None:
    """S39: repeated letters compress and would slip under the limit of an index entry."""
    cast.enqueue(request_key="".join(chr(0x1F300 + secrets.randbelow(0x2FF)) for _ in range(255)))
    cast.enqueue(request_key="".join(chr(0x4E00 + secrets.randbelow(0x5000)) for _ in range(255)))
    cast.enqueue(request_key=secrets.token_hex(512))


@pytest.mark.parametrize(
    "state", ["ready", "running", "succeeded", "dead", "expired", "cancelled", "scheduled"]
)
def test_a_replay_names_the_job_in_every_state(state: str) -> None:
    """S43: never a second run, always the present state."""
    job = cast.new_job(
        request_key="k", max_attempts=1, expires_in_s=90, **{"delay_s": 30} if state == "scheduled" else {}
    )
    job_id = cast.accepted(enqueue_jobs([job], now=at(0))[0]).job_id
    if state in ("running", "succeeded", "dead"):
        lease = cast.claim_one(now=at(1))
        if state == "succeeded":
            cast.complete(lease, now=at(2))
        if state == "dead":
            cast.fail(lease, now=at(2))
    if state == "expired":
        upkeep.expire(now=at(90))
    if state == "cancelled":
        cast.cancel(job_id, now=at(2))
    with cast.changes_nothing(job_id):
        assert enqueue_jobs([job], now=at(100)) == [Accepted(job_id, replayed=True)]
    assert reads.job(job_id, scope=FLEET).state == state


# Deadlines


@pytest.mark.parametrize("seconds", [-1, 0])
def test_a_deadline_that_is_not_in_the_future_is_refused(seconds: int) -> None:
    """S81."""
    with pytest.raises(DeadlineInPast):
        cast.enqueue(now=at(0), deadline=at(seconds))


def test_a_deadline_a_second_ahead_is_accepted() -> None:
    """S81."""
    assert cast.row("queue_readyjob", cast.enqueue(now=at(0), deadline=at(1)))["deadline"] == at(1)


def test_a_lifetime_counts_from_the_database_s_clock() -> None:
    assert cast.row("queue_readyjob", cast.enqueue(now=at(3), expires_in_s=10))["deadline"] == at(13)


@pytest.mark.parametrize(
    "timing", [{"delay_s": 60, "expires_in_s": 60}, {"not_before": at(60), "deadline": at(60)}]
)
def test_a_job_due_at_its_deadline_is_refused(timing: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        cast.enqueue(now=at(0), **timing)
    assert refused.value.errors[0].pointer == "/deadline"


# Admission


def test_a_queue_whose_intake_is_paused_takes_nothing() -> None:
    cast.queue("calm")
    policies.pause("calm", intake=True, actor=OPS)
    with pytest.raises(Unavailable) as refused:
        cast.enqueue(queue=policies.by_name("calm"))
    assert refused.value.extra == {"reason": "intake_paused"}  # so that a client holds back this call alone


def test_a_resumed_intake_takes_work_again() -> None:
    cast.queue("calm")
    policies.pause("calm", intake=True, actor=OPS)
    policies.resume("calm", intake=True, actor=OPS)
    cast.enqueue(queue=policies.by_name("calm"))


def test_a_replay_passes_a_paused_intake() -> None:
    job = cast.new_job(request_key="k", queue=cast.queue("calm"))
    first = cast.accepted(enqueue_jobs([job])[0])
    policies.pause("calm", intake=True, actor=OPS)
    assert enqueue_jobs([job]) == [Accepted(first.job_id, replayed=True)]


def test_a_full_depth_quota_refuses_with_a_time_to_return() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 2}, actor=OPS)
    outcomes = enqueue_jobs([cast.new_job()] * 3)
    assert [type(outcome) for outcome in outcomes] == [Accepted, Accepted, QuotaExceeded]
    assert isinstance(outcomes[2], QuotaExceeded)
    assert (outcomes[2].retry_after or 0) >= 1


def test_a_replay_is_answered_at_a_full_quota() -> None:
    acme()
    job = cast.new_job(request_key="k")
    first = cast.accepted(enqueue_jobs([job])[0])
    registry.set_quota("acme", {"max_depth": 1}, actor=OPS)
    assert enqueue_jobs([job]) == [Accepted(first.job_id, replayed=True)]


def test_a_conflict_is_told_before_a_full_quota() -> None:
    """Refusals are checked in the order 409, 429."""
    acme()
    cast.enqueue(request_key="k")
    registry.set_quota("acme", {"max_depth": 1}, actor=OPS)
    with pytest.raises(RequestKeyConflict):
        cast.enqueue(request_key="k", payload="2")


def test_one_tenant_s_quota_does_not_bind_another() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 1}, actor=OPS)
    cast.enqueue()
    cast.enqueue(tenant_id=globex().pk)


def test_a_job_wakes_its_sleeping_lane() -> None:
    job_id = cast.enqueue()
    cast.read("UPDATE queue_lane SET is_active = false RETURNING 1")
    cast.enqueue()
    lane_id = cast.row("queue_readyjob", job_id)["lane_id"]
    assert cast.read("SELECT is_active FROM queue_lane WHERE id = %s", [lane_id]) == [(True,)]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_queue_that_was_replaced_is_met_by_the_next_call(key: str | None) -> None:
    """As after control was restored from a copy: the name is the same, its number and lanes are not."""
    stale = cast.queue()
    row = Queue.objects.get(pk=stale.id)
    Queue.objects.filter(pk=stale.id).delete()
    cast.read("DELETE FROM queue_policyrow WHERE queue_id = %s RETURNING 1", [stale.id])
    row.pk = None
    row.save(force_insert=True)
    (refused,) = enqueue_jobs([cast.new_job(queue=policies.by_name("default"), request_key=key)])
    assert isinstance(refused, Unavailable)
    assert refused.extra["reason"] == ("queue_replaced" if key is None else "key_in_use")
    assert cast.place(cast.enqueue(queue=policies.by_name("default"), request_key=key)) == "readyjob"
