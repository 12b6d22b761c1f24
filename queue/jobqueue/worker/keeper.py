"""The keeper: the parent of the executors. It renews every lease and judges what dead executors leave behind.

Its own thread never waits for the database (clerks do) nor for an executor, so it acts within milliseconds:
- a beat that is due: all due leases of all executors in one statement;
- an executor that ended: jobs that had not begun go back uncharged, the one that ran is marked as started and
  left to lapse, so that reaping counts the crash; after a wanted exit everything goes back uncharged;
- a signal: the first drains within the grace period, the second hands everything back at once;
- an operator's word: a drain that lets everything that runs end.
"""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from jobqueue.worker.backoff import Backoff
from jobqueue.worker.beats import Beats
from jobqueue.worker.channel import Word, pack_instant, unpack_held, unpack_places
from jobqueue.worker.clerks import Clerks
from jobqueue.worker.partings import Partings
from jobqueue.worker.process import ExecutorProcess
from jobqueue.worker.ward import Ward
from jobsplatform import events

if TYPE_CHECKING:
    from jobqueue.worker.options import WorkerOptions
    from jobqueue.worker.verbs import Verbs

TURN_S = 0.5  # longest sleep
LOOK_S = 0.25  # how often lapses and hangs are looked for
STABLE_S = 10.0  # an executor that lived so long starts again at once
RESTART_FIRST_S, RESTART_CAP_S = 0.1, 5.0
HUNG_S = 45.0  # without a step of its engine and without a running handler
OVERRUN_S = 5.0  # a handler that was told that its time is up may take so long to return
HUNG_LOOKS = 4  # in a row: this process may have been stopped itself
LEAVE_EARLY_S = 0.5  # of the grace period, so that released jobs are ready again when it ends
KILL_AFTER_S = 0.4  # after the instant at which an executor should have left
EXIT_AFTER_S = 1.5  # after the grace period: with or without an answer from the database
EXIT_FAILED = 1
NO_DATABASE = 75  # an executor with --once found none


