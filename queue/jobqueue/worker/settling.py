"""What handlers came to, on its way to the queue: in batches, repeated until the queue has answered.

Completing is at least once and idempotent: the same call is made again until there is an answer or the lease
is lost. A refusal is an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import django.db
import psycopg

from jobqueue import leases
from jobqueue.worker import verdicts
from jobqueue.worker.backoff import Backoff
from jobqueue.worker.verbs import must_repeat
from jobsplatform import events
from jobsplatform.errors import Invalid, JobsPlatformError, TooLarge, Unavailable, UnknownOutcome

if TYPE_CHECKING:
    from jobqueue.worker.context import JobContext
    from jobqueue.worker.verbs import Answers, Verbs
    from jobqueue.worker.verdicts import Verdict

BATCH_MAX = 500
LINGER_S = 0.005  # a result waits so long for company while other handlers are at work
FULL = 100  # results that are worth a statement of their own
RETRY_FIRST_S, RETRY_CAP_S = 0.05, 2.0

Pending = tuple["JobContext", "Verdict"]
# The fault is in what is sent, so sending it again cannot help.
_REJECTED = (psycopg.DataError, django.db.DataError, ValueError, Invalid, TooLarge)


class Settler:
    """Not thread-safe: the engine's thread owns it."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._pending: list[Pending] = []
        self._oldest_at = math.inf
        self._retry_at = 0.0
        self._backoff = Backoff(first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S)

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def in_trouble(self) -> bool:
        """The last batch got no answer."""
        return self._backoff.failures > 0

    def add(self, job: JobContext, verdict: Verdict, now: float) -> None:
        if not self._pending:
            self._oldest_at = now
        self._pending.append((job, verdict))

    def due_at(self, *, alone: bool) -> float:
        """When to flush (infinity: nothing to do). `alone`: no handler is at work that could add more."""
        if not self._pending:
            return math.inf
        if self.in_trouble:
            return self._retry_at
        return self._oldest_at if alone or len(self._pending) >= FULL else self._oldest_at + LINGER_S

    def flush(self, now: float) -> list[JobContext]:
        """Send everything; returns the jobs that are over for this worker. Database failures stay inside."""
        over, calls = self._without_lost()
        self._pending = []
        answered = True
        for verb, batch in self._batches(calls):
            answered = self._send(verb, batch, over) and answered
        if answered:
            self._backoff.reset()
        else:
            self._retry_at = now + self._backoff.fail()
        self._oldest_at = now if self._pending else math.inf
        return over

    def _without_lost(self) -> tuple[list[JobContext], list[Pending]]:
        lost = [job for job, _ in self._pending if job.is_lost]
        return lost, [
            pending for pending in self._pending if not pending[0].is_lost
        ] if lost else self._pending

    def _batches(self, pending: Sequence[Pending]) -> list[tuple[Callable[..., Answers], list[Pending]]]:
        verbs = self._verbs
        batches: list[tuple[Callable[..., Answers], list[Pending]]] = []
        for kind, verb in (
            (leases.Complete, verbs.complete),
            (leases.Fail, verbs.fail),
            (leases.Release, verbs.release),
        ):
            same = [one for one in pending if type(one[1]) is kind]
            batches += [(verb, same[at : at + BATCH_MAX]) for at in range(0, len(same), BATCH_MAX)]
        return batches

    def _send(self, verb: Callable[..., Answers], batch: list[Pending], over: list[JobContext]) -> bool:
        """False: (part of) the batch got no answer and is pending again."""
        try:
            answers = verb([verdict for _, verdict in batch])
        except (Unavailable, UnknownOutcome):
            self._pending += batch
            return False
        except _REJECTED as error:
            return self._send_singly(verb, batch, over, error)
        except Exception as error:
            events.emit("settle_failed", jobs=len(batch), error=repr(error))
            self._pending += batch
            return False
        before = len(self._pending)
        for (job, verdict), answer in zip(batch, answers, strict=True):
            self._take(job, verdict, answer, over)
        return len(self._pending) == before

    def _send_singly(
        self, verb: Callable[..., Answers], batch: list[Pending], over: list[JobContext], error: Exception
    ) -> bool:
        if len(batch) == 1:
            [(job, verdict)] = batch
            self._unsendable(job, verdict, error, over)
            return True
        return all([self._send(verb, [one], over) for one in batch])  # noqa: C419  none may be skipped

    def _take(self, job: JobContext, verdict: Verdict, answer: object, over: list[JobContext]) -> None:
        if must_repeat(answer):
            self._pending.append((job, verdict))
        elif isinstance(answer, Invalid | TooLarge):
            self._unsendable(job, verdict, answer, over)
        else:
            if isinstance(answer, JobsPlatformError):
                events.emit("settle_refused", job_id=job.job_id, generation=job.generation, code=answer.code)
            over.append(job)

    def _unsendable(
        self, job: JobContext, verdict: Verdict, error: Exception, over: list[JobContext]
    ) -> None:
        """A result that the queue cannot store fails the job for good; anything else lets the lease lapse."""
        events.emit(
            "settle_rejected", job_id=job.job_id, generation=job.generation, error=type(error).__name__
        )
        if not isinstance(verdict, leases.Complete):
            over.append(job)
            return
        self._pending.append((job, verdicts.invalid_result(job.lease, f"the queue cannot store it: {error}")))
