"""Begins a new epoch on a shard that was restored to an earlier moment, or failed over to a standby that was behind.

Such a shard has forgotten what was accepted, handed out and completed since. Its ids would be issued again, and its
generations handed out again: so new ids begin beyond all that can have been issued, and every job that can still be
claimed gets a generation above all that can have been handed out. What workers of the past hold is refused then on.
Run while nothing else uses the shard; a repeat goes further up and harms nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from jobqueue import upkeep
from jobsplatform import database, sql
from jobsplatform.errors import NotFound
from tenants import audit

ID_SEQUENCE: Final = "queue_job_id_seq"
IDS_SKIPPED: Final = 1_000_000_000  # of 2**48 in an id space
GENERATIONS_SKIPPED: Final = (
    1_000_000  # of 2**31; a job that is claimed once a second gets there in eleven days
)
BATCH: Final = 5_000


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a restored shard begins with."""

    leases: int  # of the past, taken back
    jobs: int  # whose generation was raised
    first_id: int


def restored(
    number: int, *, actor: str, reason: str = "", now: datetime | None = None, batch: int = BATCH
) -> Epoch:
    """Let shard `number` go on as a new one: leases back uncharged, generations up, ids beyond. Raises NotFound."""
    alias = database.aliases().get(number)
    if alias is None:
        raise NotFound
    ids = {"sequence": ID_SEQUENCE, "skipped": IDS_SKIPPED}
    (last,) = sql.rows("jobqueue/restored_ids", ids, alias=alias, writes=True)[0]
    leases = _take_back(alias, batch, now)
    jobs = _raise_generations(alias, batch)
    epoch = Epoch(leases, jobs, last + 1)
    details = {"leases": leases, "jobs": jobs, "first_id": epoch.first_id}
    audit.record("shard.restored", f"shard:{number}", actor=actor, reason=reason, details=details)
    return epoch


def _take_back(alias: str, batch: int, now: datetime | None) -> int:
    """Every lease lapses, and is reaped as any other: a cancel that was asked for is kept."""
    count = 0
    params = {"limit": batch, "now": now}
    while lapsed := sql.rows("jobqueue/restored_lapse", params, alias=alias, writes=True)[0][0]:
        count += int(lapsed)
        while sum(upkeep.reap(batch, now=now).values()):
            pass
    while taken := sum(upkeep.reap(batch, now=now).values()):
        count += taken  # they had lapsed before
    return count


def _raise_generations(alias: str, batch: int) -> int:
    count, after_id = 0, 0
    while True:
        params = {"after_id": after_id, "limit": batch, "step": GENERATIONS_SKIPPED}
        raised, last = sql.rows("jobqueue/restored_generations", params, alias=alias, writes=True)[0]
        count += int(raised)
        if last is None:
            return count
        after_id = int(last)
