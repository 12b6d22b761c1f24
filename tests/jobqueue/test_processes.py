"""Processes say that they live; who is silent is told apart; a worker that is asked to drain ends when it is done."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from jobqueue import processes
from jobqueue.models import Process
from jobqueue.processes import Beacon
from jobsplatform.errors import NotFound
from tenants.models import AuditEntry
from tests import admin_cast, cast
from tests.cast import at
from tests.commands_cast import refused, run

db = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "version", lambda: "abc123")


def _worker(name: str = "w-1", **more: object) -> Beacon:
    beacon = Beacon(Process.Kind.WORKER, name=name, slots=8, queues=("mail",), held=lambda: 3, **more)  # type: ignore[arg-type]
    beacon.beat()
    return beacon


@db
def test_a_beat_says_what_runs_and_moves_no_beginning() -> None:
    beacon = Beacon(Process.Kind.WORKER, name="w-1", slots=8, queues=("mail",), held=lambda: 3)
    beacon.beat(now=at(0))
    beacon.beat(now=at(5))
    (one,) = processes.living()
    assert (one.kind, one.name, one.version, one.queues, one.slots, one.held) == (
        "worker",
        "w-1",
        "abc123",
        ["mail"],
        8,
        3,
    )
    assert (one.started_at, one.beat_at, one.ended_at) == (at(0), at(5), None)


@db
def test_a_process_that_says_good_bye_is_gone() -> None:
    beacon = _worker()
    beacon.end()
    assert processes.living() == []
    assert Process.objects.get().ended_at is not None


@db
def test_the_silent_are_forgotten_after_a_day() -> None:
    Beacon(Process.Kind.REAPER).beat(now=at(0))
    assert processes.purge(10, now=at(processes.KEPT_SECONDS - 1)) == 0
    assert processes.purge(10, now=at(processes.KEPT_SECONDS + 1)) == 1


@db
def test_a_drain_is_heard_at_the_next_beat_and_once() -> None:
    calls: list[str] = []
    beacon = _worker(drain=lambda: calls.append("drain"))
    assert processes.drain(beacon.key, actor=cast.OPS, reason="new version") == "w-1"
    beacon.beat()
    beacon.beat()
    assert calls == ["drain"]
    entry = AuditEntry.objects.get(action="worker.drain")
    assert (entry.actor, entry.target, entry.reason) == (cast.OPS, "worker:w-1", "new version")


@db
def test_who_cannot_hear_is_not_asked() -> None:
    """Another kind of process, one that ended, one that is silent, one that was asked before."""
    reaper = Beacon(Process.Kind.REAPER)
    reaper.beat()
    ended = _worker("ended")
    ended.end()
    silent = Beacon(Process.Kind.WORKER, name="silent")
    silent.beat(now=timezone.now() - timedelta(seconds=60))
    asked = _worker("asked")
    processes.drain(asked.key, actor=cast.OPS)
    for key in (reaper.key, ended.key, silent.key, asked.key, "x"):
        with pytest.raises(NotFound):
            processes.drain(key, actor=cast.OPS)
    assert AuditEntry.objects.filter(action="worker.drain").count() == 1


@db
def test_the_command_lists_and_drains() -> None:
    assert run("workers", "list").out == "No process says that it lives.\n"
    _worker("w-1")
    _worker("w-2")
    listed = run("workers", "list").out
    assert "worker w-1, version abc123, 8 slots, holds 3, queues mail, seen" in listed
    assert run("workers", "drain", "w-1", "--reason", "old").out == "Asked to drain: w-1.\n"
    assert run("workers", "drain", "all").out == "Asked to drain: w-2.\n"
    assert "no such living worker" in refused("workers", "drain", "w-1")
    assert "asked to drain by cli:" in run("workers", "list").out


@db
def test_the_page_tells_versions_apart_and_drains_after_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    old = _worker("old")
    monkeypatch.setattr(processes, "version", lambda: "def456")
    _worker("new")
    client = admin_cast.operator()
    text = admin_cast.page(client, reverse("admin:processes"))
    assert "Processes of 2 versions run side by side" in text
    assert text.count("older</span>") == 1
    address = reverse("admin:process_drain", args=[old.key])
    assert address in text
    admin_cast.page(client, address)
    assert client.post(address, {"reason": "old"}).status_code == 302
    assert "asked by user:ops" in admin_cast.page(client, reverse("admin:processes"))
    assert client.get(address).status_code == 302


@db
def test_a_worker_s_name_is_text_on_every_page() -> None:
    _worker("<script>alert(1)</script>\x1b[31m")
    client = admin_cast.operator()
    for address in ("/admin/processes/", reverse("admin:queue_process_changelist")):
        text = admin_cast.page(client, address)
        assert "&lt;script&gt;" in text
    assert "\x1b" not in run("workers", "list").out


def test_a_control_database_that_is_away_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    from jobsplatform import sql
    from jobsplatform.errors import Unavailable

    def away(*args: object, **more: object) -> None:
        raise Unavailable

    monkeypatch.setattr(sql, "rows", away)
    beacon = Beacon(Process.Kind.WEB)
    beacon.beat()
    beacon.end_soon()
