"""Retry now: what waits for an instant starts at once, audited; what does not is refused and stays as it was."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobqueue import retrying, upkeep
from jobsplatform.errors import AlreadyFinished, DeadlineInPast, NotFound, NotScheduled
from tests import cast
from tests.cast import OPS, SHARD, at

pytestmark = pytest.mark.django_db


def test_a_delayed_job_becomes_ready_and_is_audited() -> None:
    job_id = cast.enqueue(delay_s=600)
    done = retrying.retry_now(job_id, actor=OPS, reason="they wait for it", now=at(5))
    assert (done.reason, done.due_at) == ("delayed", at(600))
    assert cast.place(job_id) == "readyjob"
    assert cast.claim_one(now=at(6)).job_id == job_id
    entry = cast.read(
        "SELECT actor, reason, details->>'waited' FROM tenants_auditentry WHERE action = 'job.retry_now'"
    )
    assert entry == [(OPS, "they wait for it", "delayed")]


def test_a_retry_keeps_its_attempts_and_passes_the_budget() -> None:
    cast.queue("default", retry_budget_share=0, retry_budget_burst=0)
    lease = cast.leased()
    cast.fail(lease, now=at(1))
    assert upkeep.promote(now=at(100)) == 0
    retrying.retry_now(lease.job_id, actor=OPS, now=at(101))
    again = cast.claim_one(now=at(102))
    assert (again.job_id, again.generation, again.attempt) == (lease.job_id, 2, 2)


def test_released_work_keeps_its_place_in_the_line() -> None:
    early, late = cast.leased(now=at(0)), None
    cast.release(early, now=at(1), delay_s=60)
    late = cast.enqueue(now=at(2))
    retrying.retry_now(early.job_id, actor=OPS, now=at(3))
    assert [cast.claim_one(now=at(4)).job_id, cast.claim_one(now=at(5)).job_id] == [early.job_id, late]


@pytest.mark.parametrize("state", ["ready", "running", "succeeded", "dead"])
def test_what_does_not_wait_is_refused(state: str) -> None:
    if state == "dead":
        job_id = cast.buried()
    elif state == "ready":
        job_id = cast.enqueue()
    else:
        lease = cast.leased()
        job_id = lease.job_id
        if state == "succeeded":
            cast.complete(lease, now=at(1))
    refusal = NotScheduled if state in ("ready", "running") else AlreadyFinished
    with cast.changes_nothing(job_id), pytest.raises(refusal):
        retrying.retry_now(job_id, actor=OPS, now=at(2))
    assert cast.audited("job.retry_now") == 0


def test_a_job_past_its_deadline_is_not_woken() -> None:
    job_id = cast.enqueue(delay_s=60, deadline=at(120))
    with cast.changes_nothing(job_id), pytest.raises(DeadlineInPast):
        retrying.retry_now(job_id, actor=OPS, now=at(0) + timedelta(seconds=121))


def test_a_foreign_job_looks_absent() -> None:
    job_id = cast.enqueue(delay_s=60)
    for asked in (job_id, job_id + 999, 7 << 48 | 1):
        with pytest.raises(NotFound):
            retrying.retry_now(asked, actor=cast.MALLORY, scope=cast.mallory(), now=at(1))
    assert cast.place(job_id) == "scheduledjob"


def test_two_who_hasten_one_job_are_one() -> None:
    job_id = cast.enqueue(delay_s=60)
    retrying.retry_now(job_id, actor=OPS, now=at(1))
    with pytest.raises(NotScheduled):
        retrying.retry_now(job_id, actor=OPS, now=at(1))
    assert cast.audited("job.retry_now", alias=SHARD) == 1
