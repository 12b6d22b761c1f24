"""What the keeper knows of one executor's leases: when each must be renewed, and which have been started.

Pure bookkeeping on the monotonic clock: no database, no sockets. Ends are reckoned from before the claim was
sent, so a lease is never believed to live longer than the database says.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence

from jobqueue import leases
from jobqueue.worker.backoff import Backoff
from jobqueue.worker.board import RUNNING, WAITING
from jobqueue.worker.channel import Held, Note

BEATS_PER_LEASE = 3  # two beats may fail before a lease lapses
SPREAD = 0.05  # of the interval, each way, so that beats do not bunch; with EARLY at most 10 %
EARLY = 0.05  # of the interval: what is due so soon goes along in the same statement
MARK_S = 0.02  # a job that has run for so long is marked as started
RETRY_FIRST_S, RETRY_CAP_S = 0.05, 2.0


class HeldLease:
    """One lease. Instants are monotonic seconds, but `claimed_at`: the database's epoch."""

    __slots__ = (
        "book",
        "claimed_at",
        "due_at",
        "ends_at",
        "generation",
        "is_cancel_told",
        "is_capped",
        "is_end_told",
        "is_started",
        "job_id",
        "lease_s",
        "place",
        "retry",
        "seen_at",
        "sent_at",
        "taken_at",
        "token",
    )

    def __init__(self, book: LeaseBook, held: Held, taken_at: float, spread: float) -> None:
        self.book = book
        self.place, self.job_id, self.generation, self.token, self.claimed_at, self.lease_s = held
        self.taken_at = taken_at
        self.ends_at = taken_at + self.lease_s
        self.due_at = taken_at + self.lease_s / BEATS_PER_LEASE * spread
        self.seen_at = math.inf  # when it was first seen running
        self.is_started = False  # the database knows
        self.sent_at = -math.inf  # when the renewal was sent that has no answer yet
        self.is_capped = False  # max_run_s allows no longer lease; beats go on for what they may hear
        self.is_cancel_told = self.is_end_told = False
        self.retry: Backoff | None = None

    @property
    def interval_s(self) -> float:
        return self.lease_s / BEATS_PER_LEASE

    @property
    def note(self) -> Note:
        return Note(self.place, self.job_id, self.generation)

    def is_waiting(self, now: float) -> bool:
        """A renewal is under way; one that is silent for a whole interval counts as lost."""
        return now - self.sent_at < self.interval_s

    def call(self, now: float) -> leases.Renew:
        """The renewal to send now."""
        self.sent_at = now
        started = self.book.states[self.place] != WAITING
        lease_s = 1 if self.is_capped else None
        return leases.Renew(self.job_id, self.generation, self.token, lease_s, None, started)

    def renewed(self, call: leases.Renew, expires_at: float, now: float) -> None:
        """The database (epoch `expires_at`) extended it."""
        self.sent_at = -math.inf
        self.retry = None
        self.is_started = self.is_started or call.started
        self.ends_at = self.taken_at + (expires_at - self.claimed_at)
        self.due_at = now + self.interval_s * random.uniform(1 - SPREAD, 1 + SPREAD)

    def failed(self, now: float) -> None:
        """No answer: again soon."""
        self.sent_at = -math.inf
        self.retry = self.retry or Backoff(first_s=RETRY_FIRST_S, cap_s=min(RETRY_CAP_S, self.interval_s))
        self.due_at = now + self.retry.fail()

    def capped(self, now: float) -> None:
        """It may live to its end, but never longer."""
        self.sent_at = -math.inf
        self.is_capped = True
        self.due_at = now + self.interval_s


