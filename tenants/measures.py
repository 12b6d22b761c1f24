"""What was used of a tenant's limits, and what they turned away: over the last day and over all shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from jobsplatform import database, sql
from tenants.admission import ALL_BANDS

DAY_SECONDS: Final = 24 * 3_600


class Place(NamedTuple):
    """Where a limit holds; `queue` empty: over all queues, `band` None: over all bands."""

    queue: str
    band: int | None


class Peak(NamedTuple):
    """The most that was seen at once, by samples of one a minute."""

    running: int
    waiting: int


def peaks(tenant_id: int, *, now: datetime | None = None) -> dict[Place, Peak]:
    """The peak of each limit in the last day; a limit that nobody has counted yet is missing.

    Over several shards the peaks of each are added: they need not have been at the same instant.
    """
    found: dict[Place, Peak] = {}
    for queue, band, running, waiting in _rows("tenants/peaks", tenant_id, now):
        place = _place(queue, band)
        held = found.get(place, Peak(0, 0))
        found[place] = Peak(held.running + running, held.waiting + waiting)
    return found


def refusals(
    tenant_id: int, *, seconds: int = DAY_SECONDS, now: datetime | None = None
) -> Counter[tuple[Place, str]]:
    """How many jobs each limit turned away lately (a day), by place and name of the limit."""
    found: Counter[tuple[Place, str]] = Counter()
    for queue, band, cause, jobs in _rows("tenants/refusals", tenant_id, now, seconds):
        found[_place(queue, band), cause] += jobs
    return found


def _place(queue: str, band: int) -> Place:
    return Place(queue, None if band == ALL_BANDS else band)


def _rows(
    statement: str, tenant_id: int, now: datetime | None, seconds: int = DAY_SECONDS
) -> Iterable[sql.Row]:
    params = {"tenant_id": tenant_id, "since_s": seconds, "now": now}
    for alias in database.aliases().values():
        yield from sql.rows(statement, params, alias=alias)
