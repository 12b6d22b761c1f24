"""Schedules in the register, and what their shard is told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from jobqueue import policies
from jobqueue.schedule_models import Schedule, ScheduleRow
from jobqueue.schedules import answers, reads, register, runs
from jobqueue.types import FLEET
from jobsplatform import sql
from jobsplatform.errors import (
    Invalid,
    KeyConflict,
    NotFound,
    QuotaExceeded,
    TenantSuspended,
    Unavailable,
)
from tenants import registry
from tests import cast
from tests.cast import OPS, SHARD
from tests.schedules_cast import count_jobs, fires, jobs, made, shown, standing, tick, utc

pytestmark = pytest.mark.django_db

NOON = utc("2035-05-04 12:00")


def _row(schedule_id: int) -> ScheduleRow:
    return ScheduleRow.objects.using(SHARD).get(pk=schedule_id)


def _change(schedule_id: int, **changes: Any) -> reads.ScheduleView:
    return register.change(schedule_id, changes, scope=FLEET, actor=OPS)


# Making


def test_a_new_schedule_stands_before_its_first_instant_on_its_shard() -> None:
    schedule = made(cron="0 9 29 2 *")
    assert schedule.next_at is not None
    assert standing(schedule.id)["next_at"] == schedule.next_at
    assert (schedule.next_at.month, schedule.next_at.day, schedule.next_at.hour) == (2, 29, 9)


def test_making_and_changing_are_audited_without_the_payload() -> None:
    schedule = made(payload='"hidden"')
    _change(schedule.id, payload='"hidden too"')
    entries = cast.read(
        "SELECT action, details::text FROM tenants_auditentry WHERE target = %s ORDER BY id",
        [f"schedule:{schedule.id}"],
        alias="default",
    )
    assert [action for action, _ in entries] == ["schedule.create", "schedule.change"]
    assert "hidden" not in str(entries)
    assert "payload_hash" in entries[1][1]


def test_an_expression_that_never_fires_makes_nothing() -> None:
    with pytest.raises(Invalid):
        made(cron="0 0 31 2 *")
    assert not Schedule.objects.exists()


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ({}, 2),
        ({"queue": "default"}, 2),
        ({"queue": "default", "band": 2}, 2),
        ({"queue": "other"}, 3),
        ({"queue": "default", "band": 0}, 3),
    ],
)
def test_a_tenant_has_no_more_schedules_than_its_quota(scope: dict[str, Any], allowed: int) -> None:
    registry.set_quota(cast.acme().slug, {"max_schedules": 2}, actor=OPS, **scope)
    for _ in range(2):
        made()
    if allowed == 3:
        made()
    else:
        with pytest.raises(QuotaExceeded) as refusal:
            made()
        assert refusal.value.retry_after is not None
    assert Schedule.objects.count() == allowed


def test_another_tenants_schedules_do_not_count() -> None:
    registry.set_quota(cast.acme().slug, {"max_schedules": 1}, actor=OPS)
    made(tenant_id=cast.globex().pk)
    made()


def test_a_removed_schedule_makes_room() -> None:
    registry.set_quota(cast.acme().slug, {"max_schedules": 1}, actor=OPS)
    register.remove(made().id, scope=FLEET, actor=OPS)
    made()


def test_a_schedule_cannot_move_into_a_queue_that_is_full_of_them() -> None:
    registry.set_quota(cast.acme().slug, {"max_schedules": 0}, queue="mail", actor=OPS)
    mail = cast.queue("mail")
    schedule = made()
    with pytest.raises(QuotaExceeded):
        register.change(schedule.id, {}, queue=mail, scope=FLEET, actor=OPS)


# Idempotency keys


def test_a_repeat_with_the_same_key_gets_the_first_answer() -> None:
    first = made(key="k")
    _change(first.id, name="renamed")
    assert made(key="k") == first
    assert Schedule.objects.count() == 1


def test_a_repeat_gets_its_answer_also_when_the_schedule_is_gone() -> None:
    first = made(key="k")
    register.remove(first.id, scope=FLEET, actor=OPS)
    assert made(key="k") == first
    assert not Schedule.objects.exists()


def test_a_key_for_another_schedule_is_a_conflict() -> None:
    made(key="k")
    with pytest.raises(KeyConflict):
        made(key="k", cron="5 * * * *")


def test_a_key_is_the_tenants_own() -> None:
    made(key="k")
    made(key="k", tenant_id=cast.globex().pk, cron="5 * * * *")
    assert Schedule.objects.count() == 2


@pytest.mark.parametrize(("hours", "count"), [(23, 1), (24, 2)])
def test_a_key_holds_for_a_day(hours: int, count: int) -> None:
    made(key="k")
    _age(hours)
    made(key="k")
    assert Schedule.objects.count() == count


def test_answers_are_forgotten_after_a_day() -> None:
    made(key="k")
    assert answers.purge(10) == 0
    _age(24)
    assert answers.purge(10) == 1


def _age(hours: int) -> None:
    statement = (
        "UPDATE queue_scheduleanswer SET answered_at = answered_at - %s * interval '1 hour' RETURNING 1"
    )
    cast.read(statement, [hours], alias="default")


# Changing


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"kind": "other"},
        {"payload": "1"},
        {"priority": 0},
        {"missed": "all"},
        {"overlap": "skip"},
    ],
)
def test_a_change_that_leaves_the_expression_leaves_the_next_instant(changes: dict[str, Any]) -> None:
    schedule = made(next_at=NOON)
    _change(schedule.id, **changes)
    assert standing(schedule.id)["next_at"] == NOON
    ((name, value),) = changes.items()
    assert getattr(shown(schedule.id), name) == value


@pytest.mark.parametrize("changes", [{"cron": "30 * * * *"}, {"timezone": "Asia/Kolkata"}])
def test_another_expression_or_zone_begins_anew(changes: dict[str, Any]) -> None:
    schedule = made(next_at=NOON)
    _change(schedule.id, **changes)
    assert standing(schedule.id)["next_at"].minute == 30
    assert standing(schedule.id)["next_at"] < NOON


def test_the_shard_fires_what_the_change_says() -> None:
    schedule = made(next_at=NOON)
    _change(schedule.id, kind="other", payload="[1]", priority=0)
    tick(NOON)
    job = cast.row("queue_job", jobs(schedule.id)[0])
    assert (job["kind"], job["payload"], job["priority"]) == ("other", "[1]", 0)


def test_another_queue_brings_its_own_priority() -> None:
    hnl = cast.queue("hnl", preset="hnl")
    schedule = made()
    changed = register.change(schedule.id, {}, queue=hnl, scope=FLEET, actor=OPS)
    assert (changed.queue, changed.priority) == ("hnl", 1)


def test_a_change_of_nothing_is_no_new_version() -> None:
    schedule = made()
    _change(schedule.id, name=schedule.name)
    assert standing(schedule.id)["version"] == 1


def test_an_older_version_never_replaces_a_newer() -> None:
    schedule = made()
    row = Schedule.objects.get(pk=schedule.id)
    _change(schedule.id, kind="newer")
    register.tell(row)
    assert _row(schedule.id).kind == "newer"


def test_a_paused_schedule_shows_no_next_fire() -> None:
    schedule = made()
    assert register.pause(schedule.id, scope=FLEET, actor=OPS).next_at is None


def test_mallory_finds_no_schedule_of_acme() -> None:
    schedule = made()
    attempts: list[Callable[[], object]] = [
        lambda: reads.find(schedule.id, scope=cast.mallory()),
        lambda: register.change(schedule.id, {"name": "x"}, scope=cast.mallory(), actor=cast.MALLORY),
        lambda: register.remove(schedule.id, scope=cast.mallory(), actor=cast.MALLORY),
        lambda: runs.run_now(schedule.id, scope=cast.mallory(), actor=cast.MALLORY),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            attempt()
    assert shown(schedule.id).name == "hourly"


# Removing


def test_a_removed_schedule_fires_no_more() -> None:
    schedule = made(next_at=NOON)
    register.remove(schedule.id, scope=FLEET, actor=OPS)
    assert tick(NOON) == 0


def test_a_schedule_that_is_removed_while_it_is_told_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lists schedules sees it before its maker has told the shard."""
    tell_again = register.tell_again

    def late(schedule_id: int) -> bool:
        register.remove(schedule_id, scope=FLEET, actor=OPS)
        return tell_again(schedule_id)

    monkeypatch.setattr(register, "tell_again", late)
    made()
    assert reads.on_shard(SHARD) == {}


