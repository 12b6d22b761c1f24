"""What is due becomes jobs: each instant once, missed fires by their policy, and nothing that is paused."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from django.test import TestCase

from jobqueue import fsck, kinds, policies, upkeep, wakeup
from jobqueue.schedule_models import ScheduleFire, ScheduleRow
from jobqueue.schedules import firing, register, runs
from jobqueue.types import FLEET
from jobsplatform.errors import Invalid
from tenants import registry
from tests import cast
from tests.cast import OPS, SHARD
from tests.schedules_cast import count_jobs, fires, jobs, made, stand, standing, tick, utc

pytestmark = pytest.mark.django_db

NOON = utc("2035-05-04 12:00")
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


# One fire


def test_a_schedule_fires_at_its_instant() -> None:
    schedule = made(next_at=NOON)
    assert tick(NOON - SECOND) == 0
    assert tick(NOON) == 1
    assert fires(schedule.id) == [NOON]


def test_a_fire_makes_the_schedules_job() -> None:
    schedule = made(next_at=NOON, kind="report", payload='{"n": 1.0}', priority=1)
    tick(NOON)
    (job_id,) = jobs(schedule.id)
    job = cast.row("queue_job", job_id)
    assert (job["kind"], job["payload"], job["priority"]) == ("report", '{"n": 1.0}', 1)
    assert job["tenant_id"] == cast.acme().pk
    assert cast.place(job_id) == "readyjob"


def test_a_fired_job_has_what_its_kind_says() -> None:
    kinds.change("report", {"max_attempts": 7, "dependency": "printer"}, actor=OPS)
    schedule = made(next_at=NOON, kind="report")
    tick(NOON)
    job = cast.row("queue_job", *jobs(schedule.id))
    assert (job["max_attempts"], job["dependency"]) == (7, "printer")


def test_a_run_by_hand_has_what_its_kind_says() -> None:
    kinds.change("report", {"max_attempts": 7, "dependency": "printer"}, actor=OPS)
    schedule = made(next_at=NOON, kind="report")
    run = runs.run_now(schedule.id, scope=FLEET, actor=OPS)
    job = cast.row("queue_job", run.job_id)
    assert (job["max_attempts"], job["dependency"]) == (7, "printer")


def test_a_payload_that_its_kind_refuses_makes_no_schedule() -> None:
    kinds.change("report", {"payload_schema": {"type": "object"}}, actor=OPS)
    with pytest.raises(Invalid):
        made(kind="report", payload="5")


def test_a_fire_wakes_who_waits() -> None:
    heard: list[wakeup.Mark] = []
    forget = wakeup.hear(lambda alias, marks: heard.extend(marks))
    schedule = made(next_at=NOON, priority=0)
    with TestCase.captureOnCommitCallbacks(using=SHARD, execute=True):
        tick(NOON)
    forget()
    assert heard == [wakeup.Mark(cast.queue().id, 0)], schedule


def test_a_fired_job_is_claimed_like_any_other() -> None:
    schedule = made(next_at=NOON)
    tick(NOON)
    lease = cast.claim_one(now=NOON + SECOND)
    assert [lease.job_id] == jobs(schedule.id)


def test_a_schedule_moves_on_to_its_next_instant() -> None:
    schedule = made(next_at=NOON)
    tick(NOON)
    assert standing(schedule.id)["next_at"] == NOON + HOUR


def test_an_instant_fires_once_however_often_it_is_looked_at() -> None:
    schedule = made(next_at=NOON)
    for _ in range(3):
        tick(NOON + SECOND)
    assert fires(schedule.id) == [NOON]


def test_an_instant_that_comes_again_makes_no_second_job() -> None:
    """A shard's row that was set back, as by a restore: the row of the fire is what counts."""
    schedule = made(next_at=NOON)
    tick(NOON)
    stand(schedule.id, NOON)
    tick(NOON)
    assert (fires(schedule.id), count_jobs()) == ([NOON], 1)
    assert standing(schedule.id)["next_at"] == NOON + HOUR


def test_a_look_takes_no_more_than_its_limit() -> None:
    for _ in range(3):
        made(next_at=NOON)
    assert [tick(NOON, limit=2) for _ in range(3)] == [2, 1, 0]
    assert count_jobs() == 3


