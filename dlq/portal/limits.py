"""A tenant's limits, with their use and a warning from 80 % on. They are set by the platform's operators."""

from __future__ import annotations

from django.http import HttpResponse

from dlq.portal.door import Visit
from jobqueue import quotas, usage


def limits(visit: Visit) -> HttpResponse:
    """Each limit with its gauge; and what is used where no limit is."""
    tenant_id = visit.member.tenant.pk
    lines = quotas.lines(tenant_id)
    context = {
        "lines": lines,
        "near": [line for line in lines if line.is_near],
        "running": usage.running(tenant_id),
        "waiting": usage.waiting(tenant_id),
        "queue_full": quotas.turned_away_by_queues(tenant_id),
    }
    return visit.page("portal/limits.html", context, title="Limits")
