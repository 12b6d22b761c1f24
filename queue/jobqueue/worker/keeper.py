"""The keeper: the parent of the executors. It renews every lease and judges what dead executors leave behind.

Its own thread never waits for the database (clerks do) nor for an executor, so it acts within milliseconds:
- a beat that is due: all due leases of all executors in one statement;
- an executor that ended: jobs that had not begun go back uncharged, the one that ran is marked as started and
  left to lapse, so that reaping counts the crash; after a wanted exit everything goes back uncharged;
- a signal: the first drains within the grace period, the second hands everything back at once.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from jobqueue import leases
from jobqueue.worker.backoff import Backoff
from jobqueue.worker.channel import Word, pack_instant, pack_notes, unpack_held, unpack_places
from jobqueue.worker.clerks import Answer, Clerks
from jobqueue.worker.leasebook import HeldLease
from jobqueue.worker.process import ExecutorProcess
from jobqueue.worker.verbs import must_repeat
from jobsplatform import events
from jobsplatform.errors import JobsPlatformError, MaxRuntime

if TYPE_CHECKING:
    from jobqueue.worker.options import WorkerOptions
    from jobqueue.worker.verbs import Verbs

BATCH_MAX = 500
TURN_S = 0.5  # longest sleep, and how often lapses and hangs are looked for
STABLE_S = 10.0  # an executor that lived so long starts again at once
RESTART_FIRST_S, RESTART_CAP_S = 0.1, 5.0
RETRY_FIRST_S, RETRY_CAP_S = 0.05, 2.0  # while the database is away
HUNG_S = 45.0  # without a step of its engine and without a running handler
LEAVE_EARLY_S = 0.5  # of the grace period, so that released jobs are ready again when it ends
KILL_AFTER_S = 0.4  # after the instant at which an executor should have left
EXIT_AFTER_S = 1.5  # after the grace period: with or without an answer from the database
EXIT_FAILED = 1
NO_DATABASE = 75  # an executor with --once found none

Verb = Callable[[Sequence[HeldLease]], Sequence[object]]


class Keeper:
    """`run()` returns the process's exit code."""

    def __init__(
        self,
        options: WorkerOptions,
        verbs: Verbs,
        *,
        start: Callable[[int, WorkerOptions], ExecutorProcess] = ExecutorProcess,
        parent_is_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._options = options
        self._verbs = verbs
        self._start = start
        self._parent_is_gone = parent_is_gone
        self._seats = [_Seat(index) for index in range(options.processes)]
        self._clerks = Clerks(rouse=self._rouse, tidy=verbs.tidy)
        self._partings: list[_Parting] = []
        self._looked_at = 0.0
        self._signals = 0
        self._drained_signals = 0
        self._leave_at = self._exit_at = math.inf
        self._exit_code = 0
        self._was_away = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    # The loop

    def run(self) -> int:
        """Keep the executors until a signal, or with `--once` until all have ended."""
        self._watch_signals()
        self._clerks.start()
        events.emit("worker_started", worker=self._options.name, executors=len(self._seats))
        while not self._is_over():
            self._turn()
        self._kill_all()
        events.emit("worker_ended", worker=self._options.name, exit_code=self._exit_code)
        return self._exit_code

    def poll_age_s(self) -> float:
        """Seconds since the most deaf executor last asked for work; safe in any thread."""
        return time.monotonic() - min(seat.polled_at for seat in self._seats)

    def _turn(self) -> None:
        now = time.monotonic()
        for seat in self._seats:
            self._attend(seat, now)
        self._clerks.deliver()
        if now - self._looked_at >= TURN_S / 2:
            self._looked_at = now
            self._look_around(now)
            self._clerks.reinforce(now)
        self._renew(now)
        self._part(now)
        self._obey_signals(now)
        self._sleep()

    def _is_over(self) -> bool:
        if time.monotonic() >= self._exit_at:
            return True
        ended = all(seat.process is None and seat.is_closed for seat in self._seats)
        return ended and not self._partings and not self._clerks.open

    def _attend(self, seat: _Seat, now: float) -> None:
        """Hear one executor; bury it or start it when that is due."""
        process = seat.process
        if process is None:
            if not seat.is_closed and now >= seat.start_at:
                self._fill(seat, now)
            return
        code = process.exit_code()  # before hearing: what it said before it ended is then all there
        self._hear(process, now)
        if code is not None:
            self._bury(seat, process, code, now)

    def _fill(self, seat: _Seat, now: float) -> None:
        try:
            seat.process = self._start(seat.index, self._options)
        except OSError as error:  # out of processes or descriptors: that passes
            events.emit("executor_not_started", executor=seat.index, error=repr(error))
            seat.vacate(now, crashed=True)

    def _hear(self, process: ExecutorProcess, now: float) -> None:
        for word, body in process.hear():
            if word is Word.HELD:
                taken_at, held = unpack_held(body)
                process.book.add(taken_at, held, now)
            elif word is Word.DROPPED:
                process.book.drop(unpack_places(body))
            elif word is Word.LEAVING:
                process.is_leaving = True
        process.flush()

    def _look_around(self, now: float) -> None:
        for process in self._processes():
            lapsed = process.book.lapsed(now)
            if lapsed:
                self._report_lost(process, lapsed, "lapsed")
            self._replace_if_hung(process, now)
            if process.is_silent:
                process.kill()  # without its keeper it is of no use, should it not be ending by itself
        if self._parent_is_gone() and self._exit_at == math.inf:
            self._signals = max(self._signals, 1)
        if now >= self._leave_at + KILL_AFTER_S:
            self._kill_all()

    def _processes(self) -> list[ExecutorProcess]:
        return [seat.process for seat in self._seats if seat.process is not None]

    # Executors that end

    def _bury(self, seat: _Seat, process: ExecutorProcess, code: int, now: float) -> None:
        running, resting = process.book.take_all()
        wanted = process.is_leaving or now >= self._leave_at
        if wanted:
            resting, running = resting + running, []
        self._partings += [_Parting(self._release, resting), _Parting(self._mark_started, running)]
        if not wanted:
            events.emit(
                "executor_ended",
                executor=seat.index,
                exit_code=code,
                running=len(running),
                released=len(resting),
            )
        process.close()
        seat.vacate(now, crashed=not wanted)
        if self._leave_at < math.inf or (wanted and self._options.once):
            seat.is_closed = True
        if code == NO_DATABASE and self._options.once:
            seat.is_closed = True
            self._exit_code = EXIT_FAILED

    def _replace_if_hung(self, process: ExecutorProcess, now: float) -> None:
        """A handler may hold the interpreter as long as it likes; an engine alone has no excuse."""
        if now - process.board.turned_at <= HUNG_S or process.board.running():
            process.hung_looks = 0
            return
        process.hung_looks += 1  # more than one look: this process may have been stopped itself
        if process.hung_looks > 4:
            events.emit("executor_hung", executor=process.index, for_s=round(now - process.board.turned_at))
            process.kill()

    def _part(self, now: float) -> None:
        """Send what dead executors left; what gets no answer is sent again until the leases end."""
        due = [parting for parting in self._partings if parting.at <= now]
        if not due:
            return
        self._partings = [parting for parting in self._partings if parting.at > now]
        for parting in due:
            live = [lease for lease in parting.leases if lease.ends_at > now]
            for at in range(0, len(live), BATCH_MAX):
                chunk = _Parting(parting.verb, live[at : at + BATCH_MAX], parting.backoff)
                self._clerks.submit(partial(parting.verb, chunk.leases), partial(self._parted, chunk))

    def _parted(self, parting: _Parting, answer: Answer) -> None:
        if isinstance(answer, Exception):
            left = parting.leases
        else:
            left = [
                lease
                for lease, one in zip(parting.leases, _sequence(answer), strict=True)
                if must_repeat(one)
            ]
        if left:
            at = time.monotonic() + parting.backoff.fail()
            self._partings.append(_Parting(parting.verb, left, parting.backoff, at))

    def _release(self, held: Sequence[HeldLease]) -> Sequence[object]:
        return self._verbs.release([leases.Release(one.job_id, one.generation, one.token) for one in held])

    def _mark_started(self, held: Sequence[HeldLease]) -> Sequence[object]:
        """`lease_s` 1: a renewal never shortens, and this one should not lengthen either."""
        return self._verbs.renew(
            [leases.Renew(one.job_id, one.generation, one.token, 1, None, True) for one in held]
        )

    # Renewing

    def _renew(self, now: float) -> None:
        due = [lease for process in self._processes() for lease in process.book.due(now)]
        for at in range(0, len(due), BATCH_MAX):
            batch = due[at : at + BATCH_MAX]
            calls = [lease.call(now) for lease in batch]
            self._clerks.submit(partial(self._verbs.renew, calls), partial(self._renewed, batch, calls))

    def _renewed(self, batch: list[HeldLease], calls: list[leases.Renew], answer: Answer) -> None:
        now = time.monotonic()
        self._note_whether_away(answer)
        if isinstance(answer, Exception):
            answers: Sequence[object] = [answer] * len(batch)
        else:
            answers = _sequence(answer)
        notes = _Notes()
        for lease, call, one in zip(batch, calls, answers, strict=True):
            self._take_renewal(lease, call, one, notes, now)
            lease.book.expect(lease, now)
        for process in self._processes():
            notes.post(process)

    def _take_renewal(
        self, lease: HeldLease, call: leases.Renew, answer: object, notes: _Notes, now: float
    ) -> None:
        if isinstance(answer, leases.Renewed):
            lease.renewed(call, answer.expires_at.timestamp(), now)
            if answer.cancel_requested and not lease.is_cancel_told:
                lease.is_cancel_told = True
                notes.add(Word.CANCELLED, lease)
            if answer.give_back:
                notes.add(Word.GIVE_BACK, lease)
        elif isinstance(answer, MaxRuntime):
            lease.capped()
            notes.add(Word.ENDING, lease)
        elif isinstance(answer, JobsPlatformError) and not must_repeat(answer):
            if lease.book.lose(lease):
                events.emit("lease_lost", job_id=lease.job_id, generation=lease.generation, code=answer.code)
                notes.add(Word.LOST, lease)
        else:
            lease.failed(now)

    def _report_lost(self, process: ExecutorProcess, lost: list[HeldLease], code: str) -> None:
        for lease in lost:
            events.emit("lease_lost", job_id=lease.job_id, generation=lease.generation, code=code)
        process.tell(Word.LOST, pack_notes([lease.note for lease in lost]))

    def _note_whether_away(self, answer: Answer) -> None:
        """One event an outage, not one a try."""
        is_away = isinstance(answer, Exception)
        if is_away and not self._was_away:
            events.emit("database_lost", worker=self._options.name, error=repr(answer)[:500])
        self._was_away = is_away

    # Ending

    def _watch_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake up

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _obey_signals(self, now: float) -> None:
        if self._signals == self._drained_signals:
            return
        first = self._drained_signals == 0
        self._drained_signals = self._signals
        grace_s = self._options.grace_s if first and self._signals == 1 else 0.0
        events.emit("worker_draining", worker=self._options.name, grace_s=grace_s)
        self._leave_at = min(self._leave_at, now + grace_s - min(LEAVE_EARLY_S, grace_s / 10))
        self._exit_at = min(self._exit_at, now + grace_s + EXIT_AFTER_S)
        for seat in self._seats:
            seat.is_closed = True
        for process in self._processes():
            process.tell(Word.DRAIN, pack_instant(self._leave_at))

    def _kill_all(self) -> None:
        for process in self._processes():
            process.kill()

    # Sleeping

    def _rouse(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._wake_write, b"!")

    def _sleep(self) -> None:
        processes = self._processes()
        ends = [TURN_S + self._looked_at, self._exit_at, self._leave_at + KILL_AFTER_S]
        ends += [process.book.next_at for process in processes]
        ends += [parting.at for parting in self._partings]
        ends += [seat.start_at for seat in self._seats if seat.process is None and not seat.is_closed]
        nap_s = max(min(ends) - time.monotonic(), 0.0)
        living = [process.channel.fileno() for process in processes if not process.is_silent]
        readable, _, _ = select.select([*living, self._wake_read], [], [], nap_s)
        if self._wake_read in readable:
            os.read(self._wake_read, 4_096)


class _Seat:
    """A place for one executor after another."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: ExecutorProcess | None = None
        self.is_closed = False
        self.start_at = 0.0
        self._backoff = Backoff(first_s=RESTART_FIRST_S, cap_s=RESTART_CAP_S)
        self._polled_at = time.monotonic()

    @property
    def polled_at(self) -> float:
        process = self.process
        if process is not None:
            self._polled_at = process.board.polled_at
        return self._polled_at

    def vacate(self, now: float, *, crashed: bool) -> None:
        self._polled_at = self.polled_at
        process, self.process = self.process, None
        if process is None or now - process.started_at > STABLE_S or not crashed:
            self._backoff.reset()
        self.start_at = now + (self._backoff.fail() if crashed else 0.0)


@dataclass(slots=True)
class _Parting:
    """What is to be said of a dead executor's leases."""

    verb: Verb
    leases: Sequence[HeldLease]
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S))
    at: float = 0.0


class _Notes:
    """Words for the executors, collected from one batch of answers."""

    def __init__(self) -> None:
        self._noted: list[tuple[Word, HeldLease]] = []

    def add(self, word: Word, lease: HeldLease) -> None:
        self._noted.append((word, lease))

    def post(self, process: ExecutorProcess) -> None:
        for word in {word for word, _ in self._noted}:
            mine = [
                lease.note for noted, lease in self._noted if noted is word and lease.book is process.book
            ]
            if mine:
                process.tell(word, pack_notes(mine))


def _sequence(answer: Answer) -> Sequence[object]:
    assert isinstance(answer, Sequence), "a verb answers one value a call"
    return answer
