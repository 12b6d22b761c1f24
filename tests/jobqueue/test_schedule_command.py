"""`manage.py schedule …`: a thin edge over the verbs."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue.ids import parse_id
from jobqueue.schedule_models import Schedule
from jobqueue.schedules import reads
from jobqueue.types import FLEET
from tests import cast
from tests.commands_cast import refused, run
from tests.schedules_cast import count_jobs, made, shown

pytestmark = pytest.mark.django_db


def _run(*arguments: str) -> str:
    ran = run("schedule", *arguments)
    assert ran.code == 0, ran
    return ran.out


def _acme(action: str, *arguments: str) -> str:
    cast.acme()
    return _run(action, "--tenant", "acme", *arguments)


def _made(**more: str) -> reads.ScheduleView:
    flags = [part for name, value in more.items() for part in (f"--{name}", value)]
    _acme("create", "--name", "n", "--kind", "report", "--cron", "30 2 * * *", *flags)
    row = Schedule.objects.latest("pk")
    return reads.views([row])[0]


def test_create_makes_a_schedule_by_the_rules_of_the_api() -> None:
    view = _made(priority="P1", payload='{"a": 1.0}', timezone="Europe/Berlin", missed="all", overlap="skip")
    assert (view.priority, view.payload, view.timezone) == (1, '{"a": 1.0}', "Europe/Berlin")
    assert (view.missed, view.overlap, view.is_enabled) == ("all", "skip", True)


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--cron", "@daily"), ("--timezone", "x"), ("--priority", "9"), ("--payload", "{"), ("--queue", "x")],
)
def test_create_refuses_in_one_line(flag: str, value: str) -> None:
    cast.acme()
    given = {"--name": "n", "--kind": "k", "--cron": "* * * * *", flag: value}
    refused("schedule", "create", "--tenant", "acme", *[part for pair in given.items() for part in pair])
    assert not Schedule.objects.exists()


def test_list_shows_expressions_in_words_and_how_schedules_stand() -> None:
    _made()
    text = _acme("list")
    assert "At 02:30 every day" in text
    assert "next 20" in text


def test_list_shows_no_other_tenants() -> None:
    made(tenant_id=cast.globex().pk, name="foreign")
    assert "foreign" not in _acme("list")


def test_next_marks_the_nights_when_clocks_change() -> None:
    _made(timezone="Europe/Berlin")
    lines = _acme("next", "n", "--count", "2", "--after", "2026-10-24T12:00:00Z").splitlines()
    assert lines[1].startswith("2026-10-25T00:30Z  Sun 2026-10-25 02:30 +02:00")
    assert "fires at the first, and not again" in lines[1]
    assert lines[2].endswith("+01:00")
    gap = _acme("next", "n", "--count", "1", "--after", "2026-03-28T12:00:00Z").splitlines()[1]
    assert gap.startswith("2026-03-29T01:00Z  Sun 2026-03-29 03:00 +02:00")
    assert "skips" in gap


def test_pause_and_resume_switch_a_schedule() -> None:
    view = _made()
    assert "paused" in _acme("pause", str(view.id), "--reason", "maintenance")
    assert not shown(view.id).is_enabled
    assert "next 20" in _acme("resume", "n")
    assert shown(view.id).is_enabled


def test_run_now_prints_the_job() -> None:
    _made()
    job_id = _acme("run-now", "n").strip()
    assert cast.place(parse_id(job_id)) == "readyjob"


def test_run_now_with_a_key_makes_one_job() -> None:
    _made()
    first, again = (_acme("run-now", "n", "--request-key", "k") for _ in range(2))
    assert again == f"{first.strip()} (made before)\n"
    assert count_jobs() == 1


def test_delete_removes_a_schedule() -> None:
    view = _made()
    _acme("delete", str(view.id))
    assert not reads.visible(FLEET).exists()


def test_a_name_that_two_have_is_refused_with_their_ids() -> None:
    first, second = _made(), _made()
    line = refused("schedule", "delete", "--tenant", "acme", "n")
    assert str(first.id) in line
    assert str(second.id) in line


@pytest.mark.parametrize("arguments", [("pause", "n"), ("next", "n"), ("delete", "1")])
def test_mallory_s_schedule_is_not_there(arguments: Any) -> None:
    schedule = made(tenant_id=cast.globex().pk, name="n")
    cast.acme()
    name = str(schedule.id) if arguments[1] == "1" else arguments[1]
    assert "no schedule" in refused("schedule", arguments[0], "--tenant", "acme", name)


def test_an_unknown_tenant_is_refused() -> None:
    assert "no tenant" in refused("schedule", "list", "--tenant", "nobody")