class LeaseBook:
    """The leases of one executor, by place."""

    def __init__(self, states: memoryview) -> None:
        self.states = states
        self._by_place: dict[int, HeldLease] = {}
        self._due_at = math.inf
        self._mark_at = math.inf
        self.overruns: dict[int, float] = {}  # places whose handler runs past its longest run, and since when

    def __len__(self) -> int:
        return len(self._by_place)

    def __iter__(self) -> Iterator[HeldLease]:
        return iter(self._by_place.values())

    @property
    def next_at(self) -> float:
        """When `due` may have something next."""
        return min(self._due_at, self._mark_at)

    def add(self, taken_at: float, held: Sequence[Held], now: float) -> None:
        spread = random.uniform(
            1 - SPREAD, 1 + SPREAD
        )  # leases of one claim go on together, in one statement
        for one in held:
            lease = HeldLease(self, one, taken_at, spread)
            self._by_place[lease.place] = lease
            if lease.due_at < self._due_at:
                self._due_at = lease.due_at
        if self.overruns:
            self._forget_overruns(one.place for one in held)
        self._mark_at = min(self._mark_at, now + MARK_S)

    def adopt(self, lease: HeldLease, place: int, now: float) -> None:
        """Take over a lease of another book at this place, with its end and the renewal that is under way."""
        lease.book, lease.place = self, place
        self.overruns.pop(place, None)
        self._by_place[place] = lease
        self._due_at = min(self._due_at, lease.due_at)
        self._mark_at = min(self._mark_at, now + MARK_S)

    def drop(self, places: Sequence[int]) -> None:
        for place in places:
            self._by_place.pop(place, None)
        if self.overruns:
            self._forget_overruns(places)

    def _forget_overruns(self, places: Iterable[int]) -> None:
        """These places are free, or another's."""
        for place in places:
            self.overruns.pop(place, None)

    def take(self, place: int) -> HeldLease | None:
        """Take one lease out of the book."""
        return self._by_place.pop(place, None)

    def lose(self, lease: HeldLease) -> bool:
        """Forget this lease; False when its place has long been another's."""
        if self._by_place.get(lease.place) is not lease:
            return False
        del self._by_place[lease.place]
        self._note_overrun(lease, time.monotonic())
        return True

    def due(self, now: float) -> list[HeldLease]:
        """Leases to renew now: for their time, or to mark them as started."""
        due: dict[int, HeldLease] = {}
        if now >= self._mark_at:
            due.update((lease.place, lease) for lease in self._unmarked(now))
        if now >= self._due_at:
            for lease in self._by_place.values():
                if lease.due_at <= now + EARLY * lease.interval_s and not lease.is_waiting(now):
                    due[lease.place] = lease
            self._due_at = min((self._next(one, now) for one in self._by_place.values()), default=math.inf)
        return list(due.values())

    def _next(self, lease: HeldLease, now: float) -> float:
        """When a lease must be looked at that is being renewed now, or is due later."""
        return max(lease.due_at, lease.sent_at + lease.interval_s, now + MARK_S)

    def expect(self, lease: HeldLease, now: float) -> None:
        """The lease's due time has changed."""
        self._due_at = min(self._due_at, lease.due_at)
        if not lease.is_started:
            self._mark_at = min(self._mark_at, now + MARK_S)

    def lapsed(self, now: float) -> list[HeldLease]:
        """Leases whose end has passed unrenewed, taken out of the book."""
        gone = [lease for lease in self._by_place.values() if lease.ends_at <= now]
        self.drop([lease.place for lease in gone])
        for lease in gone:
            self._note_overrun(lease, now)
        return gone

    def _note_overrun(self, lease: HeldLease, now: float) -> None:
        """Its lease is over. If that was its longest run, its handler has no business to go on."""
        if lease.is_capped and self.states[lease.place] == RUNNING:
            self.overruns[lease.place] = now

    def ending(self, now: float) -> list[HeldLease]:
        """Leases that are about to reach their longest run, each told once, an interval before."""
        found = [
            lease
            for lease in self._by_place.values()
            if lease.is_capped and not lease.is_end_told and now >= lease.ends_at - lease.interval_s
        ]
        for lease in found:
            lease.is_end_told = True
        return found

    def take_all(self) -> tuple[list[HeldLease], list[HeldLease]]:
        """Empty the book: the leases whose handler runs at this instant, and the others."""
        running: list[HeldLease] = []
        resting: list[HeldLease] = []
        for lease in self._by_place.values():
            (running if self.states[lease.place] == RUNNING else resting).append(lease)
        self._by_place.clear()
        self.overruns.clear()
        return running, resting

    def _unmarked(self, now: float) -> list[HeldLease]:
        """Leases that run for 20 ms and are not known as started; plans the next look."""
        ripe = []
        self._mark_at = math.inf
        for lease in self._by_place.values():
            if lease.is_started or lease.is_waiting(now):
                continue
            self._mark_at = now + MARK_S
            if self.states[lease.place] != RUNNING:
                continue
            if lease.seen_at <= now - MARK_S / 2:
                ripe.append(lease)
            lease.seen_at = min(lease.seen_at, now)
        return ripe
