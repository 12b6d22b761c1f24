"""Which scope each route of the API needs: the one table. A test compares it with what is served."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

PRODUCE, WORK, READ, REDRIVE, SCHEDULE, ADMIN = "produce", "work", "read", "redrive", "schedule", "admin"
ALL: Final = frozenset({PRODUCE, WORK, READ, REDRIVE, SCHEDULE, ADMIN})
STOPPED_BY_SUSPENSION: Final = frozenset({PRODUCE, WORK})


@dataclass(frozen=True, slots=True)
class Access:
    """What a call needs: any one of `scopes`; for `include=payload` any one of `with_payload` instead."""

    scopes: frozenset[str] = frozenset()
    with_payload: frozenset[str] = frozenset()
    is_open: bool = False
    is_open_on_loopback: bool = False


def _any_of(*words: str, with_payload: tuple[str, ...] = ()) -> Access:
    return Access(frozenset(words), frozenset(with_payload))


OPEN: Final = Access(is_open=True)
NOBODY: Final = Access()

TABLE: Final[dict[str, Access]] = {
    # anyone
    "GET /livez": OPEN,
    "GET /readyz": OPEN,
    "GET /v1/openapi.yaml": OPEN,
    "GET /metrics": Access(frozenset({READ}), is_open_on_loopback=True),
    # producers
    "POST /v1/jobs": _any_of(PRODUCE),
    "GET /v1/jobs": _any_of(READ),
    "POST /v1/jobs/batch": _any_of(PRODUCE),
    "GET /v1/jobs/{job_id}": _any_of(READ, with_payload=(PRODUCE, REDRIVE)),
    "GET /v1/jobs/{job_id}/attempts": _any_of(READ),
    "GET /v1/jobs/{job_id}/result": _any_of(READ),
    "GET /v1/jobs/{job_id}/why": _any_of(READ),
    "POST /v1/jobs/{job_id}/cancel": _any_of(PRODUCE),
    # workers
    "POST /v1/leases/claim": _any_of(WORK),
    "POST /v1/leases/settle": _any_of(WORK),
    "POST /v1/jobs/{job_id}/renew": _any_of(WORK),
    "POST /v1/jobs/{job_id}/complete": _any_of(WORK),
    "POST /v1/jobs/{job_id}/fail": _any_of(WORK),
    "POST /v1/jobs/{job_id}/release": _any_of(WORK),
    # queues and messages
    "GET /v1/queues": _any_of(READ),
    "GET /v1/queues/{queue}/stats": _any_of(READ),
    "GET /v1/queues/{queue}/scale": _any_of(READ),
    "POST /v1/queues/{queue}/messages": _any_of(PRODUCE),
    "POST /v1/queues/{queue}/receive": _any_of(WORK),
    "POST /v1/queues/{queue}/ack": _any_of(WORK),
    # dead letters
    "GET /v1/dlq": _any_of(READ),
    "GET /v1/dlq/groups": _any_of(READ),
    "POST /v1/dlq/campaigns": _any_of(REDRIVE),
    "GET /v1/dlq/campaigns/{campaign_id}": _any_of(READ, REDRIVE),
    "POST /v1/dlq/campaigns/{campaign_id}/pause": _any_of(REDRIVE),
    "POST /v1/dlq/campaigns/{campaign_id}/resume": _any_of(REDRIVE),
    "POST /v1/dlq/campaigns/{campaign_id}/abort": _any_of(REDRIVE),
    "GET /v1/dlq/{job_id}": _any_of(READ, with_payload=(REDRIVE,)),
    "POST /v1/dlq/{job_id}/corrections": _any_of(REDRIVE),
    "POST /v1/dlq/{job_id}/redrive": _any_of(REDRIVE),
    # schedules
    "GET /v1/schedules": _any_of(SCHEDULE),
    "POST /v1/schedules": _any_of(SCHEDULE),
    "GET /v1/schedules/{schedule_id}": _any_of(SCHEDULE),
    "PATCH /v1/schedules/{schedule_id}": _any_of(SCHEDULE),
    "DELETE /v1/schedules/{schedule_id}": _any_of(SCHEDULE),
    "POST /v1/schedules/{schedule_id}/run-now": _any_of(SCHEDULE),
    "GET /v1/schedules/{schedule_id}/next": _any_of(SCHEDULE),
    "POST /v1/dlq/{job_id}/fork": _any_of(ADMIN),
    # tenant
    "GET /v1/tenant": _any_of(READ),
    "GET /v1/tokens": _any_of(ADMIN),
    "POST /v1/tokens": _any_of(ADMIN),
    "POST /v1/tokens/{token_id}/rotate": _any_of(ADMIN),
    "DELETE /v1/tokens/{token_id}": _any_of(ADMIN),
}


@cache
def access(method: str, django_route: str) -> Access:
    """The row of a route as Django spells it (`v1/jobs/<str:job_id>`); a missing row admits nobody."""
    return TABLE.get(f"{method} /{path_of(django_route)}", NOBODY)


def path_of(django_route: str) -> str:
    """A route in the spelling of the contract: `v1/jobs/{job_id}`."""
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", django_route)