def test_an_unfinished_decision_of_another_version_fires_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule is changed between the dispatcher's look and its statement."""
    schedule = made(next_at=NOON)
    send = firing._Round._send

    def changed_before(self: firing._Round, *rest: object) -> object:
        register.change(schedule.id, {"kind": "other"}, scope=FLEET, actor=cast.OPS)
        return send(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(firing._Round, "_send", changed_before)
    tick(NOON)
    assert count_jobs() == 0
    monkeypatch.undo()
    tick(NOON)
    assert fires(schedule.id) == [NOON]


# Pauses and holds


def test_a_paused_schedule_does_not_fire() -> None:
    schedule = made(next_at=NOON)
    register.pause(schedule.id, scope=FLEET, actor=cast.OPS)
    tick(NOON)
    assert count_jobs() == 0


def test_a_pause_between_the_look_and_the_statement_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = made(next_at=NOON)
    send = firing._Round._send

    def paused_before(self: firing._Round, *rest: object) -> object:
        ScheduleRow.objects.using(SHARD).filter(pk=schedule.id).update(is_enabled=False)
        return send(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(firing._Round, "_send", paused_before)
    tick(NOON)
    assert count_jobs() == 0


def test_what_fell_due_in_a_pause_is_not_made_up() -> None:
    schedule = made(next_at=utc("2020-01-01 00:00"), missed="all")
    register.pause(schedule.id, scope=FLEET, actor=cast.OPS)
    register.resume(schedule.id, scope=FLEET, actor=cast.OPS)
    assert standing(schedule.id)["next_at"] > utc("2026-01-01 00:00")


def test_a_paused_intake_holds_the_fire_until_it_is_open_again() -> None:
    schedule = made(next_at=NOON)
    policies.pause("default", intake=True, actor=cast.OPS)
    tick(NOON)
    assert (count_jobs(), standing(schedule.id)["next_at"]) == (0, NOON)
    policies.resume("default", intake=True, actor=cast.OPS)
    assert tick(NOON + SECOND) == 0, "it is held for some seconds"
    tick(NOON + timedelta(seconds=firing.HOLD_SECONDS))
    assert fires(schedule.id) == [NOON]


def test_a_suspended_tenants_schedules_are_held() -> None:
    schedule = made(next_at=NOON)
    registry.suspend("acme", actor=cast.OPS)
    tick(NOON)
    assert count_jobs() == 0
    registry.reinstate("acme", actor=cast.OPS)
    tick(NOON + timedelta(seconds=firing.HOLD_SECONDS))
    assert fires(schedule.id) == [NOON]


def test_fires_that_were_held_until_others_followed_are_missed() -> None:
    schedule = made(next_at=NOON, missed="one")
    policies.pause("default", intake=True, actor=cast.OPS)
    tick(NOON)
    policies.resume("default", intake=True, actor=cast.OPS)
    tick(NOON + 2 * HOUR)
    assert (fires(schedule.id), standing(schedule.id)["missed_count"]) == ([NOON + 2 * HOUR], 2)


def test_a_paused_dispatch_lets_fires_wait_as_jobs() -> None:
    schedule = made(next_at=NOON)
    policies.pause("default", actor=cast.OPS)
    tick(NOON)
    assert len(jobs(schedule.id)) == 1
    assert cast.claim(now=NOON + SECOND) == []


# Limits on intake


def test_a_full_quota_holds_the_fire_until_there_is_room() -> None:
    registry.set_quota(cast.acme().slug, {"max_depth": 1}, actor=cast.OPS)
    job_id = cast.enqueue(now=NOON - SECOND)
    schedule = made(next_at=NOON)
    tick(NOON)
    assert fires(schedule.id) == []
    cast.cancel(job_id)
    tick(NOON + timedelta(seconds=firing.HOLD_SECONDS_MAX))
    assert fires(schedule.id) == [NOON]


def test_a_tenant_with_room_under_its_quota_fires() -> None:
    registry.set_quota(cast.acme().slug, {"max_depth": 1}, actor=cast.OPS)
    schedule = made(next_at=NOON)
    tick(NOON)
    assert fires(schedule.id) == [NOON]
    assert cast.read("SELECT count(*) FROM tenants_reservation") == [(0,)]


def test_two_fires_at_once_take_one_place_once() -> None:
    registry.set_quota(cast.acme().slug, {"max_depth": 1}, actor=cast.OPS)
    made(next_at=NOON)
    made(next_at=NOON)
    tick(NOON)
    assert count_jobs() == 1


def test_a_fire_spends_the_tenants_rate() -> None:
    registry.set_quota(cast.acme().slug, {"enqueue_rate_per_s": 0.001, "enqueue_burst": 1}, actor=cast.OPS)
    made(next_at=NOON)
    made(next_at=NOON)
    tick(NOON)
    assert count_jobs() == 1


# Missed fires (S65)


def _day_down(missed: str) -> int:
    """An hourly schedule whose dispatchers were down for a day, back half an hour after a fire."""
    return made(next_at=NOON + HOUR, missed=missed).id


BACK = NOON + 24 * HOUR + timedelta(minutes=30)


def test_after_a_day_down_one_makes_one_job_of_the_latest_fire() -> None:
    schedule_id = _day_down("one")
    for seconds in range(0, 60, 5):
        tick(BACK + seconds * SECOND)
    assert fires(schedule_id) == [NOON + 24 * HOUR]
    assert standing(schedule_id)["missed_count"] == 23


def test_after_a_day_down_skip_makes_none() -> None:
    schedule_id = _day_down("skip")
    for seconds in range(0, 60, 5):
        tick(BACK + seconds * SECOND)
    assert fires(schedule_id) == []
    assert standing(schedule_id)["missed_count"] == 24
    tick(NOON + 25 * HOUR)
    assert fires(schedule_id) == [NOON + 25 * HOUR]


def test_after_a_day_down_all_makes_the_ten_newest_oldest_first() -> None:
    schedule_id = _day_down("all")
    for seconds in range(60):
        tick(BACK + seconds * SECOND)
    assert fires(schedule_id) == [NOON + hours * HOUR for hours in range(15, 25)]
    assert standing(schedule_id)["missed_count"] == 14
    assert standing(schedule_id)["next_at"] == NOON + 25 * HOUR


def test_made_up_fires_keep_a_second_between_them() -> None:
    schedule_id = _day_down("all")
    for tenths in range(300):
        tick(BACK + tenths * SECOND / 10)
    rows = ScheduleFire.objects.using(SHARD).filter(schedule_id=schedule_id).order_by("fired_at")
    made_at = [row.fired_at for row in rows]
    assert len(made_at) == 10
    assert all(later - earlier >= SECOND for earlier, later in itertools.pairwise(made_at))


@pytest.mark.parametrize(("late_s", "expected"), [(60, 1), (61, 0)])
def test_a_fire_is_missed_when_it_is_more_than_a_minute_late(late_s: int, expected: int) -> None:
    schedule = made(next_at=NOON, missed="skip")
    tick(NOON + late_s * SECOND)
    assert len(fires(schedule.id)) == expected


def test_a_year_of_missed_minutes_is_not_counted_to_the_end() -> None:
    schedule = made(cron="* * * * *", next_at=NOON, missed="all")
    back = NOON + timedelta(days=365)
    tick(back)
    stands = standing(schedule.id)
    assert fires(schedule.id) == [back - timedelta(minutes=9)]
    assert stands["missed_count"] == 990
    assert stands["next_at"] == back - timedelta(minutes=8)


# Overlap


def test_overlap_skip_passes_over_a_fire_while_an_earlier_job_waits() -> None:
    schedule = made(next_at=NOON, overlap="skip")
    tick(NOON)
    tick(NOON + HOUR)
    assert fires(schedule.id) == [NOON]
    outcomes = cast.read("SELECT outcome FROM queue_schedulefire ORDER BY id")
    assert outcomes == [("fired",), ("overlap",)]
    assert standing(schedule.id)["next_at"] == NOON + 2 * HOUR


def test_overlap_skip_passes_over_a_fire_while_an_earlier_job_runs() -> None:
    schedule = made(next_at=NOON, overlap="skip")
    tick(NOON)
    cast.claim_one(now=NOON, lease_s=7_200)
    tick(NOON + HOUR)
    assert fires(schedule.id) == [NOON]


def test_overlap_skip_passes_over_a_fire_while_an_earlier_job_waits_to_be_tried_again() -> None:
    schedule = made(next_at=NOON, overlap="skip")
    tick(NOON)
    cast.fail(cast.claim_one(now=NOON), now=NOON + SECOND, retry_after_s=9_000)
    tick(NOON + HOUR)
    assert fires(schedule.id) == [NOON]


def test_overlap_skip_fires_again_when_the_earlier_job_is_done() -> None:
    schedule = made(next_at=NOON, overlap="skip")
    tick(NOON)
    cast.complete(cast.claim_one(now=NOON), now=NOON + SECOND)
    tick(NOON + HOUR)
    assert fires(schedule.id) == [NOON, NOON + HOUR]


def test_a_dead_letter_counts_as_done() -> None:
    schedule = made(next_at=NOON, overlap="skip")
    tick(NOON)
    cast.fail(cast.claim_one(now=NOON), now=NOON + SECOND, error_class="permanent")
    tick(NOON + HOUR)
    assert len(fires(schedule.id)) == 2


def test_overlap_allow_fires_beside_an_earlier_job() -> None:
    schedule = made(next_at=NOON, overlap="allow")
    tick(NOON)
    tick(NOON + HOUR)
    assert len(fires(schedule.id)) == 2


def test_a_schedule_that_begins_to_skip_sees_the_jobs_from_before() -> None:
    schedule = made(next_at=NOON, overlap="allow")
    tick(NOON)
    register.change(schedule.id, {"overlap": "skip"}, scope=FLEET, actor=cast.OPS)
    tick(NOON + HOUR)
    assert fires(schedule.id) == [NOON]


def test_a_lapsed_lease_comes_back_beside_a_newer_run() -> None:
    """S17: `overlap` decides at the fire alone, so that taking leases back can never meet a unique rule."""
    schedule = made(next_at=NOON, overlap="skip")
    tick(NOON)
    cast.claim_one(now=NOON, lease_s=30)
    cast.enqueue_many(20, now=NOON)
    cast.claim(now=NOON, limit=20, lease_s=30)
    runs.run_now(schedule.id, scope=FLEET, actor=cast.OPS, now=NOON)
    assert upkeep.reap(500, NOON + timedelta(seconds=31)) == {"ready": 21}
    assert {cast.place(job_id) for job_id in jobs(schedule.id)} == {"readyjob"}


# History


def test_fsck_finds_no_fault_in_what_schedules_made() -> None:
    for changes in ({}, {"overlap": "skip"}, {"missed": "all"}):
        schedule = made(next_at=NOON, **changes)
        runs.run_now(schedule.id, scope=FLEET, actor=cast.OPS, now=NOON)
    for hours in range(4):
        tick(NOON + hours * HOUR)
    assert count_jobs() > 6
    assert list(fsck.check()) == []


def test_old_fires_are_forgotten_and_the_schedule_stays_where_it_is() -> None:
    schedule = made(next_at=NOON)
    tick(NOON)
    assert firing.purge(now=NOON + timedelta(days=29)) == 0
    assert firing.purge(now=NOON + timedelta(days=31)) == 1
    assert standing(schedule.id)["next_at"] == NOON + HOUR


def test_a_shard_that_has_lost_the_queues_policy_and_lanes_is_told_and_fires() -> None:
    schedule = made(next_at=NOON)
    tick(NOON - HOUR)
    cast.read("DELETE FROM queue_policyrow RETURNING 1")
    cast.read("DELETE FROM queue_lane RETURNING 1")
    tick(NOON)
    assert fires(schedule.id) == [NOON]


def test_an_expression_that_cannot_be_read_here_holds_up_no_other() -> None:
    broken, sound = made(next_at=NOON), made(next_at=NOON)
    ScheduleRow.objects.using(SHARD).filter(pk=broken.id).update(timezone="Mars/Olympus")
    tick(NOON)
    assert (len(fires(broken.id)), len(fires(sound.id))) == (0, 1)
