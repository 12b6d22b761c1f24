"""Races for a schedule's fires: dispatchers among each other, and with those who change or remove schedules."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connections

from jobqueue.schedules import firing, register, runs
from jobqueue.types import FLEET
from jobsplatform import events
from jobsplatform.errors import JobsPlatformError, KeyConflict, NotFound, QuotaExceeded
from tenants import registry
from tests import cast
from tests.cast import OPS, together
from tests.schedules_cast import count_jobs, fires, jobs, made, standing, tick, utc

pytestmark = pytest.mark.django_db(transaction=True)

NOON = utc("2035-05-04 12:00")
MINUTE = timedelta(minutes=1)
DISPATCHERS = 5


@pytest.mark.parametrize("ticks", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_five_dispatchers_make_as_many_jobs_as_there_are_ticks(ticks: int) -> None:
    """S63: all look at the same instant, again and again."""
    schedule = made(cron="* * * * *", next_at=NOON)
    barrier = Barrier(DISPATCHERS)
    heard: list[str] = []
    deaf = events.subscribe(lambda name, fields: heard.append(name))

    def dispatch() -> None:
        for number in range(ticks):
            barrier.wait(60)
            firing.fire(10, NOON + number * MINUTE)

    answers = together(*[dispatch] * DISPATCHERS)
    deaf()
    assert answers == [None] * DISPATCHERS
    assert fires(schedule.id) == [NOON + number * MINUTE for number in range(ticks)]
    assert count_jobs() == len(set(jobs(schedule.id))) == ticks
    assert cast.read("SELECT count(*) FROM queue_schedulefire") == [(ticks,)]
    assert standing(schedule.id)["missed_count"] == 0
    assert set(heard) <= {"fired"}, "losers are quiet"


def test_dispatchers_share_many_schedules_that_are_due_at_once() -> None:
    for _ in range(60):
        made(next_at=NOON)

    def dispatch() -> None:
        """Who is second finds the same seven, does nothing and looks again, until none is due."""
        for _ in range(2_000):
            tick(NOON, limit=7)
            if not cast.read("SELECT FROM queue_schedulerow WHERE due_at <= %s LIMIT 1", [NOON]):
                break

    assert together(*[dispatch] * DISPATCHERS) == [None] * DISPATCHERS
    assert count_jobs() == 60
    assert cast.read(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM queue_schedulefire GROUP BY schedule_id) c"
    ) == [(1,)]


def test_dispatchers_that_make_up_missed_fires_make_each_once() -> None:
    schedule = made(next_at=NOON - 24 * 60 * MINUTE, missed="all")

    def dispatch() -> None:
        for second in range(20):
            tick(NOON + timedelta(seconds=second))

    together(*[dispatch] * 3)
    assert fires(schedule.id) == [NOON - hours * 60 * MINUTE for hours in range(9, -1, -1)]


def test_a_pause_meets_dispatchers_and_nothing_fires_after_it() -> None:
    for number in range(5):
        schedule = made(cron="* * * * *", next_at=NOON)

        def dispatch(schedule_id: int = schedule.id) -> None:
            for minute in range(20):
                tick(NOON + minute * MINUTE)
            assert schedule_id

        def pause(schedule_id: int = schedule.id) -> int:
            register.pause(schedule_id, scope=FLEET, actor=OPS)
            return len(fires(schedule_id))

        first, _, at_pause = together(dispatch, dispatch, pause)
        assert first is None, number
        assert len(fires(schedule.id)) == at_pause


def test_a_removal_meets_dispatchers_and_leaves_nothing_that_fires() -> None:
    schedule = made(cron="* * * * *", next_at=NOON)

    def dispatch() -> None:
        for minute in range(20):
            tick(NOON + minute * MINUTE)
            register.sync()

    answers = together(dispatch, dispatch, lambda: register.remove(schedule.id, scope=FLEET, actor=OPS))
    assert answers == [None] * 3
    register.sync()
    before = count_jobs()
    tick(NOON + 100 * MINUTE)
    assert count_jobs() == before
    assert cast.read("SELECT count(*) FROM queue_schedulerow") == [(0,)]


def test_changes_at_once_end_in_one_of_them_everywhere() -> None:
    schedule = made(next_at=NOON)

    def rename(kind: str) -> Any:
        return lambda: register.change(schedule.id, {"kind": kind}, scope=FLEET, actor=OPS)

    together(*[rename(f"kind-{number}") for number in range(6)])
    ((there,),) = cast.read("SELECT kind FROM queue_schedulerow")
    ((here, version),) = cast.read("SELECT kind, version FROM queue_schedule", alias="default")
    assert there == here
    assert standing(schedule.id)["version"] == version == 7


def test_a_quota_of_schedules_holds_under_creations_at_once() -> None:
    registry.set_quota(cast.acme().slug, {"max_schedules": 3}, actor=OPS)
    cast.queue()
    answers = together(*[made] * 8)
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 5
    assert cast.read("SELECT count(*) FROM queue_schedule", alias="default") == [(3,)]


def test_one_key_makes_one_schedule_under_creations_at_once() -> None:
    cast.acme()
    cast.queue()
    answers = together(*[lambda: made(key="k")] * 6, lambda: made(key="k", kind="other"))
    made_ids = {answer.id for answer in answers if not isinstance(answer, BaseException)}
    assert len(made_ids) == 1
    assert all(isinstance(answer, KeyConflict) for answer in answers if isinstance(answer, BaseException))
    assert cast.read("SELECT count(*) FROM queue_schedule", alias="default") == [(1,)]


def test_one_key_makes_one_run_under_requests_at_once() -> None:
    schedule = made()
    answers = together(*[lambda: runs.run_now(schedule.id, scope=FLEET, actor=OPS, key="k")] * 6)
    assert {getattr(answer, "job_id", answer) for answer in answers} == set(jobs(schedule.id))
    assert count_jobs() == 1


def test_runs_meet_fires_and_removal_without_a_loss() -> None:
    schedule = made(cron="* * * * *", next_at=NOON)

    def run() -> int:
        made_jobs = 0
        for _ in range(10):
            try:
                runs.run_now(schedule.id, scope=FLEET, actor=OPS)
                made_jobs += 1
            except NotFound:
                break
        return made_jobs

    def dispatch() -> None:
        for minute in range(10):
            tick(NOON + minute * MINUTE)

    answers = together(run, run, dispatch, lambda: register.remove(schedule.id, scope=FLEET, actor=OPS))
    assert not [answer for answer in answers if isinstance(answer, BaseException)]
    fired = len(fires(schedule.id))
    assert fired == count_jobs()
    connections.close_all()


def test_overlap_skip_starts_one_under_dispatchers_at_once() -> None:
    schedule = made(cron="* * * * *", next_at=NOON, overlap="skip")
    barrier = Barrier(4)

    def dispatch() -> JobsPlatformError | None:
        for minute in range(10):
            barrier.wait(60)
            tick(NOON + minute * MINUTE)
        return None

    assert together(*[dispatch] * 4) == [None] * 4
    assert fires(schedule.id) == [NOON]
