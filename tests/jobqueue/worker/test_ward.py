"""Isolation of jobs whose worker died while it held them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from jobqueue.worker import leasetext
from jobqueue.worker import ward as ward_module
from jobqueue.worker.board import FINISHED, RUNNING
from jobqueue.worker.channel import (
    Held,
    Word,
    isolated_text,
    pack_instant,
    pack_isolated,
    pack_places,
    unpack_isolated,
)
from tests.jobqueue.worker.fake import Rig, make_lease
from tests.jobqueue.worker.test_keeper import PlayedExecutor, Stage


def isolate(executor: PlayedExecutor, job_id: int) -> None:
    """The executor has claimed a suspect and hands it on."""
    now = datetime.now(UTC).timestamp()
    held = Held(0, job_id, 2, b"t" * 16, now, 30.0)
    executor.far.send(Word.ISOLATE, pack_isolated(time.monotonic(), held, f"lease {job_id}"))


def staged(*job_ids: int, **options: Any) -> Stage:
    """A keeper whose executor has handed suspects on, with a process for the first of them."""
    stage = Stage(**options)
    for job_id in job_ids:
        isolate(stage.started[0], job_id)
    stage.until(lambda: len(stage.started) == 1 + min(len(job_ids), options.get("suspects", 1)))
    return stage


def words(executor: PlayedExecutor) -> list[tuple[Word, str]]:
    return [(word, isolated_text(body) if word is Word.RUN else "") for word, body in executor.far.receive()]


def _is_done(rig: Rig, jobs: int) -> bool:
    return rig.queue.done() == jobs and not rig.held


def finish(solo: PlayedExecutor, place: int) -> None:
    """The process has settled its suspect."""
    solo.far.send(Word.DROPPED, pack_places([place]))


def test_a_lease_survives_the_way_to_another_process() -> None:
    now = datetime.now(UTC)
    lease = make_lease(3, payload='{"ä":"\\u0041"}', deadline=now, earlier_generations=[1, 2], checkpoint="7")
    lease = lease._replace(token=bytes(range(16)), crashes=2)
    assert leasetext.load(leasetext.dump(lease)) == lease
    held = Held(0, 1 << 50, 7, b"x" * 16, 12.5, 30.0)
    body = pack_isolated(3.5, held, leasetext.dump(lease))
    assert unpack_isolated(body) == (3.5, held)
    assert leasetext.load(isolated_text(body)) == lease


def test_any_engine_knows_a_suspect_by_the_crashes_of_its_lease_and_runs_the_others() -> None:
    with Rig() as rig:
        rig.queue.ready.extend(make_lease(n, crashes=n in (2, 3)) for n in range(1, 6))
        rig.until(lambda: rig.queue.done() == 3)
        rig.until(lambda: rig.words.count(Word.ISOLATE) == 2)
        assert sorted(rig.queue.live) == [2, 3]
        assert not rig.held


def test_a_suspect_runs_in_a_process_of_its_own() -> None:
    stage = staged(101)
    solo = stage.started[1]
    assert solo.is_solo
    assert words(solo) == [(Word.RUN, "lease 101")]
    assert [lease.job_id for lease in solo.book] == [101]
    solo.board.states[0] = RUNNING
    solo.end(-9)
    stage.until(lambda: [call.job_id for call in stage.queue.calls["renew"]][-1:] == [101])
    assert not stage.queue.calls["release"]
    assert not stage.keeper._ward
    stage.close()


def test_suspects_run_one_at_a_time() -> None:
    stage = staged(101, 102)
    solo = stage.started[1]
    assert words(solo) == [(Word.RUN, "lease 101")]
    assert [lease.job_id for lease in stage.keeper._ward.book] == [102]
    finish(solo, 0)
    stage.until(lambda: len(stage.keeper._ward.book) == 0)
    assert words(solo) == [(Word.RUN, "lease 102")]
    assert [(lease.job_id, lease.place) for lease in solo.book] == [(102, 1)]
    assert len(stage.started) == 2
    stage.close()


def test_a_suspect_keeps_what_its_renewals_gained_while_it_waited() -> None:
    stage = staged(101, 102)
    solo = stage.started[1]
    [waiting] = stage.keeper._ward.book
    waiting.ends_at = gained = waiting.ends_at + 1_000
    finish(solo, 0)
    stage.until(lambda: len(stage.keeper._ward.book) == 0)
    assert [(lease.job_id, lease.ends_at) for lease in solo.book] == [(102, gained)]
    stage.close()


def test_a_suspect_that_runs_on_without_its_lease_is_joined_by_none() -> None:
    stage = staged(101, 102)
    solo = stage.started[1]
    solo.board.states[0] = RUNNING
    solo.book.drop([0])
    for _ in range(5):
        stage.turn()
    assert len(stage.keeper._ward.book) == 1
    solo.board.states[0] = FINISHED
    stage.until(lambda: len(stage.keeper._ward.book) == 0)
    stage.close()


def test_as_many_run_at_a_time_as_was_asked_for() -> None:
    stage = staged(101, 102, 103, suspects=2)
    assert [words(solo) for solo in stage.started[1:]] == [
        [(Word.RUN, "lease 101")],
        [(Word.RUN, "lease 102")],
    ]
    assert [lease.job_id for lease in stage.keeper._ward.book] == [103]
    stage.close()


def test_a_process_that_has_run_many_suspects_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ward_module, "JOBS_PER_PROCESS", 1)
    stage = staged(101, 102)
    first = stage.started[1]
    finish(first, 0)
    stage.until(lambda: (Word.DRAIN, "") in words(first))
    first.far.send(Word.LEAVING)
    first.end(0)
    stage.until(lambda: len(stage.started) == 3)
    assert words(stage.started[2]) == [(Word.RUN, "lease 102")]
    stage.close()


def test_a_process_without_a_suspect_is_sent_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ward_module, "IDLE_S", 0.1)
    stage = staged(101)
    solo = stage.started[1]
    finish(solo, 0)
    stage.until(lambda: (Word.DRAIN, "") in words(solo))
    solo.far.send(Word.LEAVING)
    solo.end(0)
    stage.until(lambda: not stage.keeper._ward)
    stage.close()


def test_a_solo_engine_runs_what_it_is_given_claims_nothing_and_leaves_when_told() -> None:
    with Rig(solo=True) as rig:
        rig.queue.add(2)
        leases = rig.queue.claim(2)
        rig.queue.claims.clear()
        claimed_at = time.monotonic() - 5  # its process took long to start
        for number, lease in enumerate(leases):
            held = Held(0, lease.job_id, 1, b"t" * 16, lease.claimed_at.timestamp(), 30.0)
            rig.channel.send(Word.RUN, pack_isolated(claimed_at, held, leasetext.dump(lease)))
            rig.until(partial(_is_done, rig, number + 1))
        rig.channel.send(Word.DRAIN, pack_instant(time.monotonic()))
        rig.thread.join(10)
        rig.hear()
        assert rig.queue.claims == []
        assert rig.words == [Word.HELD, Word.DROPPED, Word.HELD, Word.DROPPED, Word.LEAVING]


def test_a_suspect_that_runs_for_too_long_is_ended_and_charged() -> None:
    stage = staged(101, suspect_run_s=1)
    solo = stage.started[1]
    solo.board.states[0] = RUNNING
    stage.until(lambda: solo.was_killed, 20)
    stage.until(lambda: not stage.keeper._ward)
    assert [call.job_id for call in stage.queue.calls["renew"]][-1:] == [101]
    assert not stage.queue.calls["release"]
    stage.close()


def test_suspects_wait_for_a_process_for_a_while_and_then_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ward_module, "WAIT_S", 0.3)
    stage = staged(100, 101, 102, 103)
    assert len(stage.keeper._ward.book) == 3
    stage.until(lambda: len(stage.queue.calls["release"]) == 3)
    assert sorted(call.job_id for call in stage.queue.calls["release"]) == [101, 102, 103]
    assert len(stage.keeper._ward.book) == 0
    stage.close()


def test_more_than_can_wait_go_back_until_about_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the same executor would claim them again at once, over and over."""
    monkeypatch.setattr(ward_module, "ROOM", 2)
    stage = staged(100, 101, 102, 103, 104)
    stage.until(lambda: len(stage.queue.calls["release"]) == 3)
    assert {call.delay_s for call in stage.queue.calls["release"]} == {2}
    assert [lease.job_id for lease in stage.keeper._ward.book] == [101]
    stage.keeper._ward._mean_s = 10.0
    for job_id in (105, 106):
        isolate(stage.started[0], job_id)
    stage.until(lambda: len(stage.queue.calls["release"]) == 4)
    assert stage.queue.calls["release"][-1].delay_s == 20
    stage.keeper._ward._mean_s = 60.0
    isolate(stage.started[0], 107)
    stage.until(lambda: len(stage.queue.calls["release"]) == 5)
    assert stage.queue.calls["release"][-1].delay_s == 30, "another worker may have room"
    stage.close()


