"""What is said of the leases that a dead executor leaves behind, said until the database has answered.

Jobs that had not begun go back uncharged. A job that ran when its process died is marked as started and left to
lapse, so that reaping counts the crash. Leases of a claim whose answer died with the executor are found by the
worker's name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from jobqueue import leases
from jobqueue.worker.backoff import Backoff
from jobqueue.worker.clerks import Answer, Clerks
from jobqueue.worker.leasebook import HeldLease
from jobqueue.worker.verbs import answers_of, must_repeat

if TYPE_CHECKING:
    from jobqueue.worker.verbs import Verbs

BATCH_MAX = 500
RETRY_FIRST_S, RETRY_CAP_S = 0.05, 2.0  # while the database is away
SWEEPS_S = (0.3, 3.0)  # after a death: a claim that was under way in the server has ended by then
SWEEP_TRIES = 20

Verb = Callable[[Sequence[HeldLease]], Sequence[object]]


class Partings:
    """Owned by the keeper's thread; the clerks do the talking."""

    def __init__(self, verbs: Verbs, clerks: Clerks) -> None:
        self._verbs = verbs
        self._clerks = clerks
        self._waiting: list[_Parting | _Sweep] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_at(self) -> float:
        """When `send` has something next."""
        return min((parting.at for parting in self._waiting), default=math.inf)

    def release(self, held: Sequence[HeldLease]) -> None:
        """Give back what no handler saw, uncharged and uncounted."""
        self._add(self._release, held)

    def postpone(self, held: Sequence[HeldLease], delay_s: int) -> None:
        """Give back what no handler saw, uncharged and uncounted, to be claimed again after a while."""
        self._add(partial(self._release, delay_s=delay_s), held)

    def interrupt(self, held: Sequence[HeldLease]) -> None:
        """Give back, uncharged, what was running: known as started, so that what acts outside is reconciled."""
        self._add(self._release_started, held)

    def let_lapse(self, held: Sequence[HeldLease]) -> None:
        """Mark as started and leave alone."""
        self._add(self._mark_started, held)

    def sweep(self, worker: str, now: float, *, in_haste: bool) -> None:
        """Give back what `worker` has claimed and nobody knows of; `in_haste` without a second look."""
        delays_s = SWEEPS_S[:1] if in_haste else SWEEPS_S
        self._waiting += [_Sweep(worker, at=now + delay_s) for delay_s in delays_s]

    def send(self, now: float) -> None:
        """Say what is due; leases that have ended meanwhile need no word."""
        if now < self.next_at:
            return
        due = [parting for parting in self._waiting if parting.at <= now]
        self._waiting = [parting for parting in self._waiting if parting.at > now]
        for parting in due:
            if isinstance(parting, _Sweep):
                call = partial(self._verbs.release_unstarted, parting.worker)
                self._clerks.submit(call, partial(self._swept, parting))
                continue
            live = [lease for lease in parting.leases if lease.ends_at > now]
            for at in range(0, len(live), BATCH_MAX):
                chunk = _Parting(parting.verb, live[at : at + BATCH_MAX], parting.backoff)
                self._clerks.submit(partial(parting.verb, chunk.leases), partial(self._parted, chunk))

    def _add(self, verb: Verb, held: Sequence[HeldLease]) -> None:
        if held:
            self._waiting.append(_Parting(verb, held))

    def _parted(self, parting: _Parting, answer: Answer) -> None:
        answers = answers_of(answer, len(parting.leases))
        left = [
            lease
            for lease, one in zip(parting.leases, answers, strict=True)
            if must_repeat(one) or one is answer
        ]
        if left:
            at = time.monotonic() + parting.backoff.fail()
            self._waiting.append(_Parting(parting.verb, left, parting.backoff, at))

    def _swept(self, sweep: _Sweep, answer: Answer) -> None:
        if isinstance(answer, Exception) and sweep.backoff.failures < SWEEP_TRIES:
            sweep.at = time.monotonic() + sweep.backoff.fail()
            self._waiting.append(sweep)

    def _release(
        self, held: Sequence[HeldLease], *, delay_s: int | None = None, counts: bool = False
    ) -> Sequence[object]:
        return self._verbs.release(
            [leases.Release(one.job_id, one.generation, one.token, delay_s, counts) for one in held]
        )

    def _release_started(self, held: Sequence[HeldLease]) -> Sequence[object]:
        marks = self._mark_started(held)
        marked = [one for one, mark in zip(held, marks, strict=True) if not must_repeat(mark)]
        released = iter(self._release(marked, counts=True) if marked else ())
        return [mark if must_repeat(mark) else next(released) for mark in marks]

    def _mark_started(self, held: Sequence[HeldLease]) -> Sequence[object]:
        """`lease_s` 1: a renewal never shortens, and this one should not lengthen either."""
        return self._verbs.renew(
            [leases.Renew(one.job_id, one.generation, one.token, 1, None, True) for one in held]
        )


def _patience() -> Backoff:
    return Backoff(first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S)


@dataclass(slots=True)
class _Parting:
    verb: Verb
    leases: Sequence[HeldLease]
    backoff: Backoff = field(default_factory=_patience)
    at: float = 0.0


@dataclass(slots=True)
class _Sweep:
    worker: str
    backoff: Backoff = field(default_factory=_patience)
    at: float = 0.0
