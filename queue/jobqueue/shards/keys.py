"""Request keys on their way: they go with their slot, their jobs stay. A moved key outlives its job, and no longer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from jobqueue.shard_models import Ring
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, Unavailable

BATCH_ROWS: Final = 10_000  # request keys that one statement looks at
MOVED_LIMIT: Final = 1_000  # moved keys that one pass asks about

_COLUMNS: Final = (
    "tenant_ids",
    "queue_ids",
    "namespaces",
    "keys",
    "job_ids",
    "fingerprints",
    "accepted_ats",
    "job_purged_ats",
)


def horizon(alias: str) -> tuple[int, int]:
    """The oldest transaction that runs, and the next one's id."""
    oldest, following = sql.rows("jobqueue/slot_horizon", {}, alias=alias)[0]
    return oldest, following


def copy(
    ring: Ring,
    slots: Sequence[int],
    source: int,
    target: int,
    *,
    spaces: Sequence[int],
    since: int | None,
    tenant_id: int | None = None,
) -> int:
    """Copy the keys of `slots` from shard to shard; with `since` those alone that younger transactions wrote;
    with `tenant_id` that tenant's alone.

    Returns how many. Repeating it does no harm. Raises Unavailable.
    """
    aliases = database.aliases()
    params: dict[str, Any] = {
        "slots": list(slots),
        "queue_id": ring.queue_id,
        "tenant_id": ring.tenant_id if tenant_id is None else tenant_id,
        "other_queues": _queues_of_others(ring),
        "other_tenants": _tenants_of_others(ring),
        "limit": BATCH_ROWS,
        "since": since,
    }
    copied, above = 0, 0
    while rows := sql.rows("jobqueue/slot_keys", params | {"above": above}, alias=aliases[source]):
        above = max(row[0] for row in rows)
        found = [row[1:] for row in rows if row[1] is not None]
        if found:
            columns = dict(zip(_COLUMNS, map(list, zip(*found, strict=True)), strict=True))
            more = {"spaces": list(spaces), "ring_id": ring.pk, "version": ring.version}
            if not sql.rows("jobqueue/slot_put_keys", columns | more, alias=aliases[target], writes=True):
                raise Unavailable("The slots have moved on meanwhile.")
        copied += len(found)
    return copied


def _queues_of_others(ring: Ring) -> list[int]:
    """Queues whose keys are another ring's."""
    if ring.queue_id is not None:
        return []
    return list(Ring.objects.exclude(queue=None).values_list("queue_id", flat=True))


def _tenants_of_others(ring: Ring) -> list[int]:
    if ring.queue_id is not None or ring.tenant_id is not None:
        return []
    return list(Ring.objects.exclude(tenant=None).values_list("tenant_id", flat=True))


# Upkeep

_looked_to: dict[str, int] = {}  # where the next pass goes on, on each shard


def date_moved(limit: int = MOVED_LIMIT, now: datetime | None = None) -> int:
    """Let moved keys end whose job is gone on its own shard. Returns how many; shards that are away are left."""
    dated = 0
    for alias in database.aliases().values():
        try:
            dated += _date_on(alias, limit, now)
        except JobsPlatformError:
            continue
    return dated


def _date_on(alias: str, limit: int, now: datetime | None) -> int:
    above = _looked_to.get(alias, 0)
    rows = sql.rows("jobqueue/moved_keys", {"above": above, "limit": limit}, alias=alias)
    _looked_to[alias] = rows[-1][0] if len(rows) == limit else 0
    gone: list[tuple[int, int]] = []
    homes = {job_id: database.alias_of(job_id) for _, job_id in rows}
    for home in set(homes.values()) - {None}:
        here = [(key, job_id) for key, job_id in rows if homes[job_id] == home]
        try:
            asked = {"job_ids": [job_id for _, job_id in here]}
            present = {row[0] for row in sql.rows("jobqueue/jobs_present", asked, alias=str(home))}
        except JobsPlatformError:
            continue
        gone += [(key, job_id) for key, job_id in here if job_id not in present]
    if not gone:
        return 0
    params = {"ids": [key for key, _ in gone], "job_ids": [job_id for _, job_id in gone], "now": now}
    return int(sql.rows("jobqueue/moved_keys_date", params, alias=alias, writes=True)[0][0])
