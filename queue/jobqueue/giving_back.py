"""Names leases that their holder should give back: nobody has started them, and more urgent work waits.

Without it urgent work could wait behind a worker's whole buffer of bulk that it has claimed and not begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, Protocol

from jobsplatform import sql
from jobsplatform.errors import JobsPlatformError

VISIBLE_SECONDS: Final = 0.1  # as long waiting consumers have the first try


class Renewing(Protocol):
    """A renewal as its holder asks for it; `started` False: the job has not begun."""

    @property
    def job_id(self) -> int: ...
    @property
    def started(self) -> bool: ...


def named(renewed: Sequence[Renewing], *, alias: str, now: datetime | None = None) -> frozenset[int]:
    """Job ids among the renewed ones whose lease should come back. Work that has begun never does.

    A look more for those alone who hold what they have not started; a failure costs a hint and no renewal.
    """
    unstarted = [call.job_id for call in renewed if not call.started]
    if unstarted:
        params = {"job_ids": unstarted, "visible_s": VISIBLE_SECONDS, "now": now}
        with suppress(JobsPlatformError):
            return frozenset(row[0] for row in sql.rows("jobqueue/give_back", params, alias=alias))
    return frozenset()
