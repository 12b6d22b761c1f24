"""The executor's engine: claims in batches, feeds the handler threads, settles in batches, obeys the keeper.

It runs in the main thread of its process, in turns: hear the keeper, have settled what has ended, claim what is
wanted, sleep. A clerk settles in a thread of its own, so that the one half of the work is told while the other is
claimed: beside what handlers use, a busy process needs two connections.
"""

from __future__ import annotations

import math
import os
import random
import select
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from django.conf import settings

from jobqueue.worker import leasetext, settling, verdicts
from jobqueue.worker.backoff import Backoff
from jobqueue.worker.board import PLACES, WAITING, Board
from jobqueue.worker.channel import (
    Channel,
    Closed,
    Held,
    Word,
    isolated_text,
    pack_held,
    pack_isolated,
    pack_places,
    unpack_instant,
    unpack_isolated,
    unpack_notes,
)
from jobqueue.worker.checkpoints import Checkpoints
from jobqueue.worker.clerks import Answer, Clerks
from jobqueue.worker.context import JobContext
from jobqueue.worker.crew import Crew
from jobqueue.worker.pace import SLOW_S, Pace
from jobqueue.worker.registry import Handler
from jobqueue.worker.reserve import Reserve
from jobqueue.worker.settling import Settler
from jobsplatform import events
from jobsplatform.errors import Unavailable, UnknownOutcome

if TYPE_CHECKING:
    from jobqueue.claiming import Lease
    from jobqueue.worker.verbs import Verbs

POLL_FIRST_S, POLL_CAP_S = 0.05, 0.25  # between claims that found nothing, where nothing wakes the engine
WOKEN_POLL_CAP_S = 1.0  # where notifications do
SHORT_POLL_S = 0.02  # after a claim that found some, but less than was wanted
RETRY_FIRST_S = 0.05  # while the database is away; at most JOBS_RECONNECT_SECONDS
STUMBLE_CAP_S = 5.0  # after an error that nobody foresaw
HOARD_S = 1.0  # a claimed job that has not started by then is given back
LOOK_S = 0.005  # how often the engine looks at a buffer that is being emptied
CLERK_LOOK_S = 0.001  # how often, at the end, it asks whether the last results have arrived
TURN_S = 0.5  # longest sleep
ONCE_AWAY_S = 30.0  # how long `--once` waits for a database
STUCK_S = 10.0  # every thread in a handler whose lease is lost, for so long: the process is of no use


class Stuck(Exception):
    """No handler thread will come back; the keeper starts another executor."""


class DatabaseAway(Exception):
    """`--once` found no database for half a minute."""


