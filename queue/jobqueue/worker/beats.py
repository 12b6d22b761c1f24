"""Renewing: all due leases of all executors in one statement, and what the answers mean for whom."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from jobqueue import leases
from jobqueue.worker.channel import Word, pack_notes
from jobqueue.worker.clerks import Answer, Clerks
from jobqueue.worker.leasebook import HeldLease, LeaseBook
from jobqueue.worker.verbs import answers_of, must_repeat
from jobsplatform import events
from jobsplatform.errors import JobsPlatformError, MaxRuntime

if TYPE_CHECKING:
    from jobqueue.worker.verbs import Verbs

BATCH_MAX = 500


class Holder(Protocol):
    """Whoever holds leases: an executor, or the ward."""

    @property
    def book(self) -> LeaseBook: ...

    def tell(self, word: Word, body: bytes) -> None: ...


class Beats:
    """Owned by the keeper's thread; the clerks do the talking."""

    def __init__(self, verbs: Verbs, clerks: Clerks, worker: str) -> None:
        self._verbs = verbs
        self._clerks = clerks
        self._worker = worker
        self._holders: dict[LeaseBook, Holder] = {}
        self._was_away = False

    def send(self, holders: Iterable[Holder], now: float) -> None:
        """Renew what is due, and mark what has begun."""
        self._holders = {holder.book: holder for holder in holders}
        due = [lease for book in self._holders for lease in book.due(now)]
        for at in range(0, len(due), BATCH_MAX):
            batch = due[at : at + BATCH_MAX]
            calls = [lease.call(now) for lease in batch]
            self._clerks.submit(partial(self._verbs.renew, calls), partial(self._take, batch, calls))

    def report_ends(self, holder: Holder, now: float) -> None:
        """Tell a holder which leases ended unrenewed, and which are about to reach their longest run."""
        ending = holder.book.ending(now)
        if ending:
            holder.tell(Word.ENDING, pack_notes([lease.note for lease in ending]))
        lapsed = holder.book.lapsed(now)
        for lease in lapsed:
            events.emit("lease_lost", job_id=lease.job_id, generation=lease.generation, code="lapsed")
        if lapsed:
            holder.tell(Word.LOST, pack_notes([lease.note for lease in lapsed]))

    def _take(self, batch: list[HeldLease], calls: list[leases.Renew], answer: Answer) -> None:
        now = time.monotonic()
        self._note_whether_away(answer)
        said: dict[tuple[LeaseBook, Word], list[HeldLease]] = {}
        for lease, call, one in zip(batch, calls, answers_of(answer, len(batch)), strict=True):
            for word in self._words(lease, call, one, now):
                said.setdefault((lease.book, word), []).append(lease)
            lease.book.expect(lease, now)
        for (book, word), about in said.items():
            if book in self._holders:
                self._holders[book].tell(word, pack_notes([lease.note for lease in about]))

    def _words(self, lease: HeldLease, call: leases.Renew, answer: object, now: float) -> list[Word]:
        """Note the answer in the book; what the holder must be told."""
        if isinstance(answer, leases.Renewed):
            lease.renewed(call, answer.expires_at.timestamp(), now)
            words = [Word.GIVE_BACK] if answer.give_back else []
            if answer.cancel_requested and not lease.is_cancel_told:
                lease.is_cancel_told = True
                words.append(Word.CANCELLED)
            return words
        if isinstance(answer, MaxRuntime):
            lease.capped(now)
            return []
        if must_repeat(answer) or not isinstance(answer, JobsPlatformError):
            lease.failed(now)
            return []
        if not lease.book.lose(lease):
            return []  # settled meanwhile
        events.emit("lease_lost", job_id=lease.job_id, generation=lease.generation, code=answer.code)
        return [Word.LOST]

    def _note_whether_away(self, answer: Answer) -> None:
        """One event an outage, not one a try."""
        is_away = isinstance(answer, Exception)
        if is_away and not self._was_away:
            events.emit("database_lost", worker=self._worker, error=repr(answer)[:500])
        self._was_away = is_away
