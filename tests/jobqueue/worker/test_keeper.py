"""The keeper's judgement, with executors that the test plays itself."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from jobqueue import leases
from jobqueue.worker import keeper as keeper_module
from jobqueue.worker.board import FINISHED, RUNNING, Board, shared_file
from jobqueue.worker.channel import (
    Channel,
    Held,
    Word,
    pack_held,
    pack_places,
    unpack_instant,
    unpack_notes,
)
from jobqueue.worker.keeper import Keeper
from jobqueue.worker.options import WorkerOptions
from jobqueue.worker.process import ExecutorProcess
from jobsplatform.errors import LeaseExpired, MaxRuntime, Unavailable
from tests.jobqueue.worker.fake import FakeQueue, make_lease, until


class PlayedExecutor(ExecutorProcess):
    """The parent's view of an executor whose other end is in the test's hands."""

    def __init__(self, name: str, solo: bool) -> None:
        self.name = name
        self.is_solo = solo
        self.started_at = time.monotonic()
        self.is_leaving = self.is_silent = False
        self.hung_looks = 0
        self.code: int | None = None
        self.was_killed = False
        self.ours, self.theirs = socket.socketpair()
        with shared_file() as memory:
            self.board = Board(memory.fileno())
        self.channel, self.far = Channel(self.ours), Channel(self.theirs)
        from jobqueue.worker.leasebook import LeaseBook

        self.book = LeaseBook(self.board.states)

    def exit_code(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.was_killed = True
        self.end(-9)

    def end(self, code: int) -> None:
        if self.code is None:
            self.theirs.close()
            self.code = code

    def hold(self, *places: int, lease_s: float = 30.0) -> None:
        now = datetime.now(UTC).timestamp()
        held = [Held(place, 100 + place, 1, b"t" * 16, now, lease_s) for place in places]
        self.far.send(Word.HELD, pack_held(time.monotonic(), held))

    def told(self) -> list[tuple[Word, list[int]]]:
        return [
            (word, [] if word is Word.DRAIN else [note.place for note in unpack_notes(body)])
            for word, body in self.far.receive()
        ]


class Stage:
    """A keeper that the test turns by hand."""

    def __init__(self, **options: Any) -> None:
        self.queue = FakeQueue()
        self.queue.live = {100 + n: make_lease(100 + n) for n in range(50)}
        self.started: list[PlayedExecutor] = []
        self.keeper = Keeper(WorkerOptions(**options), self.queue, start=self._start)
        self.keeper._clerks.start()
        self.turn()

    def _start(self, name: str, options: WorkerOptions, *, solo: bool = False) -> PlayedExecutor:
        self.started.append(PlayedExecutor(name, solo))
        return self.started[-1]

    def turn(self) -> None:
        self.keeper._rouse()
        self.keeper._turn()

    def until(self, condition: Any, timeout_s: float = 30) -> None:
        def turned() -> object:
            self.turn()
            return condition()

        until(turned, timeout_s)

    def close(self) -> None:
        for executor in self.started:
            executor.ours.close()
            executor.theirs.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def test_a_crash_is_charged_to_what_ran_and_the_rest_goes_back(stage: Stage) -> None:
    [executor] = stage.started
    executor.hold(0, 1, 2, 3)
    executor.far.send(Word.DROPPED, pack_places([3]))
    executor.board.states[1] = RUNNING
    executor.board.states[2] = FINISHED
    executor.end(-9)
    stage.until(lambda: stage.queue.calls["release"] and stage.queue.calls["renew"])
    assert sorted(call.job_id for call in stage.queue.calls["release"]) == [100, 102]
    assert stage.queue.calls["renew"] == [leases.Renew(101, 1, b"t" * 16, 1, None, True)]


def test_after_a_wanted_exit_everything_goes_back_uncharged(stage: Stage) -> None:
    """What ran is known as started: of a kind that acts outside, its next attempt reconciles."""
    [executor] = stage.started
    executor.hold(0, 1)
    executor.board.states[1] = RUNNING
    executor.far.send(Word.LEAVING)
    executor.end(0)
    stage.until(lambda: len(stage.queue.calls["release"]) == 2)
    assert stage.queue.calls["renew"] == [leases.Renew(101, 1, b"t" * 16, 1, None, True)]


def test_what_a_dead_executor_left_is_sent_until_there_is_an_answer(stage: Stage) -> None:
    from collections import deque

    [executor] = stage.started
    executor.hold(0)
    stage.queue.failures["release"] = deque([Unavailable(), RuntimeError("odd"), Unavailable()])
    executor.end(1)
    stage.until(lambda: stage.queue.calls["release"])


def test_an_executor_that_ended_is_started_again_with_growing_waits(stage: Stage) -> None:
    starts = [stage.started[0].started_at]
    for n in range(4):
        stage.started[-1].end(1)
        stage.until(lambda n=n: len(stage.started) == n + 2)
        starts.append(stage.started[-1].started_at)
    gaps = [b - a for a, b in pairwise(starts)]
    assert gaps[0] < 1
    assert 0.3 < gaps[3] < 3


def test_a_start_that_fails_is_tried_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def refuse(name: str, options: WorkerOptions) -> PlayedExecutor:
        calls.append(name)
        if len(calls) < 3:
            raise OSError(11, "try again")
        return stage._start(name, options)

    monkeypatch.setattr(stage.keeper, "_start", refuse)
    stage.started[0].end(1)
    stage.until(lambda: len(stage.started) == 2)
    assert len(calls) == 3


def test_all_due_leases_of_all_executors_are_renewed_in_one_statement() -> None:
    stage = Stage(processes=3)
    sizes: list[int] = []
    renew = stage.queue.renew

    def counted(calls):
        sizes.append(len(calls))
        return renew(calls)

    stage.queue.renew = counted  # type: ignore[method-assign]
    for executor in stage.started:
        for n in range(10):
            executor.board.states[n] = RUNNING
        executor.hold(*range(10), lease_s=0.6)
    stage.until(lambda: sum(sizes) >= 60)
    assert max(sizes) == 30
    assert all(call.started for call in stage.queue.calls["renew"])
    stage.close()


def test_what_renewals_find_is_told_to_the_executor(stage: Stage) -> None:
    [executor] = stage.started

    def renew(calls):
        end = datetime.now(UTC) + timedelta(seconds=0.3)
        found = {
            100: leases.Renewed(end, True),
            101: leases.Renewed(end, False, True),
            102: MaxRuntime(),
            103: LeaseExpired(),
            104: leases.Renewed(end, False),
        }
        return [found[call.job_id] for call in calls]

    stage.queue.renew = renew  # type: ignore[method-assign]
    executor.hold(0, 1, 2, 3, 4, lease_s=0.3)
    told: list[tuple[Word, list[int]]] = []
    end = time.monotonic() + 0.9
    while time.monotonic() < end:
        stage.turn()
        told += executor.told()
    words = {word: [places for said, places in told if said is word] for word, _ in told}
    assert words[Word.CANCELLED] == [[0]]
    assert [1] in words[Word.GIVE_BACK]
    assert words[Word.ENDING] == [[2]]
    assert [3] in words[Word.LOST]
    assert [2] in words[Word.LOST]  # at its end
    assert not any(4 in places for _, places in told)


def test_a_lease_that_cannot_be_renewed_is_lost_at_its_end(stage: Stage) -> None:
    from collections import deque

    [executor] = stage.started
    stage.queue.failures["renew"] = deque([Unavailable()] * 1_000)
    executor.hold(0, lease_s=0.5)
    taken_at = time.monotonic()
    told: list[tuple[Word, list[int]]] = []

    def hears() -> object:
        told.extend(executor.told())
        return told

    stage.until(hears)
    assert told == [(Word.LOST, [0])]
    assert 0.4 < time.monotonic() - taken_at < 3


def test_the_first_signal_drains_and_the_second_ends_at_once() -> None:
    stage = Stage(grace_s=10)
    [executor] = stage.started
    executor.hold(0)
    stage.keeper._signals = 1
    stage.turn()
    [(word, body)] = list(executor.far.receive())
    assert word is Word.DRAIN
    assert 7 < unpack_instant(body) - time.monotonic() < 9.6
    stage.keeper._signals = 2
    stage.until(lambda: executor.was_killed)
    stage.until(lambda: stage.queue.calls["release"])
    stage.until(stage.keeper._is_over)
    assert len(stage.started) == 1
    stage.close()


def test_a_crash_while_draining_is_still_a_crash_and_not_replaced() -> None:
    stage = Stage(grace_s=10)
    [executor] = stage.started
    executor.hold(0)
    executor.board.states[0] = RUNNING
    stage.keeper._signals = 1
    stage.turn()
    executor.end(-11)
    stage.until(lambda: stage.queue.calls["renew"])
    stage.until(stage.keeper._is_over)
    assert not stage.queue.calls["release"]
    assert len(stage.started) == 1
    stage.close()


def test_without_a_database_the_keeper_exits_in_time_all_the_same() -> None:
    from collections import deque

    stage = Stage(grace_s=0)
    stage.queue.failures["release"] = deque([Unavailable()] * 1_000)
    [executor] = stage.started
    executor.hold(0)
    stage.turn()
    stage.keeper._signals = 1
    started_at = time.monotonic()
    stage.until(stage.keeper._is_over)
    assert 1.2 < time.monotonic() - started_at < 4
    stage.close()


def test_once_ends_when_its_executors_have_left() -> None:
    stage = Stage(once=True, processes=2)
    for executor in stage.started:
        executor.far.send(Word.LEAVING)
        executor.end(0)
    stage.until(stage.keeper._is_over)
    assert stage.keeper._exit_code == 0
    stage.close()


def test_once_without_a_database_fails() -> None:
    stage = Stage(once=True)
    stage.started[0].end(keeper_module.NO_DATABASE)
    stage.until(stage.keeper._is_over)
    assert stage.keeper._exit_code == 1
    stage.close()


def test_a_hung_executor_is_replaced_but_not_one_whose_handler_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "HUNG_S", 0.2)
    [executor] = stage.started
    executor.board.states[5] = RUNNING
    end = time.monotonic() + 1.6
    while time.monotonic() < end:
        stage.turn()
        time.sleep(0.05)
    assert not executor.was_killed
    executor.board.states[5] = FINISHED
    stage.until(lambda: executor.was_killed)
    stage.until(lambda: len(stage.started) == 2)


def test_the_age_of_the_last_poll_is_that_of_the_deafest_executor() -> None:
    stage = Stage(processes=2)
    stage.started[0].board.stamp_poll(time.monotonic() - 100)
    assert 99 < stage.keeper.poll_age_s() < 101
    stage.started[0].end(1)
    stage.until(lambda: len(stage.started) == 3)
    assert stage.keeper.poll_age_s() < 2
    stage.close()


def test_the_keeper_drains_when_its_parent_is_gone() -> None:
    stage = Stage(grace_s=5)
    stage.keeper._parent_is_gone = lambda: True
    told: list[tuple[Word, list[int]]] = []

    def hears() -> object:
        told.extend(stage.started[0].told())
        return told

    stage.until(hears)
    assert told == [(Word.DRAIN, [])]
    stage.close()


def test_stuck_clerks_get_help() -> None:
    import threading

    from jobqueue.worker import clerks

    gate = threading.Event()
    delivered: list[object] = []
    staff = clerks.Clerks(rouse=lambda: None, tidy=lambda: None)
    staff.start()
    for _ in range(clerks.CLERKS):
        staff.submit(gate.wait, delivered.append)
    staff.submit(lambda: "got through", delivered.append)
    time.sleep(0.05)
    staff.reinforce(time.monotonic())
    staff.deliver()
    assert delivered == []
    staff.reinforce(time.monotonic() + clerks.SILENT_S + 1)

    def delivery() -> object:
        staff.deliver()
        return delivered

    until(delivery)
    assert delivered == ["got through"]
    gate.set()


def test_a_drain_lets_all_that_runs_end(stage: Stage) -> None:
    """Told once, and without an instant by which it must be over; then the keeper is done."""
    [executor] = stage.started
    executor.hold(0)
    stage.until(lambda: stage.keeper.held() == 1)
    stage.keeper.drain()
    stage.turn()
    stage.turn()
    drains = [body for word, body in executor.far.receive() if word is Word.DRAIN]
    assert [unpack_instant(body) for body in drains] == [math.inf]
    executor.far.send(Word.DROPPED, pack_places([0]))
    executor.far.send(Word.LEAVING)
    stage.turn()
    executor.end(0)
    stage.until(stage.keeper._is_over)
    assert len(stage.started) == 1
