"""How long the admin's lists take in the server, on a platform with a long past: p50 and p95 of each page.

    python -m benchmarks.pages --jobs 300000 --dead 50000

It starts a PostgreSQL of its own, fills it by `benchmarks.seed_history`, and asks for each page through Django's test
client, so that middleware, templates and statements count and the network does not. Everything is gone at the end.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.ground import arguments, ground, percentile, run, show
from benchmarks.seed_history import Sizes, seed

REPEATS = 20
ALLOWED_MS = 200.0  # of p95, in the server


def _addresses(jobs: int) -> dict[str, str]:
    [(fingerprint,)] = run("SELECT fingerprint FROM dlq_deadletter LIMIT 1")
    [(dead,)] = run("SELECT job_id FROM dlq_deadletter ORDER BY job_id DESC LIMIT 1")
    [(tenant,)] = run("SELECT id FROM tenants_tenant WHERE slug = 'tenant-0003'")
    bar = "/admin/queue/job/?q="
    at = datetime.now(UTC)
    now, day_ago = (each.strftime("%Y-%m-%dT%H:%M:%SZ") for each in (at, at - timedelta(days=1)))
    found = {
        "home": "/admin/",
        "jobs": "/admin/queue/job/",
        "jobs, an old page": f"/admin/queue/job/?before=0.{jobs // 2}",
        "state:dead": f"{bar}state:dead",
        "state:ready": f"{bar}state:ready",
        "state:succeeded": f"{bar}state:succeeded",
        "state:cancelled": f"{bar}state:cancelled",
        "state:expired (none)": f"{bar}state:expired",
        "tenant": f"{bar}tenant:tenant-0003",
        "tenant, dead": f"{bar}tenant:tenant-0150+state:dead",
        "kind": f"{bar}kind:index",
        "kind that is not there": f"{bar}kind:absent",
        "kind, dead": f"{bar}kind:index+state:dead",
        "key": f"{bar}key:order-{jobs // 2 // 2 * 2 + 1}",
        "key that is not there": f"{bar}key:absent",
        "id": f"{bar}0-{jobs // 2}",
        "error text": f"{bar}error:refused",
        "error text that is not there": f"{bar}error:absent",
        "fingerprint": f"{bar}error:{fingerprint}",
        "age": f"{bar}age:>240h+queue:default",
        "priority": f"{bar}priority:0..1+state:ready",
        "one job": f"/admin/queue/job/0-{dead}/change/",
        "dead letters": "/admin/dlq/deadletter/",
        "groups": "/admin/dlq/deadletter/groups/",
        "groups, a month": "/admin/dlq/deadletter/groups/?span=month",
        "one group": f"/admin/dlq/deadletter/groups/{fingerprint}/",
        "campaigns": "/admin/dlq/campaign/",
        "redrive wizard, report": "/admin/dead-letters/redrive/?reason=exhausted&step=report&frozen=NOW",
        "redrive wizard, correction": "/admin/dead-letters/redrive/?reason=exhausted&step=correction&frozen=NOW"
        "&patch=%7B%22a%22%3A1%7D",
        "queues": "/admin/queues/",
        "one queue": "/admin/queues/default/",
        "tenants": "/admin/tenants/tenant/",
        "one tenant": f"/admin/tenants/tenant/{tenant}/change/",
        "workers": "/admin/processes/",
        "a tenant's own page": "/t/tenant-0003/",
        "a tenant's jobs": "/t/tenant-0003/jobs/",
        "a tenant's dead letters": "/t/tenant-0003/dead/",
        "a tenant's limits": "/t/tenant-0003/limits/",
        "one queue, a day": "/admin/queues/default/?span=day",
        "a tenant's own page, a day": "/t/tenant-0003/?span=day",
        "audit": "/admin/audit/",
        "audit, an actor": "/admin/audit/?actor=user:nobody",
        "API: jobs": "/v1/jobs",
        "API: jobs, a state and kind": "/v1/jobs?state=dead&kind=index",
        "API: jobs, a kind that is not there": "/v1/jobs?kind=absent",
        "API: jobs, a time and priority": f"/v1/jobs?created_before={day_ago}&priority=1",
        "API: jobs, a key": f"/v1/jobs?request_key=order-{jobs // 2 // 2 * 2 + 1}",
        "API: dead letters": "/v1/dlq",
        "API: dead letters, a reason that is not there": "/v1/dlq?reason=poison",
        "API: groups": "/v1/dlq/groups",
    }
    return {name: address.replace("NOW", now) for name, address in found.items()}


def measure(jobs: int) -> list[dict[str, Any]]:
    """p50 and p95 in milliseconds of each page."""
    from django.contrib.auth.models import User
    from django.test import Client

    from tenants import access, members

    _, token = access.create_token(tenant=None, scopes=["read"], name="bench", actor="bench")
    bearer = {"Authorization": f"Bearer {token}"}
    client = Client()
    client.force_login(User.objects.create_superuser("bench", "", "x"))
    members.set_member("tenant-0003", "bench", "admin", actor="bench")
    rows = []
    for name, address in _addresses(jobs).items():
        spans = []
        for _ in range(REPEATS):
            started_at = time.perf_counter()
            response = client.get(address, headers=bearer if address.startswith("/v1/") else None)
            spans.append((time.perf_counter() - started_at) * 1_000)
            assert response.status_code == 200, (address, response.status_code)
        p95 = percentile(spans, 0.95)
        row = {"page": name, "p50 ms": percentile(spans, 0.5), "p95 ms": p95}
        rows.append(row | {f"over {ALLOWED_MS:.0f} ms": "slow" if p95 > ALLOWED_MS else ""})
    return rows


def main() -> None:
    options = arguments(__doc__ or "", jobs=300_000, dead=50_000, ready=50_000, delayed=5_000)
    with ground():
        from django.conf import settings

        settings.ALLOWED_HOSTS = ["*"]
        took = seed(Sizes(options.jobs, options.dead, options.ready, options.delayed))
        print(f"Loaded: {took}", flush=True)
        title = f"Pages over {options.jobs:,} jobs, {options.dead:,} dead letters"
        show(title, measure(options.jobs), options.json)


if __name__ == "__main__":
    main()
