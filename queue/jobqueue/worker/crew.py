"""The handler threads of an executor. They take jobs from one deque and leave outcomes in another.

A hand-off costs no lock: deques are atomic, and a thread sleeps (on a lock of its own) only when there is
nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from jobqueue import leases
from jobqueue.worker import reconciling, verdicts
from jobqueue.worker.board import FINISHED, RUNNING
from jobqueue.worker.context import JobContext
from jobqueue.worker.registry import Handler
from jobqueue.worker.verdicts import Verdict
from jobsplatform import events, tracing

Ended = tuple[
    JobContext, Verdict | None, float
]  # the job, what to tell the queue, seconds that its handler took
JOBS_PER_TIDY = 200  # in one thread; an idle thread tidies at once


class Crew:
    """`size` daemon threads. `on_finish` is called in them after each job that leaves the queue empty."""

    def __init__(
        self,
        size: int,
        handlers: Mapping[str, Handler],
        states: memoryview,
        *,
        on_finish: Callable[[], None],
        tidy: Callable[[], None],
    ) -> None:
        self.queued: deque[JobContext] = deque()
        self.ended: deque[Ended] = deque()
        self.current: list[JobContext | None] = [None] * size
        self._handlers = handlers
        self._states = states
        self._on_finish = on_finish
        self._tidy = tidy
        self._sleepers: deque[threading.Lock] = deque()
        self._threads = [
            threading.Thread(target=self._serve, args=(slot,), name=f"handler-{slot}", daemon=True)
            for slot in range(size)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, jobs: list[JobContext]) -> None:
        """Queue jobs and wake as many threads as can use them."""
        self.queued.extend(jobs)
        for _ in range(min(len(jobs), len(self._sleepers))):
            try:
                self._sleepers.popleft().release()
            except IndexError:
                return

    def take_back(self, job: JobContext) -> bool:
        """Remove a queued job so that it will not start; False when a thread already has it."""
        try:
            self.queued.remove(job)
        except ValueError:
            return False
        return True

    def take_all_back(self) -> list[JobContext]:
        """Remove every queued job."""
        taken: list[JobContext] = []
        while self.queued:
            try:
                taken.append(self.queued.popleft())
            except IndexError:
                break
        return taken

    def running(self) -> list[JobContext]:
        return [job for job in self.current if job is not None]

    # In the handler threads

    def _serve(self, slot: int) -> None:
        bed = threading.Lock()
        bed.acquire()
        since_tidy = 0
        while True:
            try:
                job = self.queued.popleft()
            except IndexError:
                if since_tidy:
                    self._tidy_up()
                    since_tidy = 0
                self._sleep(bed)
                continue
            succeeded = self._run(job, slot)
            since_tidy += 1
            if since_tidy >= JOBS_PER_TIDY or not succeeded:
                self._tidy_up()
                since_tidy = 0

    def _run(self, job: JobContext, slot: int) -> bool:
        """False after an exception: it may have left a broken connection for the next job of this thread."""
        lease = job.lease
        job.began_at = began_at = time.monotonic()
        self.current[slot] = job
        self._states[job.place] = RUNNING  # last before the handler: from here on a crash is this job's
        verdict: Verdict | None
        try:
            with tracing.processing(lambda: job.queue, lease.traceparent, partial(_facts, job)):
                verdict = verdicts.of_result(lease, reconciling.run(self._handlers[lease.kind], job))
        except BaseException as error:  # SystemExit too: a handler's exit must not end a thread of ours
            verdict = verdicts.of_exception(lease, error)
            if job.is_done:
                events.emit("failed_after_end", job_id=job.job_id, error=repr(error)[:500])
        if job.is_done:
            verdict = None  # told by its transaction
        self._states[job.place] = FINISHED
        self.current[slot] = None
        self.ended.append((job, verdict, time.monotonic() - began_at))
        if not self.queued:
            self._on_finish()
        return job.is_done or type(verdict) is leases.Complete

    def _tidy_up(self) -> None:
        """Give back what handlers left in this thread: database connections and the query log of DEBUG."""
        with suppress(Exception):  # a connection that fails to close is gone all the same
            self._tidy()

    def _sleep(self, bed: threading.Lock) -> None:
        """Wait to be woken. Listed first, then a last look: a job added in between is not slept through."""
        self._sleepers.append(bed)
        if self.queued:
            try:
                return self._sleepers.remove(bed)  # a busy thread must not be woken in a sleeping one's stead
            except ValueError:
                pass  # just being woken: take that, or the next sleep would end at once
        bed.acquire()


def _facts(job: JobContext) -> dict[str, Any]:
    """What every log line says that is written while the job's handler runs."""
    return {"job_id": job.job_id, "generation": job.generation, "kind": job.kind}