class Engine:
    """One executor's engine. `run()` returns when it should leave, raises when it should be replaced."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        verbs: Verbs,
        channel: Channel,
        board: Board,
        *,
        concurrency: int,
        once: bool = False,
        solo: bool = False,
        grace_s: float = 10.0,
        reserved: int = 0,
    ) -> None:
        self._verbs = verbs
        self._channel = channel
        self._board = board
        self._once = once
        self._solo = solo  # run what is handed over, one at a time; claim none
        self._grace_s = grace_s
        self._crew = Crew(concurrency, handlers, board.states, on_finish=self._rouse, tidy=verbs.tidy)
        self._pace = Pace(concurrency)
        self._reserve = Reserve(verbs, concurrency, reserved)
        self._settler = Settler()
        self._clerk = Clerks(rouse=self._rouse, tidy=verbs.tidy, size=1)
        self._checkpoints = Checkpoints(verbs, self._rouse)
        self._held: dict[int, JobContext] = {}
        self._done: deque[JobContext] = (
            deque()
        )  # completed by their transactions, perhaps still in their handlers
        self._free_places = deque(range(PLACES))
        self._claim_at = 0.0
        self._is_called = False  # there is said to be work
        self.is_woken: Callable[[], bool] = lambda: False  # whether notifications come at present
        self._idle_s = POLL_FIRST_S
        self._away = Backoff(first_s=RETRY_FIRST_S, cap_s=settings.JOBS_RECONNECT_SECONDS)
        self._stumbles = Backoff(first_s=RETRY_FIRST_S, cap_s=STUMBLE_CAP_S)
        self._stuck_since: float | None = None
        self._answered_at = time.monotonic()
        self._leave_at = math.inf
        self._is_draining = False
        self._drain_requested = False
        self._is_done = False
        self._is_asleep = False
        self._wake_read, self.wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self.wake_write, False)

    # The loop

    def run(self) -> None:
        """Work until told to leave. Raises Closed (the keeper is gone), Stuck or DatabaseAway."""
        self._crew.start()
        self._clerk.start()
        while not self._is_done:
            try:
                self._turn()
                self._stumbles.reset()
            except (Closed, Stuck, DatabaseAway):
                raise
            except Exception as error:
                self._stumble(error)
        self._leave()

    def request_drain(self) -> None:
        """Leave within the grace period; safe in a signal handler."""
        self._drain_requested = True

    def _turn(self) -> None:
        now = time.monotonic()
        self._verbs.forget_queries()
        if self._drain_requested and not self._is_draining:
            self._drain(now + self._grace_s)
        self._hear()
        self._clerk.deliver()
        self._collect(now)
        self._board.stamp_turn(now)  # before each step that may wait for the database
        if self._settler.due_at(alone=self._is_alone()) <= now:
            self._settle()
        self._board.stamp_turn(time.monotonic())
        if self._checkpoints.due_at() <= now:
            self._checkpoints.flush()
        self._stop_hoarding(now)
        self._see_whether_stuck(now)
        if self._is_draining:
            self._board.stamp_poll(now)
            self._is_done = not self._held or now >= self._leave_at
        elif not self._solo:
            self._claim()
        if not self._is_done:
            self._sleep()

    def _stumble(self, error: Exception) -> None:
        """An error of ours must not end the process and its jobs: say so, wait, go on (at most 5 s)."""
        delay_s = self._stumbles.fail()
        text = "".join(traceback.format_exception(error))[-4_000:]
        events.emit("worker_loop_failed", error=repr(error), traceback=text, retry_in_s=round(delay_s, 2))
        self._tidy()
        time.sleep(delay_s)

    def _leave(self) -> None:
        """The last words: results that are there. What still runs is the keeper's to judge."""
        self._await_clerk()
        self._collect(time.monotonic())
        if self._settler:
            self._settle()
            self._await_clerk()
        self._channel.send(Word.LEAVING)

    def _await_clerk(self) -> None:
        while self._clerk.open:
            self._clerk.deliver()
            time.sleep(CLERK_LOOK_S)

    # Hearing the keeper

    def _hear(self) -> None:
        for word, body in self._channel.receive():
            if word is Word.DRAIN:
                self._drain(unpack_instant(body))
            elif word is Word.RUN:
                self._take_on([leasetext.load(isolated_text(body))], unpack_isolated(body)[0])
            else:
                self._hear_notes(word, body)

    def _hear_notes(self, word: Word, body: bytes) -> None:
        for note in unpack_notes(body):
            job = self._held.get(note.place)
            if job is not None and (job.lease.job_id, job.lease.generation) == note[1:]:
                self._heed(word, job)

    def _heed(self, word: Word, job: JobContext) -> None:
        if job.is_done:
            return  # the keeper had not heard of it yet
        if word is Word.LOST:
            job.is_lost = True
            if self._crew.take_back(job):
                self._drop([job])
        elif word is Word.ENDING:
            job.is_ending = True
        else:
            job.is_cancelled = word is Word.CANCELLED or job.is_cancelled
            if self._crew.take_back(job):
                self._hand_back([job])

    def _drain(self, leave_at: float) -> None:
        """Claim no more, hand back what has not started; leave when all is done, or at `leave_at`."""
        self._is_draining = True
        self._leave_at = min(self._leave_at, leave_at)
        self._hand_back(self._crew.take_all_back())

    # Settling

    def _collect(self, now: float) -> None:
        """Take what the threads have finished."""
        self._tell_done()
        ended = self._crew.ended
        count = 0
        total_s = 0.0
        while ended:
            job, verdict, seconds = ended.popleft()
            count += 1
            total_s += seconds
            if verdict is None or job.is_lost:
                self._drop([job])
            else:
                self._settler.add(job, verdict, now)
        if count:
            self._pace.learn(count, total_s)

    def _tell_done(self) -> None:
        """The keeper forgets leases that are completed; their places stay taken until the handlers return."""
        while self._done:
            job = self._done.popleft()
            if self._held.get(job.place) is job:  # else its place may be another's by now
                self._channel.send(Word.DROPPED, pack_places([job.place]))

    def _is_alone(self) -> bool:
        """Is nothing running or queued that could join the next batch?"""
        return not self._crew.queued and not any(self._crew.current)

    def _settle(self) -> None:
        lost, pending = self._settler.take()
        self._drop(lost)
        if pending:
            self._clerk.submit(partial(settling.send, self._verbs, pending), self._hear_settled)

    def _hear_settled(self, outcome: Answer) -> None:
        """The clerk is back (delivered in the engine's thread)."""
        assert isinstance(outcome, list | BaseException)
        self._drop(self._settler.heed(outcome, time.monotonic()))

    def _hand_back(self, jobs: list[JobContext]) -> None:
        now = time.monotonic()
        for job in jobs:
            self._settler.add(job, verdicts.released(job.lease), now)

    def _drop(self, jobs: list[JobContext]) -> None:
        """These leases are no longer this executor's concern."""
        if not jobs:
            return
        self._channel.send(Word.DROPPED, pack_places([job.place for job in jobs]))
        for job in jobs:
            self._board.states[job.place] = WAITING
            del self._held[job.place]
            self._free_places.append(job.place)

    def _stop_hoarding(self, now: float) -> None:
        """Jobs turned out slower than the pace had it: others may have free hands."""
        try:
            waited_s = now - self._crew.queued[0].began_at
        except IndexError:
            return
        if waited_s > HOARD_S:
            self._pace.overestimated()
            self._hand_back(self._crew.take_all_back())

    def _see_whether_stuck(self, now: float) -> None:
        current = self._crew.current
        if not all(job is not None and job.is_lost for job in current):
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > STUCK_S:
            raise Stuck(f"all {len(current)} threads run handlers whose lease is lost")

    # Claiming

    def _claim(self) -> None:
        now = time.monotonic()
        self._board.stamp_turn(now)
        want = self._wanted(now)
        if want == 0:
            if not self._is_away():
                self._board.stamp_poll(now)  # busy is not deaf
            return
        if now < self._claim_at and (not self._is_called or self._is_away()):
            return
        self._is_called = False  # before the claim: a call during it must lead to another
        try:
            claimed = self._reserve.claim(want, (job.lease.job_id for job in self._held.values()))
        except (Unavailable, UnknownOutcome) as error:
            self._claim_at = now + self._away.fail()
            self._tidy()
            if self._once and now - self._answered_at > ONCE_AWAY_S:
                raise DatabaseAway(str(error)) from error
            return
        self._away.reset()
        self._answered_at = time.monotonic()
        self._board.stamp_poll(self._answered_at)
        if claimed:
            self._pace.claimed(len(claimed))
            self._take_on(self._isolate(claimed, now), now)
        self._schedule_claim(len(claimed), want)
        if self._once and not claimed and not self._held:
            self._is_done = True

    def _is_away(self) -> bool:
        return self._away.failures > 0 or self._settler.in_trouble

    def _wanted(self, now: float) -> int:
        if self._settler.in_trouble:
            return 0
        running = self._crew.running()
        slow = sum(now - job.began_at > SLOW_S for job in running)
        return self._pace.wanted(
            queued=len(self._crew.queued), running=len(running), slow=slow, room=len(self._free_places)
        )

    def _isolate(self, claimed: list[Lease], taken_at: float) -> list[Lease]:
        """Hand suspects (a worker died while it held them) on to be run alone; answers the others."""
        suspects = [lease for lease in claimed if lease.crashes]
        for lease in suspects:
            body = pack_isolated(taken_at, _held(lease, 0), leasetext.dump(lease))
            self._channel.send(Word.ISOLATE, body)
        return [lease for lease in claimed if not lease.crashes] if suspects else claimed

    def _take_on(self, claimed: list[Lease], taken_at: float) -> None:
        """Tell the keeper, then the threads: a job must be in the keeper's book before it can end a process.

        `taken_at` is the instant before the claim was sent, so every end reckoned from it errs on the safe
        side.
        """
        if not claimed:
            return
        jobs = [JobContext(lease, self._free_places.popleft(), taken_at, self) for lease in claimed]
        self._held.update((job.place, job) for job in jobs)
        self._channel.send(Word.HELD, pack_held(taken_at, [_held(job.lease, job.place) for job in jobs]))
        self._crew.add(jobs)

    def _schedule_claim(self, got: int, want: int) -> None:
        if got:
            self._idle_s = POLL_FIRST_S
        if got == want:
            self._claim_at = 0.0
        elif got:
            self._claim_at = time.monotonic() + SHORT_POLL_S
        else:
            self._claim_at = time.monotonic() + self._idle_s * random.uniform(0.75, 1.0)
            cap_s = WOKEN_POLL_CAP_S if self.is_woken() else POLL_CAP_S
            self._idle_s = min(self._idle_s * 1.5, cap_s)

    # For handlers (called in their threads)

    def save_checkpoint(self, job: JobContext, text: str) -> None:
        self._checkpoints.save(job, text)

    def note_done(self, job: JobContext) -> None:
        self._done.append(job)
        self._rouse()

    def queue_name(self, queue_id: int) -> str:
        return self._verbs.queue_name(queue_id)

    def tenant_slug(self, tenant_id: int) -> str:
        return self._verbs.tenant_slug(tenant_id)

    # For the listener (called in its thread)

    def call(self) -> None:
        """There is said to be work: claim now, unless busy."""
        self._is_called = True
        self._rouse()

    # Sleeping

    def _rouse(self) -> None:
        """Wake the engine if it sleeps; called in any thread."""
        if self._is_asleep:
            self._is_asleep = False
            with suppress(BlockingIOError):  # the pipe is full of wake-ups already
                os.write(self.wake_write, b"!")

    def _sleep(self) -> None:
        self._is_asleep = True
        nap_s = self._nap_s(time.monotonic())
        if nap_s > 0:
            readable, _, _ = select.select([self._channel.fileno(), self._wake_read], [], [], nap_s)
            if self._wake_read in readable:
                os.read(self._wake_read, 4_096)
        self._is_asleep = False

    def _nap_s(self, now: float) -> float:
        """Until the next thing to do; reckoned after `_is_asleep` is set, so that nothing ends unseen."""
        if self._done or self._clerk.has_news or (self._crew.ended and not self._crew.queued):
            return 0.0
        ends = [now + TURN_S, self._settler.due_at(alone=self._is_alone()), self._leave_at]
        ends.append(self._checkpoints.due_at())
        if self._crew.queued:
            ends.append(now + LOOK_S)
        if not self._is_draining and not self._solo and self._wanted(now):
            ends.append(now if self._is_called and not self._is_away() else self._claim_at)
        return min(ends) - now

    def _tidy(self) -> None:
        try:
            self._verbs.tidy()
        except Exception as error:
            events.emit("worker_tidy_failed", error=repr(error))


def _held(lease: Lease, place: int) -> Held:
    claimed_at = lease.claimed_at.timestamp()
    lease_s = lease.expires_at.timestamp() - claimed_at
    return Held(place, lease.job_id, lease.generation, lease.token, claimed_at, lease_s)
