"""Schedules in the admin: the pages, and that what changes goes through the verbs."""

from __future__ import annotations

import pytest
from django.test import Client

from jobqueue.ids import format_id
from jobqueue.schedule_models import Schedule
from tenants.models import AuditEntry
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.schedules_cast import count_jobs, made, shown, stand, standing, tick, utc

pytestmark = pytest.mark.django_db

LIST = "/admin/queue/schedule/"


def _fields(**changes: object) -> dict[str, object]:
    return {
        "name": "nightly",
        "tenant": cast.acme().pk,
        "queue": cast.queue().id,
        "kind": "report",
        "priority": "",
        "payload": '{"n": 1.0}',
        "cron": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "missed": "one",
        "overlap": "skip",
        "is_enabled": "on",
    } | changes


def _errors(client: Client, **changes: object) -> str:
    response = client.post(f"{LIST}add/", _fields(**changes))
    assert response.status_code == 200
    assert not Schedule.objects.exists()
    return str(response.content.decode())


def test_the_list_shows_expressions_in_words() -> None:
    made(cron="30 2 * * *")
    assert "At 02:30 every day" in page(admin_cast.operator(), LIST)


def test_a_schedule_is_made_by_the_verb() -> None:
    assert admin_cast.operator().post(f"{LIST}add/", _fields()).status_code == 302
    view = shown(Schedule.objects.get().pk)
    assert (view.payload, view.priority, view.overlap) == ('{"n": 1.0}', 2, "skip")
    assert standing(view.id)["next_at"] == view.next_at
    assert AuditEntry.objects.get(action="schedule.create").actor == "user:ops"


@pytest.mark.parametrize(
    ("member", "value", "told"),
    [
        ("cron", "0 24 * * *", "is no hour"),
        ("cron", "0 0 31 2 *", "never fires"),
        ("timezone", "berlin", "no such time zone"),
        ("payload", "{", "field-payload"),
        ("priority", "9", "has the bands"),
    ],
)
def test_what_the_api_refuses_is_told_at_its_field(member: str, value: str, told: str) -> None:
    text = _errors(admin_cast.operator(), **{member: value})
    assert told in text
    assert "errorlist" in text


def test_a_change_is_made_by_the_verb() -> None:
    schedule = made()
    url = f"{LIST}{schedule.id}/change/"
    assert admin_cast.operator().post(url, _fields(cron="0 5 * * *", name="early")).status_code == 302
    assert (shown(schedule.id).cron, shown(schedule.id).name) == ("0 5 * * *", "early")
    assert standing(schedule.id)["version"] == 2


def test_the_page_shows_five_fires_and_marks_changes_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    from jobqueue.schedules import register

    monkeypatch.setattr(register, "clock", lambda: utc("2026-10-24 12:00"))
    schedule = made(cron="30 2 * * *", timezone="Europe/Berlin")
    text = page(admin_cast.operator(), f"{LIST}{schedule.id}/change/")
    assert text.count("02:30 +0") == 5
    assert "Sun 2026-10-25 02:30 +02:00" in text
    assert "shows this time twice" in text


def test_a_page_of_a_schedule_that_fired_leads_to_its_job() -> None:
    schedule = made()
    stand(schedule.id, utc("2035-05-04 12:00"))
    tick(utc("2035-05-04 12:00"))
    job_id = shown(schedule.id).last_job_id
    assert job_id is not None
    assert f"/admin/queue/job/{format_id(job_id)}/" in page(
        admin_cast.operator(), f"{LIST}{schedule.id}/change/"
    )


@pytest.mark.parametrize(("action", "is_enabled"), [("pause", False), ("resume", True)])
def test_schedules_are_switched_from_the_list(action: str, is_enabled: bool) -> None:
    schedule = made(is_enabled=not is_enabled)
    admin_cast.operator().post(LIST, {"action": action, "_selected_action": [schedule.id]})
    assert shown(schedule.id).is_enabled is is_enabled
    assert standing(schedule.id)["is_enabled"] is is_enabled


def test_a_run_is_asked_for_and_made() -> None:
    url = f"{LIST}{made().id}/run/"
    client = admin_cast.operator()
    page(client, url)
    assert client.post(url, {"reason": "drill"}).status_code == 302
    assert count_jobs() == 1


def test_a_removal_is_asked_for_and_made() -> None:
    schedule = made()
    client = admin_cast.operator()
    page(client, f"{LIST}{schedule.id}/remove/")
    assert client.post(f"{LIST}{schedule.id}/remove/", {"reason": "done"})["Location"] == LIST
    assert not Schedule.objects.exists()


@pytest.mark.parametrize("verb", ["run", "remove"])
def test_who_may_only_look_can_neither_run_nor_remove(verb: str) -> None:
    schedule = made()
    clerk = admin_cast.staff("queue.view_schedule")
    assert clerk.post(f"{LIST}{schedule.id}/{verb}/", {"reason": ""}).status_code == 403
    assert (count_jobs(), Schedule.objects.count()) == (0, 1)
    assert "Run now" not in page(clerk, f"{LIST}{schedule.id}/change/")
