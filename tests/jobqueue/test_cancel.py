"""Cancelling: a waiting job ends, a running one is asked to stop; a completion that comes first wins."""

from __future__ import annotations

import pytest

from jobqueue import reads, upkeep
from jobqueue.leases import Cancelled
from jobqueue.types import FLEET
from jobsplatform.errors import AlreadyFinished, NotFound
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("delay_s", [None, 60])
def test_a_waiting_job_ends(delay_s: int | None) -> None:
    job_id = cast.enqueue(now=at(0), delay_s=delay_s)
    assert cast.cancel(job_id, now=at(1)) == Cancelled("cancelled", cancel_requested=False)
    result = reads.result(job_id, scope=FLEET)
    assert (result.outcome, result.finished_at, result.generation) == ("cancelled", at(1), 0)


def test_a_cancelled_job_is_never_given_out() -> None:
    cast.cancel(cast.enqueue(now=at(0)), now=at(1))
    assert cast.claim(now=at(2)) == []


def test_a_running_job_is_asked_to_stop() -> None:
    lease = cast.leased(now=at(0))
    assert cast.cancel(lease.job_id, now=at(1)) == Cancelled("running", cancel_requested=True)
    assert reads.job(lease.job_id, scope=FLEET).cancel_requested


def test_a_running_job_may_be_asked_twice() -> None:
    lease = cast.leased(now=at(0))
    cast.cancel(lease.job_id, now=at(1))
    assert cast.cancel(lease.job_id, now=at(2)).cancel_requested


def test_a_completion_wins_over_a_request_to_stop() -> None:
    lease = cast.leased(now=at(0))
    cast.cancel(lease.job_id, now=at(1))
    cast.complete(lease, now=at(2))
    assert reads.job(lease.job_id, scope=FLEET).state == "succeeded"


def _ended(how: str) -> int:
    if how == "dead":
        return cast.buried()
    job_id = cast.enqueue(now=at(0), deadline=at(50))
    if how == "succeeded":
        cast.complete(cast.claim_one(now=at(1)), now=at(2))
    elif how == "cancelled":
        cast.cancel(job_id, now=at(1))
    else:
        upkeep.expire(now=at(50))
    return job_id


@pytest.mark.parametrize("how", ["succeeded", "cancelled", "expired", "dead"])
def test_a_finished_job_is_not_cancelled(how: str) -> None:
    job_id = _ended(how)
    with cast.changes_nothing(job_id), pytest.raises(AlreadyFinished):
        cast.cancel(job_id, now=at(60))


def test_another_tenant_s_job_and_an_absent_one_look_alike() -> None:
    job_id = cast.enqueue()
    with cast.changes_nothing(job_id):
        with pytest.raises(NotFound) as foreign:
            cast.cancel(job_id, scope=cast.mallory())
        with pytest.raises(NotFound) as absent:
            cast.cancel(job_id + 1_000_000, scope=cast.mallory())
    assert foreign.value.detail == absent.value.detail


@pytest.mark.parametrize("place", ["lease", "scheduledjob"])
def test_another_tenant_s_job_is_safe_in_every_place(place: str) -> None:
    job_id = cast.leased().job_id if place == "lease" else cast.enqueue(delay_s=60)
    with cast.changes_nothing(job_id), pytest.raises(NotFound):
        cast.cancel(job_id, scope=cast.mallory())


def test_a_job_waiting_to_retry_keeps_its_counts() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1))
    cast.cancel(lease.job_id, now=at(2))
    result = cast.row("queue_result", lease.job_id)
    assert (result["generation"], result["attempt"]) == (1, 1)


def test_a_redriven_job_can_be_cancelled() -> None:
    job_id = cast.buried()
    cast.redriven(job_id, now=at(5))
    assert cast.cancel(job_id, now=at(6)).state == "cancelled"