class Keeper:
    """`run()` returns the process's exit code."""

    def __init__(
        self,
        options: WorkerOptions,
        verbs: Verbs,
        *,
        start: Callable[..., ExecutorProcess] = ExecutorProcess,
        parent_is_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._options = options
        self._start = start
        self._parent_is_gone = parent_is_gone
        self._started = 0  # executors, for names that are used once
        self._seats = [_Seat(index) for index in range(options.processes)]
        self._clerks = Clerks(rouse=self._rouse, tidy=verbs.tidy)
        self._beats = Beats(verbs, self._clerks, options.name)
        self._partings = Partings(verbs, self._clerks)
        self._ward = Ward(
            self._partings, self._start_solo, limit=options.suspects, run_s=options.suspect_run_s
        )
        self._retired: list[
            ExecutorProcess
        ] = []  # they end what they run, beside a handler that does not end
        self._looked_at = 0.0
        self._signals = 0
        self._obeyed_signals = 0
        self._leave_at = self._exit_at = math.inf
        self._exit_code = 0
        self._drain_is_asked = self._is_drained = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    # The loop

    def run(self) -> int:
        """Keep the executors until a signal, or with `--once` until all have ended."""
        if threading.current_thread() is threading.main_thread():
            self._watch_signals()
        self._clerks.start()
        events.emit("worker_started", worker=self._options.name, executors=len(self._seats))
        while not self._is_over():
            self._turn()
        self._kill_all()
        events.emit("worker_ended", worker=self._options.name, exit_code=self._exit_code)
        return self._exit_code

    @property
    def has_loose_ends(self) -> bool:
        """A call to the database is still under way, in a thread that may never end."""
        return self._clerks.open > 0

    def poll_age_s(self) -> float:
        """Seconds since the most deaf executor last asked for work; safe in any thread."""
        return time.monotonic() - min(seat.polled_at for seat in self._seats)

    def held(self) -> int:
        """How many leases are held; safe in any thread."""
        return sum(len(process.book) for process in self._processes())

    def drain(self) -> None:
        """Take no more jobs, and end once all that runs has ended; safe in any thread."""
        self._drain_is_asked = True
        self._rouse()

    def _turn(self) -> None:
        now = time.monotonic()
        for seat in self._seats:
            self._attend(seat, now)
        self._attend_others(now)
        self._clerks.deliver()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._look_around(now)
        self._beats.send([*self._processes(), self._ward], now)
        self._partings.send(now)
        self._obey_signals(now)
        self._obey_drain()
        self._sleep()

    def _is_over(self) -> bool:
        if time.monotonic() >= self._exit_at:
            return True
        ended = all(seat.process is None and seat.is_closed for seat in self._seats)
        return ended and not (self._ward or self._retired or self._partings or self._clerks.open)

    def _processes(self) -> list[ExecutorProcess]:
        seated = [seat.process for seat in self._seats if seat.process is not None]
        return seated + self._retired + self._ward.processes

    # Executors

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
            crashed = self._bury(process, code, now)
            seat.vacate(now, crashed=crashed)
            self._close_if_done(seat, code, crashed=crashed)

    def _attend_others(self, now: float) -> None:
        for process in (*self._retired, *self._ward.processes):
            code = process.exit_code()
            self._hear(process, now)
            if code is not None:
                self._retired = [one for one in self._retired if one is not process]
                self._ward.bury(process)
                self._bury(process, code, now)
        try:
            self._ward.treat(now)
        except OSError as error:
            events.emit("executor_not_started", error=repr(error))

    def _fill(self, seat: _Seat, now: float) -> None:
        try:
            seat.process = self._start(self._next_name(str(seat.index)), self._options)
        except OSError as error:  # out of processes or descriptors: that passes
            events.emit("executor_not_started", executor=seat.index, error=repr(error))
            seat.vacate(now, crashed=True)

    def _start_solo(self) -> ExecutorProcess:
        return self._start(self._next_name("solo"), self._options, solo=True)

    def _next_name(self, place: str) -> str:
        self._started += 1
        return f"{self._options.name}/{place}.{self._started}"

    def _hear(self, process: ExecutorProcess, now: float) -> None:
        for word, body in process.hear():
            if word is Word.HELD:
                taken_at, held = unpack_held(body)
                process.book.add(taken_at, held, now)
            elif word is Word.DROPPED:
                process.book.drop(unpack_places(body))
            elif word is Word.ISOLATE:
                self._ward.admit(body, now)
            elif word is Word.LEAVING:
                process.is_leaving = True
        process.flush()

    def _bury(self, process: ExecutorProcess, code: int, now: float) -> bool:
        """Judge what it left; True when its end was a crash."""
        running, resting = process.book.take_all()
        process.close()
        if process.is_leaving or now >= self._leave_at:
            self._partings.release(resting)
            self._partings.interrupt(running)
            if not process.is_leaving:
                self._partings.sweep(process.name, now, in_haste=True)
            return False
        self._partings.release(resting)
        self._partings.let_lapse(running)
        if not process.is_solo and code != NO_DATABASE:
            self._partings.sweep(process.name, now, in_haste=self._leave_at < math.inf)
        counts = {"running": len(running), "released": len(resting)}
        events.emit("executor_ended", executor=process.name, exit_code=code, **counts)
        return True

    def _close_if_done(self, seat: _Seat, code: int, *, crashed: bool) -> None:
        if self._leave_at < math.inf or (self._options.once and not crashed):
            seat.is_closed = True
        if code == NO_DATABASE and self._options.once:
            seat.is_closed = True
            self._exit_code = EXIT_FAILED

    # What is looked at now and then

    def _look_around(self, now: float) -> None:
        for process in self._processes():
            self._beats.report_ends(process, now)
            self._replace_if_hung(process, now)
            self._end_overruns(process, now)
            if process.is_silent:
                process.kill()  # without its keeper it is of no use, should it not be ending by itself
        self._beats.report_ends(self._ward, now)
        self._clerks.reinforce(now)
        if self._parent_is_gone() and self._exit_at == math.inf:
            self._signals = max(self._signals, 1)
        if now >= self._leave_at + KILL_AFTER_S:
            self._kill_all()

    def _replace_if_hung(self, process: ExecutorProcess, now: float) -> None:
        """A handler may hold the interpreter as long as it likes; an engine alone has no excuse."""
        if now - process.board.turned_at <= HUNG_S or process.board.running():
            process.hung_looks = 0
            return
        process.hung_looks += 1
        if process.hung_looks > HUNG_LOOKS:
            events.emit("executor_hung", executor=process.name, for_s=round(now - process.board.turned_at))
            process.kill()

    def _end_overruns(self, process: ExecutorProcess, now: float) -> None:
        """A handler that goes on after its longest run is ended with its process, once nothing else runs there."""
        if not any(now - since > OVERRUN_S for since in process.book.overruns.values()):
            return
        if not len(process.book):
            events.emit("executor_overrun", executor=process.name, handlers=len(process.book.overruns))
            process.kill()
        elif len(self._retired) < len(self._seats):
            self._retire(process, now)

    def _retire(self, process: ExecutorProcess, now: float) -> None:
        """Let it end what it runs and claim no more; another takes its seat."""
        for seat in self._seats:
            if seat.process is process:
                seat.vacate(now, crashed=False)
                self._retired.append(process)
                process.tell(Word.DRAIN, pack_instant(math.inf))

    # Ending

    def _watch_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake up

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _obey_signals(self, now: float) -> None:
        if self._signals == self._obeyed_signals:
            return
        grace_s = self._options.grace_s if self._signals == 1 else 0.0
        self._obeyed_signals = self._signals
        events.emit("worker_draining", worker=self._options.name, grace_s=grace_s)
        self._leave_at = min(self._leave_at, now + grace_s - min(LEAVE_EARLY_S, grace_s / 10))
        self._exit_at = min(self._exit_at, now + grace_s + EXIT_AFTER_S)
        self._close(self._leave_at)

    def _obey_drain(self) -> None:
        if self._drain_is_asked and not self._is_drained:
            self._is_drained = True
            events.emit("worker_draining", worker=self._options.name, grace_s=None)
            self._close(math.inf)

    def _close(self, leave_at: float) -> None:
        """Nothing new is started; what runs may go on until then."""
        self._ward.is_closed = True
        for seat in self._seats:
            seat.is_closed = True
        for process in self._processes():
            process.tell(Word.DRAIN, pack_instant(leave_at))

    def _kill_all(self) -> None:
        for process in self._processes():
            process.kill()

    # Sleeping

    def _rouse(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._wake_write, b"!")

    def _sleep(self) -> None:
        processes = self._processes()
        ends = [self._looked_at + TURN_S, self._exit_at, self._leave_at + KILL_AFTER_S]
        ends += [process.book.next_at for process in processes]
        ends += [self._ward.book.next_at, self._ward.next_at, self._partings.next_at]
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