def test_a_drain_gives_back_who_waits_and_lets_the_solo_job_finish() -> None:
    stage = staged(100, 101, 102, grace_s=10)
    solo = stage.started[1]
    stage.keeper._signals = 1
    stage.until(lambda: len(stage.queue.calls["release"]) == 2)
    assert {call.delay_s for call in stage.queue.calls["release"]} == {None}
    assert words(solo) == [(Word.RUN, "lease 100"), (Word.DRAIN, "")]
    assert not stage.keeper._is_over()
    for played in stage.started:
        played.far.send(Word.LEAVING)
        played.end(0)
    stage.until(stage.keeper._is_over)
    stage.close()


def test_a_waiting_suspect_that_is_cancelled_goes_back_at_once() -> None:
    stage = staged(101, 102)
    stage.queue.cancelled = {102}
    [waiting] = stage.keeper._ward.book
    waiting.due_at = 0
    stage.keeper._ward.book.expect(waiting, 0)
    stage.until(lambda: stage.queue.calls["release"])
    assert stage.queue.calls["release"][0].job_id == 102
    stage.close()


def test_leases_that_nobody_knows_of_are_looked_for_after_a_crash() -> None:
    stage = Stage(name="here")
    stage.started[0].end(-9)
    stage.until(lambda: stage.queue.swept == ["here/0.1"])
    stage.until(lambda: stage.queue.swept == ["here/0.1"] * 2, 4)
    stage.close()