def test_the_jobs_of_a_removed_schedule_stay() -> None:
    schedule = made(next_at=NOON)
    tick(NOON)
    register.remove(schedule.id, scope=FLEET, actor=OPS)
    assert cast.place(jobs(schedule.id)[0]) == "readyjob"


# A shard that was away


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every statement to the shard fail until the returned function is called."""

    def refuse(*_: object, **__: object) -> Any:
        raise Unavailable

    rows = sql.rows
    monkeypatch.setattr(sql, "rows", lambda *a, **k: rows(*a, **k) if k["alias"] == "default" else refuse())
    return monkeypatch.undo


def test_a_schedule_made_while_its_shard_is_away_is_told_later(away: Callable[[], None]) -> None:
    schedule = made()
    away()
    assert not ScheduleRow.objects.using(SHARD).exists()
    assert register.sync() == 1
    assert _row(schedule.id).kind == "report"
    assert register.sync() == 0


def test_a_change_that_the_shard_did_not_hear_is_refused_and_holds_later(away: Callable[[], None]) -> None:
    schedule = made()
    with pytest.raises(Unavailable):
        register.pause(schedule.id, scope=FLEET, actor=OPS)
    away()
    assert register.sync() == 1
    assert not _row(schedule.id).is_enabled


def test_a_change_that_is_repeated_reaches_the_shard() -> None:
    schedule = made()
    Schedule.objects.filter(pk=schedule.id).update(kind="other", version=2)
    _change(schedule.id, kind="other")
    assert _row(schedule.id).kind == "other"


def test_a_schedule_is_not_removed_while_its_shard_may_fire_it(away: Callable[[], None]) -> None:
    schedule = made()
    with pytest.raises(Unavailable):
        register.remove(schedule.id, scope=FLEET, actor=OPS)
    assert Schedule.objects.filter(pk=schedule.id).exists()


def test_a_schedule_whose_shard_is_away_is_shown_without_its_standing(away: Callable[[], None]) -> None:
    schedule = made()
    assert (shown(schedule.id).next_at, shown(schedule.id).missed_count) == (None, None)


def test_a_shard_forgets_what_is_not_in_the_register() -> None:
    schedule = made(next_at=NOON)
    Schedule.objects.filter(pk=schedule.id).delete()
    assert register.sync() == 1
    assert tick(NOON) == 0


# Running one now


def test_a_run_makes_a_job_beside_the_fires() -> None:
    schedule = made(next_at=NOON, payload="[1]")
    run = runs.run_now(schedule.id, scope=FLEET, actor=OPS)
    assert cast.row("queue_job", run.job_id)["payload"] == "[1]"
    tick(NOON)
    assert (len(jobs(schedule.id)), fires(schedule.id)[-1]) == (2, NOON)


def test_a_paused_schedule_can_be_run() -> None:
    schedule = made()
    register.pause(schedule.id, scope=FLEET, actor=OPS)
    runs.run_now(schedule.id, scope=FLEET, actor=OPS)
    assert count_jobs() == 1


def test_a_run_with_the_same_key_is_the_same_job() -> None:
    schedule = made()
    first = runs.run_now(schedule.id, scope=FLEET, actor=OPS, key="k")
    again = runs.run_now(schedule.id, scope=FLEET, actor=OPS, key="k")
    assert (again.job_id, first.replayed, again.replayed) == (first.job_id, False, True)
    assert count_jobs() == 1


def test_the_fires_after_a_run_see_its_job() -> None:
    schedule = made(next_at=NOON, overlap="skip")
    runs.run_now(schedule.id, scope=FLEET, actor=OPS)
    tick(NOON)
    assert count_jobs() == 1


def test_a_run_is_audited_on_the_shard_of_its_job() -> None:
    runs.run_now(made().id, scope=FLEET, actor=OPS)
    assert cast.audited("schedule.run") == 1


def test_a_suspended_tenants_schedule_is_not_run() -> None:
    schedule = made()
    registry.suspend("acme", actor=OPS)
    with pytest.raises(TenantSuspended):
        runs.run_now(schedule.id, scope=FLEET, actor=OPS)


def test_a_run_is_refused_while_intake_is_paused() -> None:
    schedule = made()
    policies.pause("default", intake=True, actor=OPS)
    with pytest.raises(Unavailable):
        runs.run_now(schedule.id, scope=FLEET, actor=OPS)
    assert count_jobs() == 0


def test_a_run_takes_a_place_under_the_tenants_depth() -> None:
    registry.set_quota(cast.acme().slug, {"max_depth": 1}, actor=OPS)
    schedule = made()
    runs.run_now(schedule.id, scope=FLEET, actor=OPS)
    with pytest.raises(QuotaExceeded):
        runs.run_now(schedule.id, scope=FLEET, actor=OPS)
    assert count_jobs() == 1


def test_a_run_tells_a_shard_that_does_not_know_the_schedule() -> None:
    schedule = made()
    with connections[SHARD].cursor() as cursor:
        cursor.execute("DELETE FROM queue_schedulerow")
    runs.run_now(schedule.id, scope=FLEET, actor=OPS)
    assert count_jobs() == 1
