"""Threads of an executor that only urgent work may use: `runworker --reserve P0:2`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from jobsplatform.errors import JobsPlatformError

if TYPE_CHECKING:
    from jobqueue.claiming import Lease
    from jobqueue.worker.verbs import Verbs


class Slots(NamedTuple):
    """How many threads of each executor are kept for a band (its name or index) and those more urgent."""

    band: str
    threads: int

    @classmethod
    def parse(cls, text: str) -> Slots:
        """From `BAND:N`. Raises ValueError."""
        band, _, count = text.rpartition(":")
        if not band or not (count.isascii() and count.isdecimal()):
            raise ValueError(f"{text!r} is not of the form BAND:N")
        return cls(band, int(count))


class Reserve:
    """Splits what an executor claims: urgent work for the threads kept, any work for the others.

    With threads kept nothing is claimed beyond the free ones: a buffer of other work would come to run on them.
    """

    def __init__(self, verbs: Verbs, concurrency: int, kept: int) -> None:
        self._verbs, self._concurrency, self._kept = verbs, concurrency, kept
        self._urgent: set[int] = set()  # jobs held that came by a claim for the threads kept

    def claim(self, want: int, held: Iterable[int]) -> list[Lease]:
        """Up to `want` leases, while those of the jobs `held` are held."""
        if not self._kept:
            return self._verbs.claim(want)
        jobs = set(held)
        self._urgent &= jobs
        others = len(jobs) - len(self._urgent)
        first = self._claim_urgent(min(want, self._kept - len(self._urgent)))
        room = min(want - len(first), self._concurrency - self._kept - others)
        if room <= 0:
            return first
        try:
            return first + self._verbs.claim(room)
        except JobsPlatformError:
            if not first:
                raise
            return first  # these leases are made: an error would lose them to their expiry

    def _claim_urgent(self, limit: int) -> list[Lease]:
        claimed = self._verbs.claim_urgent(limit) if limit > 0 else []
        self._urgent.update(lease.job_id for lease in claimed)
        return claimed
