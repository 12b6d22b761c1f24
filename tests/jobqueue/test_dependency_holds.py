"""A breaker that an operator holds open closes by itself when its time has come, once, and tells who and why."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from jobqueue import dependencies
from jobqueue.models import Dependency, DependencyState
from jobqueue.schedule_models import Schedule
from jobqueue.schedules import register
from jobsplatform.errors import Invalid
from tenants.models import AuditEntry
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import OPS, SHARD
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


def held(seconds: int | None = 60) -> Dependency:
    dependencies.set_dependency("smtp", {"max_running": 5}, actor=OPS)
    dependencies.open_breaker("smtp", actor=OPS, reason="maintenance", seconds=seconds)
    return Dependency.objects.get()


def later(seconds: float) -> int:
    return dependencies.end_holds(timezone.now() + timedelta(seconds=seconds))


def test_a_hold_ends_when_its_time_has_come_and_not_before() -> None:
    held()
    assert later(30) == 0
    assert DependencyState.objects.using(SHARD).get().is_held_open
    assert later(61) == 1
    assert not DependencyState.objects.using(SHARD).get().is_held_open
    assert later(120) == 0, "it ends once"
    opened, closed = (
        AuditEntry.objects.filter(target="dependency:smtp").exclude(action="dependency.set").order_by("id")
    )
    assert (opened.action, opened.reason, opened.details) == (
        "dependency.open",
        "maintenance",
        {"seconds": 60},
    )
    assert (closed.action, closed.actor, closed.reason) == (
        "dependency.close",
        "upkeep",
        "The hold has come to its end.",
    )


def test_a_hold_without_a_time_stays() -> None:
    assert held(None).held_until is None
    assert later(10**9) == 0


def test_closing_by_hand_and_opening_anew_forget_the_time() -> None:
    held()
    dependencies.close_breaker("smtp", actor=OPS)
    assert Dependency.objects.get().held_until is None
    dependencies.open_breaker("smtp", actor=OPS)
    assert later(3_600) == 0


@pytest.mark.parametrize("seconds", [0, -1, dependencies.HOLD_SECONDS_MAX + 1])
def test_a_time_that_is_none_is_refused(seconds: int) -> None:
    with pytest.raises(Invalid):
        held(seconds)
    assert not Dependency.objects.get().is_held_open


def test_the_command_holds_for_a_while() -> None:
    dependencies.set_dependency("smtp", {}, actor=OPS)
    assert "held open" in run("dependency", "open", "smtp", "--for-s", "60", "--reason", "x").out
    assert later(61) == 1
    assert "A hold lasts" in refused("dependency", "open", "smtp", "--for-s", "0")


# The operators' pages


def test_the_page_says_how_long_it_is_held_and_closes_it() -> None:
    row = held(3_600)
    client = admin_cast.operator()
    text = page(client, reverse("admin:queue_dependency_change", args=[row.pk]))
    assert "held open" in text
    assert "closes by itself" in text
    client.post(reverse("admin:queue_dependency_close", args=[row.pk]), {"reason": "it is back"})
    assert not Dependency.objects.get().is_held_open
    assert AuditEntry.objects.get(action="dependency.close").reason == "it is back"
    client.post(reverse("admin:queue_dependency_open", args=[row.pk]), {"minutes": "5", "reason": "again"})
    assert AuditEntry.objects.filter(action="dependency.open").latest("id").details == {"seconds": 300}


def test_who_may_only_look_holds_nothing() -> None:
    dependencies.set_dependency("smtp", {}, actor=OPS)
    row = Dependency.objects.get()
    client = admin_cast.staff("queue.view_dependency")
    assert "Open…" not in page(client, reverse("admin:queue_dependency_change", args=[row.pk]))
    for verb in ("open", "close"):
        address = reverse(f"admin:queue_dependency_{verb}", args=[row.pk])
        assert client.post(address, {"reason": ""}).status_code == 403
    assert not Dependency.objects.get().is_held_open


def test_a_schedule_is_paused_and_resumed_with_a_reason() -> None:
    new = register.NewSchedule(
        tenant_id=cast.acme().pk,
        queue=cast.queue(),
        name="nightly",
        kind="noop",
        cron="30 2 * * *",
        timezone="Europe/Berlin",
        priority=2,
    )
    pk = register.create(new, actor=OPS).id
    client = admin_cast.operator()
    own = reverse("admin:queue_schedule_change", args=[pk])
    assert "Pause…" in page(client, own)
    client.post(reverse("admin:queue_schedule_pause", args=[pk]), {"reason": "holidays"})
    assert not Schedule.objects.get().is_enabled
    assert AuditEntry.objects.get(action="schedule.change").reason == "holidays"
    assert "Resume…" in page(client, own)
    client.post(reverse("admin:queue_schedule_resume", args=[pk]), {"reason": ""})
    assert Schedule.objects.get().is_enabled
