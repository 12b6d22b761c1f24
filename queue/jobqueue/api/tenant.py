"""What a tenant may use and what it uses."""

from __future__ import annotations

from jobqueue import usage
from jobqueue.api.wire import Members
from jobqueue.schedules import reads as schedules
from jobsplatform import everywhere
from jobsplatform.http import Call, Endpoint, Reply
from jobsplatform.schemas import NUMBER, NUMBER_OR_NULL, PARTIAL, TEXT, TEXT_OR_NULL, TRUTH, described
from tenants.models import Quota
from tenants.registry import LIMITS

QUOTA = described(
    "QuotaLimit",
    {
        "queue": TEXT_OR_NULL,
        "band": NUMBER_OR_NULL,
        "limit": TEXT,
        "value": {"type": "number"},
        "used": NUMBER_OR_NULL,
    },
)
USAGE = described("Usage", {"running": NUMBER, "waiting": NUMBER})
COUNTED = {"max_running": usage.running, "max_depth": usage.waiting}


class ShowTenant(Endpoint):
    """The tenant, its limits and its usage; a limit that is not listed is none."""

    needs_tenant = True
    replies = {
        200: described(
            "Tenant",
            {
                "slug": TEXT,
                "suspended": TRUTH,
                "quotas": {"type": "array", "items": QUOTA},
                "usage": USAGE,
                **PARTIAL,
            },
        )
    }

    def act(self, call: Call) -> Reply:
        assert call.tenant is not None
        tenant, unknown = call.tenant, list[int]()
        quotas = Quota.objects.filter(tenant_id=tenant.id).order_by("queue", "band")
        members = {
            "slug": tenant.slug,
            "suspended": tenant.is_suspended,
            "quotas": [limit for quota in quotas for limit in limits(quota, unknown)],
            "usage": {
                "running": usage.running(tenant.id, unknown=unknown),
                "waiting": usage.waiting(tenant.id, unknown=unknown),
            },
        }
        members |= everywhere.mark(unknown)
        return Reply(200, members)


def limits(quota: Quota, unknown: list[int]) -> list[Members]:
    """One member each for the limits that a row sets; `unknown` gets the shards whose use of them is missing."""
    found: list[Members] = []
    for name in LIMITS:
        value = getattr(quota, name)
        if value is None:
            continue
        used = None
        if (count := COUNTED.get(name)) is not None:
            used = count(quota.tenant_id, queue=quota.queue, band=quota.band, unknown=unknown)
        elif name == "max_schedules":
            used = schedules.count(quota.tenant_id, queue=quota.queue, band=quota.band)
        found.append(
            {"queue": quota.queue or None, "band": quota.band, "limit": name, "value": value, "used": used}
        )
    return found