# Handlers that go on after their longest run


def overrun(stage: Stage, *places: int) -> PlayedExecutor:
    """The lease at the first place is at its longest run and over, its handler is not; the others live."""
    [executor] = stage.started
    executor.hold(*places)
    stage.until(lambda: len(executor.book) == len(places))
    late = next(iter(executor.book))
    late.is_capped = late.is_started = True
    executor.board.states[late.place] = RUNNING
    late.ends_at = 0.0
    stage.until(lambda: executor.book.overruns)
    executor.book.overruns[late.place] -= 60
    return executor


def test_a_handler_that_outruns_its_longest_run_is_ended_with_its_process() -> None:
    stage = Stage()
    executor = overrun(stage, 0)
    stage.until(lambda: executor.was_killed)
    stage.until(lambda: len(stage.started) == 2)
    assert not stage.queue.calls["release"]
    stage.close()


def test_what_runs_beside_it_may_finish_while_another_process_takes_its_seat() -> None:
    stage = Stage()
    executor = overrun(stage, 0, 1)
    stage.until(lambda: len(stage.started) == 2)
    assert not executor.was_killed
    assert Word.DRAIN in [word for word, _ in executor.far.receive()]
    executor.far.send(Word.DROPPED, pack_places([1]))
    stage.until(lambda: executor.was_killed)
    stage.until(lambda: not stage.keeper._retired)
    assert not stage.queue.calls["release"]
    stage.close()


def test_a_handler_that_returns_in_time_costs_no_process() -> None:
    stage = Stage()
    executor = overrun(stage, 0, 1)
    executor.book.overruns[0] = time.monotonic()
    executor.far.send(Word.DROPPED, pack_places([0]))
    stage.until(lambda: not executor.book.overruns)
    assert len(stage.started) == 1
    stage.close()
