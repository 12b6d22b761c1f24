"""What handlers came to, on its way to the queue: in batches, repeated until the queue has answered.

Completing is at least once and idempotent: the same call is made again until there is an answer or the lease
is lost. A refusal is an answer. One batch is on its way at a time, and what ends meanwhile joins the next: the longer
the database takes, the larger the batches.
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
from jobqueue.worker.verbs import answers_of, must_repeat
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
Answered = tuple[
    "JobContext", "Verdict", object
]  # the answer: a value, a refusal, or an error that was raised
# The fault is in what is sent, so sending it again cannot help.
_REJECTED = (psycopg.DataError, django.db.DataError, ValueError, Invalid, TooLarge)


class Settler:
    """What is to be told and what is on its way. Not thread-safe: the engine's thread owns it."""

    def __init__(self) -> None:
        self._pending: list[Pending] = []
        self._on_its_way: list[Pending] = []
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
        """When to send (infinity: nothing to do now). `alone`: no handler is at work that could add more."""
        if not self._pending or self._on_its_way:
            return math.inf
        if self.in_trouble:
            return self._retry_at
        return self._oldest_at if alone or len(self._pending) >= FULL else self._oldest_at + LINGER_S

    def take(self) -> tuple[list[JobContext], list[Pending]]:
        """Jobs whose lease was lost meanwhile, and what to `send` now: `heed` must hear what came of it."""
        lost = [job for job, _ in self._pending if job.is_lost]
        self._on_its_way = [one for one in self._pending if not one[0].is_lost] if lost else self._pending
        self._pending = []
        return lost, self._on_its_way

    def heed(self, outcome: list[Answered] | BaseException, now: float) -> list[JobContext]:
        """Take what `send` returned or raised; returns the jobs that are over for this worker."""
        if isinstance(outcome, BaseException):
            events.emit("settle_failed", jobs=len(self._on_its_way), error=repr(outcome))
            outcome = [(*one, UnknownOutcome()) for one in self._on_its_way]
        self._on_its_way = []
        over = [job for job, verdict, answer in outcome if self._is_over(job, verdict, answer, now)]
        if any(must_repeat(answer) for _, _, answer in outcome):
            self._retry_at = now + self._backoff.fail()
        else:
            self._backoff.reset()
        return over

    def _is_over(self, job: JobContext, verdict: Verdict, answer: object, now: float) -> bool:
        """Else it is pending again: the same, or what is said in its stead."""
        if must_repeat(answer):
            self.add(job, verdict, now)
            return False
        if isinstance(answer, _REJECTED):
            return self._is_unsendable(job, verdict, answer, now)
        if isinstance(answer, JobsPlatformError):
            events.emit("settle_refused", job_id=job.job_id, generation=job.generation, code=answer.code)
        return True

    def _is_unsendable(self, job: JobContext, verdict: Verdict, error: Exception, now: float) -> bool:
        """A result that the queue cannot store fails the job for good; anything else lets the lease lapse."""
        events.emit(
            "settle_rejected", job_id=job.job_id, generation=job.generation, error=type(error).__name__
        )
        if not isinstance(verdict, leases.Complete):
            return True
        self.add(job, verdicts.invalid_result(job.lease, f"the queue cannot store it: {error}"), now)
        return False


def send(verbs: Verbs, pending: Sequence[Pending]) -> list[Answered]:
    """Tell the queue, verb by verb; database failures are answers. For any thread."""
    return [answered for verb, batch in _batches(verbs, pending) for answered in _ask(verb, batch)]


def _batches(verbs: Verbs, pending: Sequence[Pending]) -> list[tuple[Callable[..., Answers], list[Pending]]]:
    batches: list[tuple[Callable[..., Answers], list[Pending]]] = []
    for kind, verb in (
        (leases.Complete, verbs.complete),
        (leases.Fail, verbs.fail),
        (leases.Release, verbs.release),
    ):
        same = [one for one in pending if type(one[1]) is kind]
        batches += [(verb, same[at : at + BATCH_MAX]) for at in range(0, len(same), BATCH_MAX)]
    return batches


def _ask(verb: Callable[..., Answers], batch: list[Pending]) -> list[Answered]:
    """One call; what it refuses as a whole is sent one by one, so that only the guilty is refused."""
    outcome: object
    try:
        outcome = verb([verdict for _, verdict in batch])
    except _REJECTED as error:
        if len(batch) > 1:
            return [answered for one in batch for answered in _ask(verb, [one])]
        outcome = error
    except (Unavailable, UnknownOutcome) as error:
        outcome = error
    except Exception as error:
        events.emit("settle_failed", jobs=len(batch), error=repr(error))
        outcome = UnknownOutcome()
    return [(*one, answer) for one, answer in zip(batch, answers_of(outcome, len(batch)), strict=True)]
