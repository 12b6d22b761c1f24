"""A tenant's first page: what waits and for how long, what was done lately, what it was entitled to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpResponse

from dlq.portal.door import Visit
from jobqueue import depth_charts, depths, ownview, quotas
from jobqueue.ownview import COURSE_SECONDS, STEP_SECONDS, Step
from jobsplatform.frame import Chart, Fragment, Line


def overview(visit: Visit) -> HttpResponse:
    """Depths and ages now and over time, course, fair share, and limits that are nearly used up."""
    tenant_id = visit.member.tenant.pk

    def now() -> dict[str, Any]:
        standing = ownview.standing(tenant_id)
        deepest = max((depth.ready for depth in standing.depths), default=0)
        return {
            "standing": standing,
            "rows": [(depth, depth.ready / deepest if deepest else None) for depth in standing.depths],
            "near": [line for line in quotas.lines(tenant_id) if line.is_near],
            "limits_url": visit.url("limits"),
            "jobs_url": visit.url("jobs"),
        }

    def lately() -> dict[str, Any]:
        steps = ownview.course(tenant_id)
        return {
            "chart": _chart(steps),
            "started": sum(step.started for step in steps),
            "succeeded": sum(step.succeeded for step in steps),
            "failed": sum(step.failed for step in steps),
            "dead": sum(step.dead for step in steps),
            "service_s": sum(step.service_ms for step in steps) / 1_000,
            "shares": ownview.fair_shares(tenant_id),
            "hours": COURSE_SECONDS // 3_600,
        }

    span = depths.span_of(visit.request.GET.get("span"))
    fragments = {
        "now": Fragment("portal/part/now.html", now),
        "depths": depth_charts.fragment(lambda: depths.of_tenant(tenant_id, span)),
        "lately": Fragment("portal/part/lately.html", lately, every_s=30),
    }
    return visit.live_page("portal/overview.html", fragments, {}, title=visit.member.tenant.slug)


def _chart(steps: list[Step]) -> Chart:
    """The course, with a zero where nothing happened."""
    if not steps:
        return Chart("course", "Jobs in ten minutes", [], [])
    by_at = {step.at: step for step in steps}
    count = min(
        int((steps[-1].at - steps[0].at).total_seconds()) // STEP_SECONDS + 1,
        COURSE_SECONDS // STEP_SECONDS + 1,
    )
    instants = [steps[0].at + timedelta(seconds=STEP_SECONDS * place) for place in range(count)]
    found = [by_at.get(at) for at in instants]
    lines = [
        Line(name, [float(getattr(step, name)) if step else 0.0 for step in found])
        for name in ("started", "succeeded", "failed", "dead")
    ]
    return Chart(
        "course", "Jobs in ten minutes", [int(at.timestamp()) for at in instants], lines, unit="jobs"
    )
