"""A lane's lower bound saves a scan from dead rows, and may never pass over a job that is still being written."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from threading import Event

import pytest
from django.db import connections, transaction

from jobqueue import fsck, upkeep
from jobqueue.enqueue import enqueue as enqueue_jobs
from tests import cast

pytestmark = pytest.mark.django_db(transaction=True)


def _low() -> datetime:
    """The lane's bound; a bound of minus infinity is the beginning of time."""
    (found,) = cast.read("SELECT greatest(low, '0001-01-01 00:00:00+00'::timestamptz) FROM queue_lane")
    return found[0]  # type: ignore[no-any-return]


def _churn(seconds: float) -> None:
    """Work passes through the lane while upkeep raises its bound as far as it may."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _pass_work_through()


def _churn_until(condition: Callable[[], bool]) -> None:
    """As long as it takes: the bound waits for every writing transaction of the server, also of other tests."""
    end = time.monotonic() + 60
    _pass_work_through()  # makes the lane
    while not condition():
        assert time.monotonic() < end, _low()
        _pass_work_through()


def _pass_work_through() -> None:
    cast.enqueue(now=None)
    for lease in cast.claim(now=None, limit=10):
        cast.complete(lease)
    upkeep.sweep_lanes()
    time.sleep(0.02)


def test_the_bound_rises_behind_finished_work() -> None:
    _churn_until(lambda: _low().year > 1)
    before = _low()
    _churn_until(lambda: _low() > before)


def test_a_job_that_took_its_place_early_and_was_committed_late_is_found() -> None:
    _churn(0.2)
    written, finish = Event(), Event()
    job = cast.new_job()

    def slow_producer() -> int:
        with transaction.atomic(using=cast.SHARD):
            job_id = cast.accepted(enqueue_jobs([job])[0]).job_id
            written.set()
            assert finish.wait(30)
        return job_id

    def others() -> None:
        assert written.wait(30)
        _churn(2)
        finish.set()

    job_id, _ = cast.together(slow_producer, others)
    assert isinstance(job_id, int), job_id
    assert _low() <= cast.row("queue_readyjob", job_id)["position"]
    assert list(fsck.check()) == []
    assert cast.claim_one(now=None).job_id == job_id
    for lease in cast.claim(now=None, limit=10):
        cast.complete(lease)
    before = _low()
    _churn_until(lambda: _low() > before)  # again, once the slow one has ended


def test_a_job_that_is_promoted_late_is_found() -> None:
    job_id = cast.enqueue(now=None, delay_s=1)
    _churn(0.2)
    time.sleep(1)
    written, finish = Event(), Event()

    def slow_promoter() -> int:
        with transaction.atomic(using=cast.SHARD):
            promoted = upkeep.promote()
            written.set()
            assert finish.wait(30)
        return promoted

    def others() -> None:
        assert written.wait(30)
        _churn(1.5)
        finish.set()

    assert cast.together(slow_promoter, others) == [1, None]
    assert cast.claim_one(now=None).job_id == job_id


def test_a_snapshot_held_elsewhere_holds_the_bound_and_hides_nothing() -> None:
    _churn(0.2)
    with cast.second_session() as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT pg_current_xact_id()")
        before = _low()
        _churn(1.5)
        job_id = cast.enqueue(now=None)
        assert _low() <= cast.row("queue_readyjob", job_id)["position"]
        assert cast.claim_one(now=None).job_id == job_id
    assert _low() >= before


def test_a_clock_that_was_set_back_is_uncovered_by_the_recheck() -> None:
    _churn_until(lambda: _low().year > 2001)
    job_id = cast.enqueue(now=datetime(2001, 1, 1, tzinfo=_low().tzinfo))
    assert cast.claim(now=None) == []
    assert [fault.fault for fault in fsck.check()] == ["hidden"]
    upkeep.recheck_lanes()
    assert list(fsck.check()) == []
    assert cast.claim_one(now=None).job_id == job_id


def test_many_producers_claimers_and_sweepers_strand_no_job() -> None:
    end = time.monotonic() + 3
    done: list[int] = []

    def produce() -> int:
        made = 0
        while time.monotonic() < end:
            made += len(cast.enqueue_many(5, now=None))
        return made

    def consume() -> int:
        while time.monotonic() < end:
            for lease in cast.claim(now=None, limit=20):
                cast.complete(lease)
                done.append(lease.job_id)
        return 0

    def sweep() -> int:
        while time.monotonic() < end:
            upkeep.sweep_lanes()
            time.sleep(0.01)
        return 0

    cast.new_job()  # the tenant is there before they start
    answers = cast.together(produce, produce, consume, consume, sweep, sweep)
    assert all(isinstance(answer, int) for answer in answers), answers
    while found := cast.claim(now=None, limit=100):
        done += [lease.job_id for lease in found]
    connections.close_all()
    assert len(done) == len(set(done)) == sum(answer for answer in answers if isinstance(answer, int))
    assert cast.read("SELECT count(*) FROM queue_readyjob") == [(0,)]
