"""Errors that are put off: quiet until their time is over or they grow, and never hidden from the matrix."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from dlq import groups, handling, overview, snoozes
from dlq.groups import GrowthAlarm
from dlq.models import Handling
from jobqueue import processes, upkeep
from jobqueue.models import Process
from jobsplatform.errors import Invalid, NotFound
from tenants.models import AuditEntry
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import OPS, at
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>\u202e"


def dead(count: int, message: str, now: float) -> str:
    """So many dead letters of one error; its fingerprint."""
    cast.enqueue_many(count, now=at(now), max_attempts=1)
    held = cast.claim(now=at(now), limit=count)
    cast.kill(held, now=at(now + 1), message=message)
    return str(cast.row("dlq_deadletter", held[0].job_id)["fingerprint"])


def snoozed(fingerprint: str, *, since: float = 3_602, for_s: int = 3_600, **more: Any) -> Handling:
    return handling.snooze(fingerprint, for_s=for_s, note="known", actor=OPS, now=at(since), **more)


def alarming(now: float) -> list[int]:
    """How many recent ones of the queues that alarm are not of snoozed errors."""
    return [one.recent - one.snoozed for one in groups.growth(now=at(now)) if one.is_alarming]


# What is quiet


def test_a_snoozed_error_does_not_alarm_and_another_one_does() -> None:
    known = dead(60, "boom", 3_600)
    upkeep.fold()
    assert alarming(3_650) == [60]
    snoozed(known)
    assert alarming(3_650) == []
    assert GrowthAlarm().watch(now=at(3_650)) == 0
    (one,) = groups.growth(now=at(3_650))
    assert (one.recent, one.snoozed) == (60, 60)
    dead(55, "another fault", 3_640)
    upkeep.fold()
    assert alarming(3_650) == [55]


def test_it_alarms_again_when_its_time_is_over() -> None:
    snoozed(dead(60, "boom", 3_600), for_s=60)
    upkeep.fold()
    assert alarming(3_661) == []
    assert alarming(3_663) == [60]


def test_it_alarms_again_when_it_has_grown() -> None:
    known = dead(30, "boom", 3_600)
    snoozed(known)  # 30 more end it
    dead(30, "boom", 3_610)
    upkeep.fold()
    assert alarming(3_650) == []
    assert snoozes.look(at(3_650)).holds(known)
    dead(1, "boom", 3_620)
    upkeep.fold()
    assert alarming(3_650) == [61]
    quiet = snoozes.look(at(3_650))
    assert [(held.fingerprint, more) for held, more in quiet.grown()] == [(known, 31)]


@pytest.mark.parametrize(("asked", "wakes"), [(None, 20), (0, 0), (7, 7)])
def test_a_small_error_may_grow_by_twenty_or_by_what_was_said(asked: int | None, wakes: int) -> None:
    assert snoozed(dead(1, "boom", 0), wakes_after=asked).wakes_after == wakes


def test_the_first_page_leaves_it_out_until_it_outgrows_its_snooze() -> None:
    for kind in (Process.Kind.DISPATCHER, Process.Kind.REAPER, Process.Kind.WORKER):
        processes.Beacon(kind).beat()
    now = timezone.now()
    cast.enqueue_many(60, now=now, max_attempts=1)
    held = cast.claim(now=now, limit=100)
    cast.kill(held[:59], now=now + timedelta(milliseconds=1), message="boom")
    upkeep.fold()
    fingerprint = str(cast.row("dlq_deadletter", held[0].job_id)["fingerprint"])
    assert titles() == {"Dead letters of default grow"}
    handling.snooze(fingerprint, for_s=3_600, note=f"ask smtp {HOSTILE}", actor=OPS, wakes_after=0)
    assert titles() == set()
    cast.kill(held[59:], now=timezone.now(), message="boom")
    upkeep.fold()
    assert titles() == {"Dead letters of default grow", f"Error {fingerprint} has outgrown its snooze"}
    text = page(admin_cast.operator(), "/admin/")
    assert "ask smtp" in text
    assert "<script>alert" not in text


def titles() -> set[str]:
    overview.forget()
    return {one.title for one in overview.present().attention}


# The verbs


def test_a_snooze_is_audited_and_ended_before_its_time() -> None:
    known = dead(3, "boom", 0)
    handling.assign(known, assignee="", note="who knows", actor=OPS)
    held = snoozed(known, known_issue="OPS-17")
    assert (held.snoozed_until, held.known_issue) == (at(3_602 + 3_600), "OPS-17")
    entry = AuditEntry.objects.get(action="group.snooze")
    assert (entry.target, entry.reason, entry.details["wakes_after"]) == (
        f"fingerprint:{known}",
        "known",
        "20",
    )
    handling.wake(known, note="mended", actor=OPS)
    kept = Handling.objects.get()
    assert (kept.snoozed_until, kept.note, kept.known_issue) == (None, "who knows", "OPS-17")
    assert cast.audited("group.wake", alias="default") == 1
    with pytest.raises(NotFound):
        handling.wake(known, note="again", actor=OPS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"note": " "},
        {"note": "n" * 2_001},
        {"for_s": 59},
        {"for_s": 91 * 86_400},
        {"wakes_after": -1},
        {"wakes_after": 10_001},
        {"known_issue": "x" * 201},
        {"known_issue": "two\nlines"},
        {"fingerprint": "x"},
    ],
)
def test_a_wrong_snooze_is_refused(wrong: dict[str, Any]) -> None:
    asked = {"fingerprint": dead(1, "boom", 0), "for_s": 60, "note": "n", **wrong}
    with pytest.raises(Invalid):
        handling.snooze(actor=OPS, **asked)
    assert not Handling.objects.exists()


def test_an_error_without_dead_letters_cannot_be_snoozed() -> None:
    with pytest.raises(NotFound):
        handling.snooze("0" * 16, for_s=60, note="n", actor=OPS)


def test_the_version_before_may_still_assign_on_this_schema() -> None:
    """It names none of the new columns."""
    run_sql = (
        "INSERT INTO dlq_handling (fingerprint, assignee, note, actor) VALUES ('"
        + "0" * 16
        + "', '', 'n', 'x')"
    )
    with connections["default"].cursor() as cursor:
        cursor.execute(run_sql)
    held = Handling.objects.get()
    assert (held.known_issue, held.snoozed_by, held.snooze_note, held.snoozed_until) == ("", "", "", None)


# Pages and commands


def test_an_operator_snoozes_an_error_and_the_matrix_says_so() -> None:
    known = dead(2, "boom", 0)
    client = admin_cast.operator()
    address = f"/admin/dlq/deadletter/groups/{known}/"
    form = {"verb": "snooze", "for_s": "3600", "known_issue": "javascript:alert(1)", "snooze_note": HOSTILE}
    assert client.post(address, form).status_code == 302
    for where in (address, "/admin/dlq/deadletter/groups/?span=month"):
        text = page(client, where)
        assert ">snoozed</span>" in text
        assert "&lt;script&gt;" in text
        assert 'href="javascript:' not in text
    client.post(address, {**form, "known_issue": "https://tickets.example/7?a=1&b=2"})
    assert 'href="https://tickets.example/7?a=1&amp;b=2" rel="noopener noreferrer"' in page(client, address)
    assert client.post(address, {"verb": "wake", "wake_note": "mended"}).status_code == 302
    assert ">snoozed</span>" not in page(client, address)


def test_a_form_that_is_not_whole_is_shown_again_and_changes_nothing() -> None:
    known = dead(1, "boom", 0)
    client = admin_cast.operator()
    address = f"/admin/dlq/deadletter/groups/{known}/"
    for wrong in (
        {"verb": "snooze"},
        {"verb": "snooze", "for_s": "5", "snooze_note": "n"},
        {"verb": "wake"},
        {"verb": "x"},
    ):
        assert client.post(address, wrong).status_code == 200
    assert not Handling.objects.exists()


def test_who_may_only_look_snoozes_nothing() -> None:
    known = dead(1, "boom", 0)
    client = admin_cast.staff("dlq.view_deadletter")
    address = f"/admin/dlq/deadletter/groups/{known}/"
    assert "Snooze</button>" not in page(client, address)
    form = {"verb": "snooze", "for_s": "3600", "snooze_note": "n"}
    assert client.post(address, form).status_code == 403


def test_the_same_by_command() -> None:
    known = dead(1, "boom", 0)
    said = run("dlq", "snooze", known, "--for", "3600", "--note", "n", "--known-issue", "OPS-1").out
    assert said.startswith(f"{known} is snoozed until 20")
    assert said.endswith(", or 20 more came.\n")
    assert run("dlq", "wake", known, "--note", "n").out == f"{known} calls for attention again.\n"
    assert "is not snoozed" in refused("dlq", "wake", known, "--note", "n")
    assert "60" in refused("dlq", "snooze", known, "--for", "5", "--note", "n")
