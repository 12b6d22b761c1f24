"""Whether a tenant may put more work in: sizes and depth against its quotas. Without a Quota row there is no limit.

Depth is judged by a bounded count of what waits. Requests that run at the same instant may pass it together; the
limit on running jobs, which the claim keeps under its lock, is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from jobsplatform.errors import JobsPlatformError, QuotaExceeded
from tenants.models import Quota

RETRY_AFTER_SECONDS: Final = 5


class Ask(NamedTuple):
    """One job that a tenant wants to put in."""

    queue: str
    band: int
    payload_bytes: int


class Limit(NamedTuple):
    """The limits of one scope: `queue` "" is every queue, `band` None every band."""

    queue: str
    band: int | None
    max_depth: int | None
    max_payload_bytes: int | None

    def covers(self, ask: Ask) -> bool:
        return self.queue in ("", ask.queue) and self.band in (None, ask.band)


# How many jobs of a tenant wait in (queue, band), counted no further than the bound.
CountWaiting = Callable[[str, int | None, int], int]


def limits(tenant_id: int) -> tuple[Limit, ...]:
    """The tenant's limits on intake, read afresh: only tenants that have some are asked for."""
    rows = Quota.objects.filter(tenant_id=tenant_id).values_list(
        "queue", "band", "max_depth", "max_payload_bytes"
    )
    return tuple(
        limit
        for limit in map(Limit._make, rows)
        if (limit.max_depth, limit.max_payload_bytes) != (None, None)
    )


def refusals(
    tenant_id: int, asks: Sequence[Ask], count_waiting: CountWaiting
) -> list[JobsPlatformError | None]:
    """For each ask, why it must not come in (None: it may). Asks of one call count against each other."""
    bounds = limits(tenant_id)
    if not bounds:
        return [None] * len(asks)
    room = {
        limit: max(0, limit.max_depth - count_waiting(limit.queue, limit.band, limit.max_depth))
        for limit in bounds
        if limit.max_depth is not None
    }
    return [_refusal(ask, bounds, room) for ask in asks]


def _refusal(ask: Ask, bounds: Iterable[Limit], room: dict[Limit, int]) -> JobsPlatformError | None:
    covering = [limit for limit in bounds if limit.covers(ask)]
    for limit in covering:
        if limit.max_payload_bytes is not None and ask.payload_bytes > limit.max_payload_bytes:
            return QuotaExceeded(
                f"The tenant's payloads may have {limit.max_payload_bytes} bytes.",
                retry_after=RETRY_AFTER_SECONDS,
            )
    counted = [limit for limit in covering if limit in room]
    if any(room[limit] <= 0 for limit in counted):
        return QuotaExceeded(
            "As many jobs wait as the tenant's quota allows.", retry_after=RETRY_AFTER_SECONDS
        )
    for limit in counted:
        room[limit] -= 1
    return None
