"""Isolation of suspects: jobs that ran side by side when their process died.

Which of them killed it cannot be known, so each is charged. To charge the innocent once at most, the next try of
each runs in a process of its own: a job that kills again is then alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from jobqueue.worker.board import PLACES
from jobqueue.worker.channel import Held, Word, pack_ids, unpack_isolated, unpack_notes
from jobqueue.worker.leasebook import HeldLease, LeaseBook
from jobqueue.worker.partings import Partings
from jobqueue.worker.process import ExecutorProcess

SUSPECTS_MAX = 10_000
SUSPICION_S = 3_600.0  # a suspect that another worker took is forgotten after so long
PROCESSES_MAX = 2  # at a time
WAIT_S = 10.0  # for one of them; then the lease goes back to the queue


class _Patient(NamedTuple):
    """A suspect's lease on its way into a process of its own."""

    taken_at: float
    held: Held
    body: bytes  # the frame that hands the lease on
    came_at: float


class Ward:
    """Owned by the keeper's thread. `book` has the leases that wait; those that run are in their process's."""

    def __init__(self, partings: Partings, start: Callable[[], ExecutorProcess]) -> None:
        self._partings = partings
        self._start = start
        self._suspects: dict[int, float] = {}  # job → when it is forgotten
        self._waiting: dict[int, _Patient] = {}  # by place in the book
        self._next_place = 0
        self.book = LeaseBook(memoryview(bytearray(PLACES)))
        self.processes: list[ExecutorProcess] = []  # the keeper takes out those that have ended
        self.is_closed = False

    def __bool__(self) -> bool:
        return bool(self._waiting or self.processes)

    def suspect(self, jobs: Iterable[HeldLease]) -> None:
        """These ran together when their process died."""
        until = time.monotonic() + SUSPICION_S
        self._suspects.update((job.job_id, until) for job in jobs)
        while len(self._suspects) > SUSPECTS_MAX:
            del self._suspects[next(iter(self._suspects))]

    def announce(self, processes: Iterable[ExecutorProcess]) -> None:
        """Tell executors whom to send here instead of starting them."""
        now = time.monotonic()
        self._suspects = {job: until for job, until in self._suspects.items() if until > now}
        if self._suspects:
            for process in processes:
                process.tell(Word.SUSPECTS, pack_ids(self._suspects))

    def admit(self, body: bytes, now: float) -> None:
        """Take over the lease in an executor's ISOLATE frame."""
        taken_at, held = unpack_isolated(body)
        held = held._replace(place=self._next_place)
        self._next_place = (self._next_place + 1) % PLACES
        self._waiting[held.place] = _Patient(taken_at, held, body, now)
        self.book.add(taken_at, [held], now)

    def treat(self, now: float) -> None:
        """Start processes for those that wait; give back those that have waited for too long."""
        late = [place for place, one in self._waiting.items() if self.is_closed or now - one.came_at > WAIT_S]
        self._give_back(late)
        while self._waiting and len(self.processes) < PROCESSES_MAX:
            process = self._start()
            place = next(iter(self._waiting))
            patient = self._waiting.pop(place)
            self.book.drop([place])
            process.book.add(patient.taken_at, [patient.held._replace(place=0)], now)
            process.tell(Word.RUN, patient.body)
            self.processes.append(process)

    def tell(self, word: Word, body: bytes) -> None:
        """What renewals found of leases that wait here."""
        places = [note.place for note in unpack_notes(body)]
        if word is Word.LOST:
            for place in places:
                self._waiting.pop(place, None)
        elif word is not Word.ENDING:
            self._give_back(places)

    def _give_back(self, places: Iterable[int]) -> None:
        held = [self.book.take(place) for place in places]
        for lease in held:
            if lease is not None:
                self._waiting.pop(lease.place, None)
        self._partings.release([lease for lease in held if lease is not None])
