"""What waits is sampled by rounds over the lanes that hold something, kept for a day, and read as a course of steps."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from jobqueue import depth_charts, depths, upkeep
from jobqueue.depths import SPANS
from jobqueue.models import DepthMinute, DepthRound
from jobsplatform import sql
from tests import admin_cast, cast
from tests.cast import SHARD, acme, at, globex
from tests.plans_cast import explained, rows_read

pytestmark = pytest.mark.django_db

HOUR, DAY = SPANS["hour"], SPANS["day"]


def sampled(seconds: float, limit: int = 100) -> int:
    return upkeep.sample_depths(limit, now=at(seconds))


def kept(tenant_id: int) -> list[tuple[object, ...]]:
    """(minute, queue_id, priority, ready, age_s) of a tenant; 0: of all."""
    rows = DepthMinute.objects.using(SHARD).filter(tenant_id=tenant_id).order_by("minute", "priority")
    return [(one.minute, one.queue_id, one.priority, one.ready, one.age_s) for one in rows]


def levels(course: depths.Course) -> dict[str, tuple[list[float | None], list[float | None]]]:
    return {f"{one.queue} {one.band}": (list(one.ready), list(one.age_s)) for one in course.levels}


# Samples


def test_a_sample_says_how_much_waits_and_for_how_long_of_each_tenant_and_of_all() -> None:
    q = cast.queue()
    cast.enqueue_many(3, now=at(0), priority=1)
    cast.enqueue(now=at(10), priority=1, kind="other")
    cast.enqueue(now=at(20), priority=1, tenant_id=globex().pk)
    assert sampled(70) == 3
    assert kept(acme().pk) == [(at(60), q.id, 1, 4, 70.0)]
    assert kept(globex().pk) == [(at(60), q.id, 1, 1, 50.0)]
    assert kept(0) == [(at(60), q.id, 1, 5, 70.0)]


def test_delayed_running_and_finished_jobs_do_not_wait() -> None:
    cast.enqueue(now=at(0), delay_s=600)
    cast.leased(now=at(0))
    cast.buried(now=at(0))
    assert sampled(60) == 0
    assert not DepthMinute.objects.using(SHARD).exists()
    assert DepthRound.objects.using(SHARD).get().is_over


def test_what_a_pause_holds_back_waits_too() -> None:
    from jobqueue import policies

    cast.enqueue(now=at(0))
    policies.pause("default", actor=cast.OPS, reason="test")
    upkeep.sweep_lanes()
    assert sampled(60) == 1


def test_a_minute_is_counted_once_however_many_dispatchers_ask() -> None:
    cast.enqueue_many(2, now=at(0))
    assert [sampled(60), sampled(61), sampled(119)] == [1, 0, 0]
    assert [row[3] for row in kept(acme().pk)] == [2]
    assert sampled(120) == 1
    assert [row[0] for row in kept(acme().pk)] == [at(60), at(120)]


def test_a_round_goes_on_where_it_was_and_adds_up_by_band() -> None:
    for kind in ("a", "b", "c", "d", "e"):
        cast.enqueue_many(2, now=at(0), kind=kind)
    assert sampled(60, limit=2) == 2
    assert sampled(61, limit=2) == 0  # not faster than one dispatcher
    assert sampled(66, limit=2) == 2
    assert not DepthRound.objects.using(SHARD).get().is_over
    assert sampled(130, limit=2) == 1  # the round of the minute before is ended first
    assert [row[0:1] + row[3:4] for row in kept(acme().pk)] == [(at(60), 10)]
    assert DepthRound.objects.using(SHARD).get().is_over
    assert sampled(131, limit=9) == 5


def test_a_round_that_was_left_is_given_up() -> None:
    for kind in ("a", "b", "c"):
        cast.enqueue(now=at(0), kind=kind)
    sampled(60, limit=2)
    assert sampled(3_600) == 3
    rounds = DepthRound.objects.using(SHARD).order_by("minute")
    assert [(one.minute, one.is_over) for one in rounds] == [(at(60), False), (at(3_600), True)]
    steps = depths.of_tenant(acme().pk, DAY, now=at(3_660))
    assert list(steps.levels[0].ready) == [3.0]


def test_counting_stops_at_a_bound_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LANE_COUNT_MAX", 3)
    cast.enqueue_many(5, now=at(0))
    sampled(60)
    course = depths.of_tenant(acme().pk, HOUR, now=at(90))
    assert levels(course) == {"default P2": ([3.0], [60.0])}
    assert course.is_capped
    assert depth_charts.charts(course, of_one_queue=False)[0].note == "counted up to a bound"


@pytest.mark.django_db(transaction=True)
def test_dispatchers_at_one_instant_make_one_round() -> None:
    """Also the very first, when there is no round yet that one of them could lock."""
    cast.enqueue_many(4, now=at(0))
    for seconds in (60, 120):
        counted = cast.together(*[lambda seconds=seconds: sampled(seconds)] * 4)
        assert sorted(counted, key=str) == [0, 0, 0, 1]
    assert [row[3] for row in kept(acme().pk)] == [4, 4]


def test_samples_are_forgotten_after_a_day_in_batches() -> None:
    cast.enqueue_many(1, now=at(0))
    for minute in range(1, 6):
        sampled(60 * minute)
    a_day_on = at(25 * 3_600 + 4 * 60)
    batch = {"limit": 2, "now": a_day_on}
    assert sql.rows("jobqueue/purge_depths", batch, alias=SHARD, writes=True) == [(4,)]
    assert (
        len(kept(acme().pk)) == 4
    )  # the oldest two samples were one minute's: the tenant's, and that of all
    upkeep.purge(now=a_day_on)
    assert [row[0] for row in kept(acme().pk)] == [at(240), at(300)]
    assert [row[0] for row in kept(0)] == [at(240), at(300)]
    assert DepthRound.objects.using(SHARD).count() == 2


# Courses


def test_a_course_tells_nothing_waited_from_nobody_looked() -> None:
    cast.enqueue_many(2, now=at(0), priority=1)
    sampled(60)
    cast.claim_one(now=at(100))
    sampled(120)
    cast.claim_one(now=at(130))
    sampled(180)
    sampled(300)  # nobody looked at the minute before
    course = depths.of_tenant(acme().pk, HOUR, now=at(330))
    assert list(course.at) == [int(at(60 * minute).timestamp()) for minute in range(1, 6)]
    assert levels(course) == {"default P1": ([2, 1, 0, None, 0], [60, 120, 0, None, 0])}


def test_a_step_has_the_most_that_waited_and_the_longest_wait() -> None:
    cast.enqueue_many(3, now=at(0))
    sampled(900)
    cast.claim(limit=2, now=at(930))
    sampled(960)
    course = depths.of_tenant(acme().pk, DAY, now=at(1_000))
    assert levels(course) == {"default P2": ([3.0], [960.0])}


def test_a_course_is_the_tenants_own() -> None:
    cast.enqueue_many(2, now=at(0))
    cast.enqueue_many(7, now=at(0), tenant_id=globex().pk, priority=0)
    sampled(60)
    assert list(levels(depths.of_tenant(acme().pk, HOUR, now=at(90)))) == ["default P2"]
    assert list(levels(depths.of_tenant(globex().pk, HOUR, now=at(90)))) == ["default P0"]


def test_nobody_asks_for_all_tenants_as_one() -> None:
    with pytest.raises(AssertionError):
        depths.of_tenant(0)


def test_a_queue_is_of_all_tenants_together_and_of_no_other_queue() -> None:
    other = cast.queue("other")
    cast.enqueue_many(2, now=at(0))
    cast.enqueue_many(3, now=at(30), tenant_id=globex().pk)
    cast.enqueue_many(9, now=at(0), queue=other)
    sampled(60)
    assert levels(depths.of_queue(cast.queue().id, HOUR, now=at(90))) == {"default P2": ([5.0], [60.0])}


def test_the_deepest_levels_are_drawn_and_the_rest_is_named() -> None:
    for number in range(7):
        cast.enqueue_many(number + 1, now=at(0), queue=cast.queue(f"q-{number}"))
    sampled(60)
    drawn, ages = depth_charts.charts(depths.of_tenant(acme().pk, HOUR, now=at(90)), of_one_queue=False)
    assert [line.label for line in drawn.lines] == [f"q-{number} P2" for number in range(6, 0, -1)]
    assert drawn.note == ages.note == "the 6 deepest of 7 levels"


def test_where_nothing_waited_a_line_stands_at_zero() -> None:
    sampled(60)
    drawn, ages = depth_charts.charts(depths.of_tenant(acme().pk, HOUR, now=at(90)), of_one_queue=False)
    assert [list(line.values) for line in (*drawn.lines, *ages.lines)] == [[0.0], [0.0]]
    assert not ages.is_logarithmic


def test_what_is_read_of_a_course_is_bounded_and_the_oldest_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(depths, "ROWS_MAX", 3)
    cast.enqueue_many(2, now=at(0))
    for minute in range(1, 8):
        sampled(60 * minute)
    course = depths.of_tenant(acme().pk, HOUR, now=at(430))
    assert list(course.at) == [int(at(60 * minute).timestamp()) for minute in (6, 7)]


def test_a_queues_page_draws_all_tenants_together() -> None:
    now = timezone.now()
    cast.enqueue_many(2, now=now - timedelta(minutes=5))
    cast.enqueue_many(3, now=now - timedelta(minutes=5), tenant_id=globex().pk)
    upkeep.sample_depths(now=now - timedelta(minutes=1))
    text = admin_cast.page(admin_cast.operator(), "/admin/queues/default/").replace("&quot;", '"')
    assert '"label": "P2", "values": [5.0]' in text
    assert '"label": "P2", "values": [240.0]' in text


# Bounds


def _analyse(tables: str) -> None:
    with connections[SHARD].cursor() as cursor:
        cursor.execute(f"ANALYZE {tables}")


def test_reading_a_course_reads_no_other_tenants_and_no_older_samples() -> None:
    DepthRound.objects.using(SHARD).bulk_create(
        DepthRound(minute=at(60 * n), lane_id=0, is_over=True, looked_at=at(60 * n)) for n in range(200)
    )
    DepthMinute.objects.using(SHARD).bulk_create(
        DepthMinute(tenant_id=t, minute=at(60 * n), queue_id=q, priority=2, is_capped=False, age_s=1, ready=1)
        for n in range(200)
        for t in (0, 1, 2, 3)
        for q in (1, 2)
    )
    _analyse("queue_depthminute, queue_depthround")
    now = at(60 * 200)
    (of_tenant,) = explained(lambda: depths.of_tenant(2, HOUR, now=now), "jobqueue/depths_of_")
    (of_queue,) = explained(lambda: depths.of_queue(2, HOUR, now=now), "jobqueue/depths_of_")
    for plan, samples in ((of_tenant, 120), (of_queue, 60)):
        read = rows_read(plan)
        assert 0 < read["queue_depthminute"] <= samples, plan
        assert 0 < read["queue_depthround"] <= samples, plan


def test_a_sample_costs_by_the_lanes_that_hold_work_and_not_by_all() -> None:
    cast.enqueue_many(40, now=at(0))
    cast.read(
        "INSERT INTO queue_lane (queue_id, priority, tenant_id, kind, dependency, is_active, low)"
        " SELECT q, 2, t, 'noop', '', true, 'epoch' FROM generate_series(10, 59) q, generate_series(10, 59) t"
        " RETURNING id"
    )
    _analyse("queue_lane, queue_readyjob")
    (plan,) = explained(lambda: sampled(60), "jobqueue/sample_depths")
    assert rows_read(plan)["queue_lane"] <= 1, plan
    assert rows_read(plan)["queue_readyjob"] <= 40, plan
