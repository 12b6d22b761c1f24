"""What limits refuse is counted without a shared row, and how far they are used is sampled once a minute."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobqueue import upkeep
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobsplatform.errors import JobsPlatformError, QueueFull, QuotaExceeded, RateLimited
from tenants import measures, registry
from tenants.measures import Peak, Place
from tenants.models import RefusalDelta, RefusalMinute, UsageHour
from tests import cast
from tests.cast import OPS, SHARD, acme, at, globex

pytestmark = pytest.mark.django_db

EVERYWHERE = Place("", None)


def refusals(count: int, seconds: float = 0, **changes: object) -> list[JobsPlatformError]:
    """Put that many jobs in one call; those that were refused."""
    answers = enqueue_jobs([cast.new_job(**changes)] * count, now=at(seconds))
    return [answer for answer in answers if isinstance(answer, JobsPlatformError)]


def test_a_call_leaves_one_row_a_limit_and_cause() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 3}, actor=OPS)
    assert [type(one) for one in refusals(5)] == [QuotaExceeded] * 2
    row = RefusalDelta.objects.using(SHARD).get()
    assert (row.tenant_id, row.queue, row.band, row.cause, row.jobs) == (acme().pk, "", -1, "max_depth", 2)
    assert row.at == at(0)


def test_what_is_admitted_leaves_none() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 3}, actor=OPS)
    assert refusals(3) == []
    assert not RefusalDelta.objects.using(SHARD).exists()


def test_folding_adds_them_up_by_minute_and_loses_none() -> None:
    acme()
    registry.set_quota("acme", {"enqueue_rate_per_s": 0.01, "enqueue_burst": 1}, actor=OPS)
    assert [type(one) for one in refusals(3)] == [RateLimited] * 2
    refusals(2, seconds=5)
    before = measures.refusals(acme().pk, now=at(10))
    upkeep.fold()
    assert not RefusalDelta.objects.using(SHARD).exists()
    refusals(2, seconds=20)
    upkeep.fold()
    refusals(2, seconds=70)
    upkeep.fold()
    minutes = RefusalMinute.objects.using(SHARD).order_by("minute")
    assert [(one.minute, one.jobs) for one in minutes] == [(at(0), 6), (at(60), 2)]
    assert before == {(EVERYWHERE, "enqueue_rate_per_s"): 4}
    assert measures.refusals(acme().pk, now=at(90)) == {(EVERYWHERE, "enqueue_rate_per_s"): 8}


def test_a_full_queue_is_told_to_whom_it_refused_and_is_no_limit_of_theirs() -> None:
    q = cast.queue("narrow", depth_limit=2)
    cast.enqueue_many(2, queue=q, tenant_id=globex().pk)
    assert [type(one) for one in refusals(3, queue=q)] == [QueueFull] * 3
    assert measures.refusals(acme().pk, now=at(1)) == {(Place("narrow", None), "queue_full"): 3}
    assert measures.refusals(globex().pk, now=at(1)) == {}


def test_only_the_last_day_counts() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 0}, actor=OPS)
    refusals(1)
    day = measures.DAY_SECONDS
    assert sum(measures.refusals(acme().pk, now=at(day - 60)).values()) == 1
    assert sum(measures.refusals(acme().pk, now=at(day + 60)).values()) == 0
    upkeep.fold()
    assert sum(measures.refusals(acme().pk, now=at(day + 60)).values()) == 0


def test_the_peak_is_the_most_that_a_sample_saw_within_a_day() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 100, "max_running": 5}, actor=OPS)
    cast.enqueue_many(7)
    cast.claim(limit=2)
    assert upkeep.sample_usage(now=at(0)) == 1
    cast.claim(limit=2)
    assert upkeep.sample_usage(now=at(30)) == 0, "it was counted half a minute ago"
    assert upkeep.sample_usage(now=at(60)) == 1
    assert measures.peaks(acme().pk, now=at(60)) == {EVERYWHERE: Peak(running=4, waiting=5)}
    assert measures.peaks(acme().pk, now=at(measures.DAY_SECONDS + 120)) == {}
    assert measures.peaks(globex().pk, now=at(60)) == {}


def test_a_sample_counts_the_limits_own_queue_and_band() -> None:
    acme()
    mail = cast.queue("mail", preset="hnl")
    registry.set_quota("acme", {"max_depth": 100}, queue="mail", actor=OPS)
    registry.set_quota("acme", {"max_depth": 100}, queue="mail", band=0, actor=OPS)
    cast.enqueue_many(3, queue=mail, priority=1)
    cast.enqueue_many(2, queue=mail, priority=0)
    cast.enqueue_many(4)
    assert upkeep.sample_usage(now=at(0)) == 2
    found = {place: peak.waiting for place, peak in measures.peaks(acme().pk, now=at(1)).items()}
    assert found == {Place("mail", None): 5, Place("mail", 0): 2}


def test_limits_that_are_longest_uncounted_come_first() -> None:
    for slug in ("acme", "globex"):
        cast.tenant(slug)
        registry.set_quota(slug, {"max_depth": 100}, actor=OPS)
    assert upkeep.sample_usage(1, now=at(0)) == 1
    assert upkeep.sample_usage(1, now=at(1)) == 1
    assert UsageHour.objects.using(SHARD).count() == 2


def test_purging_forgets_what_is_older_than_two_days_and_nothing_else() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 1}, actor=OPS)
    refusals(2)
    upkeep.fold()
    upkeep.sample_usage(now=at(0))
    upkeep.purge(now=at(47 * 3_600))
    assert RefusalMinute.objects.using(SHARD).exists()
    upkeep.purge(now=at(0) + timedelta(hours=49))
    assert not RefusalMinute.objects.using(SHARD).exists()
    assert not UsageHour.objects.using(SHARD).exists()
