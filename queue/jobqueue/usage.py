"""How much of the platform a tenant uses now: counts over all shards, never further than a bound.

`unknown` gets the shards that do not answer; without it they are an error.
"""

from __future__ import annotations

from typing import Final

from jobqueue import policies
from jobsplatform import everywhere, sql
from jobsplatform.errors import NotFound

COUNT_MAX: Final = 100_000  # per shard and count: about 20 ms of index reading


def running(
    tenant_id: int, *, queue: str = "", band: int | None = None, unknown: list[int] | None = None
) -> int:
    """Jobs of the tenant that hold a lease (in one queue, in one band)."""
    return _count("jobqueue/running_count", tenant_id, queue, band, unknown)


def waiting(
    tenant_id: int, *, queue: str = "", band: int | None = None, unknown: list[int] | None = None
) -> int:
    """Jobs of the tenant that are ready or scheduled (in one queue, in one band)."""
    return _count("jobqueue/waiting_count", tenant_id, queue, band, unknown)


def _count(statement: str, tenant_id: int, queue: str, band: int | None, unknown: list[int] | None) -> int:
    try:
        queue_id = policies.by_name(queue).id if queue else None
    except NotFound:
        return 0
    params = {"tenant_id": tenant_id, "queue_id": queue_id, "priority": band, "bound": COUNT_MAX}
    return sum(everywhere.ask(lambda alias: int(sql.rows(statement, params, alias=alias)[0][0]), unknown))
