"""A job's history: each event once, in order, with how long it took; and a line says where it stands."""

from __future__ import annotations

from typing import Any

import pytest

from dlq import fork
from jobqueue import desk, reads, timeline, upkeep
from jobqueue.timeline import Event, bars
from jobqueue.types import FLEET
from jobqueue.verdict import verdict
from jobqueue.why import Why
from jobsplatform.errors import NotFound, StaleGeneration
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def events(job_id: int) -> list[Event]:
    return timeline.events(reads.job(job_id, scope=FLEET), timeline.history(job_id, scope=FLEET))


def told(job_id: int, now: Any = None) -> list[tuple[str, str, float | None]]:
    return [(event.kind, event.title, event.seconds(now or at(1_000))) for event in events(job_id)]


def test_a_job_that_succeeded_at_once() -> None:
    job_id = cast.enqueue()
    cast.complete(cast.claim_one(now=at(4), worker="w-3"), now=at(6))
    assert told(job_id) == [
        ("accepted", "Accepted", None),
        ("wait", "Waits in line", 4.0),
        ("run", "Succeeded on w-3", 2.0),
        ("ended", "Succeeded", None),
    ]


def test_a_retry_waits_for_its_instant_and_then_in_line() -> None:
    lease = cast.leased()
    failed = cast.fail(lease, now=at(1), message="boom")
    assert failed.next_attempt_at is not None
    assert told(lease.job_id, failed.next_attempt_at)[-1][:2] == ("delay", "Waits for its instant")
    upkeep.promote(now=at(100))
    cast.complete(cast.claim_one(now=at(110)), now=at(111))
    kinds = [event.kind for event in events(lease.job_id)]
    assert kinds == ["accepted", "wait", "run", "delay", "wait", "run", "ended"]
    run = events(lease.job_id)[2]
    assert (run.generation, run.tone, run.message) == (1, "bad", "transient: boom")


def test_a_late_completion_is_an_event_of_its_own() -> None:
    old = cast.leased(lease_s=10)
    upkeep.reap(now=at(11))
    new = cast.claim_one(now=at(12))
    with pytest.raises(StaleGeneration):
        cast.complete(old, now=at(13))
    cast.complete(new, now=at(14))
    late = [event for event in events(old.job_id) if event.kind == "late"]
    assert [(event.generation, event.at, event.tone) for event in late] == [(1, at(13), "bad")]
    assert "a later generation" in late[0].detail


def test_a_redrive_and_a_correction_stand_between_the_tries() -> None:
    job_id = cast.buried(error_class="permanent")
    cast.correct(job_id, note="the typo", now=at(10))
    cast.redriven(job_id, note="try again", now=at(20))
    cast.complete(cast.claim_one(now=at(25)), now=at(26))
    found = told(job_id)
    assert [kind for kind, _, _ in found] == [
        "accepted",
        "wait",
        "run",
        "corrected",
        "redriven",
        "wait",
        "run",
        "ended",
    ]
    assert found[5] == ("wait", "Waits in line", 5.0)
    page = desk.job_page(job_id, scope=FLEET, href_of=str, now=at(30))
    assert [row.number for row in page.redrives] == [1]
    assert len(page.corrections) == 1
    assert {entry.action for entry in page.entries} == {"job.correct", "job.redrive"}


def test_a_fork_and_its_origin_lead_to_each_other() -> None:
    job_id = cast.buried()
    made = fork.fork(job_id, fork.NewFork(request_key="again", note="n", actor=cast.OPS), scope=FLEET)
    origin = desk.job_page(job_id, scope=FLEET, href_of=str)
    child = desk.job_page(made.job_id, scope=FLEET, href_of=str)
    assert [href for _, href in origin.forks] == [str(made.job_id)]
    assert child.origin is not None
    assert child.origin[1] == str(job_id)


def test_a_long_history_is_cut_at_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "SHOWN_MAX", 3)
    job_id = cast.enqueue(max_attempts=50)
    for n in range(6):
        cast.release(cast.claim_one(now=at(n + 1)), now=at(n + 1.5))
    history = timeline.history(job_id, scope=FLEET)
    assert history.is_cut
    assert [row.generation for row in history.attempts] == [4, 5, 6]
    assert "accepted" not in {event.kind for event in events(job_id)}


def test_a_foreign_history_is_empty_and_its_page_absent() -> None:
    job_id = cast.buried()
    assert timeline.history(job_id, scope=cast.mallory()).attempts == []
    with pytest.raises(NotFound):
        desk.job_page(job_id, scope=cast.mallory(), href_of=str)


def test_bars_lie_within_the_whole() -> None:
    found = [
        Event("accepted", at(0), "a"),
        Event("wait", at(0), "b", until=at(50)),
        Event("run", at(50), "c", is_open=True),
    ]
    drawn = bars(found, at(100))
    assert [(bar.left, bar.width) for bar in drawn] == [(0, 4), (0, 500), (500, 500)]
    assert bars([], at(0)) == []


# The verdict


def _verdict(job_id: int, now: Any, why: Why | None = None, worker: str | None = "w-3") -> str:
    return verdict(reads.job(job_id, scope=FLEET), why, worker=worker, now=now)


def test_a_running_job_says_where_and_how_long_its_lease_holds() -> None:
    lease = cast.leased(lease_s=30)
    assert _verdict(lease.job_id, at(12)) == "Running 12.0 s on w-3, lease 18.0 s left"
    assert _verdict(lease.job_id, at(40)).endswith("lease lapsed 10.0 s ago")
    cast.cancel(lease.job_id, now=at(13))
    assert _verdict(lease.job_id, at(14)).endswith(", asked to stop")


def test_a_waiting_job_says_what_holds_it() -> None:
    from tenants import registry

    cast.acme()
    registry.set_quota("acme", {"max_running": 1}, actor=cast.OPS)
    cast.leased()
    job_id = cast.enqueue(now=at(1))
    page = desk.job_page(job_id, scope=FLEET, href_of=str, now=at(2))
    assert page.verdict == "Waiting: tenant quota – Its tenant runs 1 of 1 jobs over all queues"


def test_a_delayed_job_says_how_long_it_waits() -> None:
    job_id = cast.enqueue(delay_s=60)
    page = desk.job_page(job_id, scope=FLEET, href_of=str, now=at(20))
    assert page.verdict == "Waiting: not due – It is delayed until then (40.0 s more)"
    assert page.can_be_hastened
    assert page.can_be_cancelled


def test_an_ended_job_says_how() -> None:
    assert _verdict(cast.buried(), at(61)).startswith("Dead (exhausted) for 1 min, after 1 of 1 attempts")
    done = cast.leased()
    cast.complete(done, now=at(1))
    page = desk.job_page(done.job_id, scope=FLEET, href_of=str, now=at(3))
    assert page.verdict == "Succeeded 2.0 s ago, after 1 of 5 attempts"
    assert not page.can_be_cancelled
    assert not page.can_be_hastened
    moving = replace_state(done.job_id, None)
    assert verdict(moving, None, worker=None, now=at(3)).startswith("Moving")


def replace_state(job_id: int, state: str | None) -> reads.JobView:
    return reads.job(job_id, scope=FLEET)._replace(state=state)
