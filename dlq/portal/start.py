"""Quick start: the calls that put a job in and take one out, with the tenant's own queue and token filled in."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest, HttpResponse

from dlq.portal.door import Visit
from jobqueue import ownview
from tenants import access
from tenants.members import Right

QUEUE = "default"
PLACEHOLDER = "jp_…"


def start(visit: Visit) -> HttpResponse:
    """Snippets; the token's secret is only on the page that made it."""
    depths = ownview.standing(visit.member.tenant.pk).depths
    queue = depths[0].queue if depths else QUEUE
    context = {
        "snippets": snippets(visit.request, PLACEHOLDER, [queue]),
        "queue": queue,
        "tokens": access.live_tokens(visit.member.tenant) if visit.member.may(Right.MANAGE) else [],
        "new": visit.url("token_new"),
    }
    return visit.page("portal/start.html", context, title="Quick start")


def snippets(request: HttpRequest, token: str, queues: Sequence[str] | None) -> list[tuple[str, str]]:
    """(what it does, a command for a shell)."""
    queue = queues[0] if queues else QUEUE
    base = request.build_absolute_uri("/v1")
    head = f"-H 'Authorization: Bearer {token}' -H 'Content-Type: application/json'"
    return [
        (
            "Put a job in",
            f"curl {base}/jobs {head} \\\n"
            f'  -d \'{{"kind": "hello", "payload": {{"name": "world"}}, "queue": "{queue}", '
            '"request_key": "hello-1"}\'',
        ),
        (
            "Take it out (a worker's call; the answer has its generation and lease_token)",
            f'curl {base}/leases/claim {head} \\\n  -d \'{{"queue": "{queue}", "worker": "w-1"}}\'',
        ),
        (
            "Say that it is done",
            f"curl {base}/jobs/JOB_ID/complete {head} \\\n"
            '  -d \'{"generation": 1, "lease_token": "TOKEN", "result": "done"}\'',
        ),
        ("See how full the queue is, of your jobs", f"curl {base}/queues/{queue}/stats {head}"),
    ]
