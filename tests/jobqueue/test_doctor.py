"""`manage.py doctor`: what it finds on a sound server, and the faults that it must name."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from jobqueue.doctor import work_is_moved
from jobsplatform import doctor, servers
from jobsplatform.doctor import Finding, Verdict
from jobsplatform.errors import Unavailable
from tests import cast

MINUTES_AGO = datetime.now(UTC) - timedelta(minutes=5)

pytestmark = pytest.mark.django_db(transaction=True)


def found(check: str, place: str = "shard 0") -> Finding:
    [finding] = [f for f in doctor.examine(work_is_moved) if (f.place, f.check) == (place, check)]
    return finding


def run(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("doctor", *arguments, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_a_sound_platform_has_nothing_to_mend() -> None:
    assert [f for f in doctor.examine(work_is_moved) if f.verdict is Verdict.WRONG] == []


def test_both_databases_are_examined() -> None:
    places = {finding.place for finding in doctor.examine(work_is_moved)}
    assert {"control", "shard 0"} <= places


def test_the_session_that_holds_the_horizon_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "HORIZON_SECONDS", (0.0, 600.0))
    with cast.second_session() as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT 1")
        finding = found("horizon")
        pid = session.info.backend_pid
    assert finding.value.startswith(f"session {pid} ")
    assert finding.fix == f"End it: SELECT pg_terminate_backend({pid});"


def test_a_due_job_that_nobody_promotes_is_the_dispatchers_fault() -> None:
    cast.enqueue(now=MINUTES_AGO, delay_s=1)
    finding = found("dispatcher")
    assert (finding.verdict, finding.fix) == (Verdict.WRONG, "Start manage.py rundispatcher.")


def test_a_lapsed_lease_that_nobody_takes_back_is_the_reapers_fault() -> None:
    cast.leased(now=MINUTES_AGO, lease_s=1)
    assert found("reaper").verdict is Verdict.WRONG


def test_work_that_is_not_due_is_nobodys_fault() -> None:
    cast.enqueue(now=None, delay_s=3_600)
    cast.leased(now=None, lease_s=3_600)
    assert {found("dispatcher").verdict, found("reaper").verdict} == {Verdict.OK}


def test_a_server_without_durability_is_wrong() -> None:
    with connections[cast.SHARD].cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
    try:
        assert found("durability").verdict is Verdict.WRONG
    finally:
        with connections[cast.SHARD].cursor() as cursor:
            cursor.execute("RESET synchronous_commit")


@pytest.mark.parametrize(
    ("said", "verdict", "words"),
    [
        ({"standbys_wanted": "*", "standbys": 1}, Verdict.OK, "1 attached"),
        ({"standbys_wanted": "*", "standbys": 0}, Verdict.WRONG, "0 attached"),
        ({"standbys_wanted": "*", "standbys": None}, Verdict.LOOK, "not to be seen"),
        ({}, Verdict.WRONG, "commits wait for none"),
    ],
)
def test_a_standby_is_judged_where_commits_wait_for_it_or_should(
    monkeypatch: pytest.MonkeyPatch, settings: Any, said: dict[str, Any], verdict: Verdict, words: str
) -> None:
    settings.JOBS_STANDBY_REQUIRED = True
    real = servers.of
    monkeypatch.setattr(servers, "of", lambda alias: replace(real(alias), **said))
    finding = found("standby")
    assert (finding.verdict, finding.value) == (verdict, words)


def test_a_clock_that_is_far_off_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    real = servers.of
    monkeypatch.setattr(servers, "of", lambda alias: replace(real(alias), off_s=31.0))
    assert found("clock").verdict is Verdict.WRONG


def test_a_server_that_is_away_is_a_line_and_the_others_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor._server

    def server(place: str, alias: str) -> Any:
        if alias == "default":
            raise Unavailable("gone")
        return real(place, alias)

    monkeypatch.setattr(doctor, "_server", server)
    findings = list(doctor.examine(work_is_moved))
    assert [f.verdict for f in findings if f.place == "control"] == [Verdict.WRONG]
    assert any(f.place == "shard 0" for f in findings)


@pytest.mark.parametrize(
    ("value", "verdict"), [(0, Verdict.OK), (1, Verdict.OK), (1.5, Verdict.LOOK), (3, Verdict.WRONG)]
)
def test_a_value_is_judged_by_two_bounds(value: float, verdict: Verdict) -> None:
    assert doctor.judged(value, (1, 2)) is verdict


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_exit_code_is_the_worst_verdict(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    findings = [Finding("control", "one", "x"), Finding("control", "two", "y", verdict, "Mend it.")]
    monkeypatch.setattr("jobqueue.management.commands.doctor.examine", lambda *_: iter(findings))
    assert run()[0] == verdict
    code, text = run("--json")
    assert (code, json.loads(text)["verdict"]) == (verdict, verdict.name.lower())
