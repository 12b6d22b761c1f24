"""Checkpoints on their way: asked for in handler threads, sent by the engine's thread, in batches."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobqueue import leases
from jobqueue.worker.outcomes import LeaseLost
from jobqueue.worker.verbs import must_repeat
from jobsplatform.errors import JobsPlatformError, MaxRuntime, Unavailable, UnknownOutcome

if TYPE_CHECKING:
    from jobqueue.worker.context import JobContext
    from jobqueue.worker.verbs import Verbs

RETRY_S = 0.05  # while the database is away
LEASE_S = 1  # what a checkpoint asks for: a lease at its longest run takes no renewal, but still a checkpoint


class Checkpoints:
    """What handlers wait for."""

    def __init__(self, verbs: Verbs, rouse: Callable[[], None]) -> None:
        self._verbs = verbs
        self._rouse = rouse
        self._waiting: deque[_Save] = deque()
        self._at = 0.0

    def due_at(self) -> float:
        """When to call `flush` (infinity: nothing waits)."""
        return self._at if self._waiting else math.inf

    def save(self, job: JobContext, text: str) -> None:
        """In a handler's thread: return once `text` is durable. Raises LeaseLost."""
        save = _Save(job, text)
        self._waiting.append(save)
        self._rouse()
        save.done.wait()
        if save.is_lost:
            raise LeaseLost(f"the lease of job {job.job_id} is lost")

    def flush(self) -> None:
        """In the engine's thread: send what waits; what gets no answer waits on, until its lease is lost."""
        batch = self._take()
        if not batch:
            return
        calls = [
            leases.Renew(lease.job_id, lease.generation, lease.token, LEASE_S, save.text, True)
            for save in batch
            for lease in (save.job.lease,)
        ]
        try:
            answers = self._verbs.renew(calls)
        except (Unavailable, UnknownOutcome) as error:
            answers = [error] * len(batch)
        except Exception:
            self._waiting.extend(batch)
            raise
        for save, answer in zip(batch, answers, strict=True):
            self._take_answer(save, answer)

    def _take(self) -> list[_Save]:
        """The next batch, one a job, so that a job's checkpoints are stored in their order."""
        batch: dict[int, _Save] = {}
        later: list[_Save] = []
        while self._waiting:
            save = self._waiting.popleft()
            if save.job.is_lost:
                save.answer(is_lost=True)
            elif save.job.place in batch:
                later.append(save)
            else:
                batch[save.job.place] = save
        self._waiting.extend(later)
        return list(batch.values())

    def _take_answer(self, save: _Save, answer: leases.Renewed | JobsPlatformError) -> None:
        job = save.job
        if must_repeat(answer):
            self._waiting.append(save)
            self._at = time.monotonic() + RETRY_S
        elif isinstance(answer, JobsPlatformError):
            job.is_ending = True
            job.is_lost = not isinstance(answer, MaxRuntime)
            save.answer(is_lost=True)
        else:
            job.is_cancelled = job.is_cancelled or answer.cancel_requested
            save.answer(is_lost=False)


class _Save:
    """One checkpoint, and the thread that waits for it."""

    __slots__ = ("done", "is_lost", "job", "text")

    def __init__(self, job: JobContext, text: str) -> None:
        self.job = job
        self.text = text
        self.done = threading.Event()
        self.is_lost = False

    def answer(self, *, is_lost: bool) -> None:
        self.is_lost = is_lost
        self.done.set()
