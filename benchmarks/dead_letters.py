"""The desk over many dead letters: lists, groups, previews, and how long a campaign takes to begin.

    python benchmarks/dead_letters.py --jobs 1000000

It starts a PostgreSQL of its own in a temporary folder, makes one dead letter by the verbs, copies it, and removes all
of it at the end. Times are of one process on the machine as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG_AGO = datetime(2025, 5, 4, tzinfo=UTC)
REPEATS = 20
KINDS = 50
ERRORS = 500


@contextmanager
def platform(folder: Path) -> Iterator[None]:
    """Django on an empty, migrated database."""
    sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
    from jobsplatform.embedded import Server

    server = Server(folder)
    server.ensure_running()
    os.environ.update(DJANGO_SETTINGS_MODULE="jobsplatform.settings", JOBSPLATFORM_DATA=str(folder))
    try:
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield
    finally:
        server.stop()


def bury(count: int) -> None:
    """So many dead letters of one tenant, over `KINDS` lanes and `ERRORS` errors; and a tenant with none."""
    from django.db import connection

    from dlq import quarantine
    from jobqueue import claiming, leases, policies
    from jobqueue.claiming import ClaimRequest
    from jobqueue.enqueue import Accepted, NewJob, enqueue
    from tenants import registry

    tenant = registry.create_tenant("acme", actor="bench")
    registry.create_tenant("globex", actor="bench")
    queue = policies.by_name("default")
    new = [
        NewJob(tenant_id=tenant.pk, queue=queue, kind=f"k{n}", priority=2, payload="{}", max_attempts=1)
        for n in range(KINDS)
    ]
    outcomes = enqueue(new, now=LONG_AGO)
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    held = claiming.claim(ClaimRequest(queues=(queue,), limit=100), now=LONG_AGO)
    calls = [
        leases.Fail(
            job_id=h.job_id, generation=h.generation, token=h.token, error_class="transient", message="boom"
        )
        for h in held
    ]
    leases.fail(calls, now=LONG_AGO)
    prints = [
        quarantine.fingerprint("transient", f"error {chr(97 + n % 26) * (1 + n // 26)}")
        for n in range(ERRORS)
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO queue_job SELECT (j).* FROM (SELECT jsonb_populate_record(j, jsonb_build_object("
            "'id', 1000 + n)) AS j FROM generate_series(1, %s) n JOIN (SELECT j, row_number() OVER () AS r"
            " FROM queue_job j) t ON t.r = 1 + n %% %s) x",
            [count, KINDS],
        )
        cursor.execute(
            "INSERT INTO dlq_deadletter SELECT (d).* FROM (SELECT jsonb_populate_record(t.d, jsonb_build_object("
            "'job_id', 1000 + n, 'failed_at', t.failed_at + n * interval '1 s',"
            " 'fingerprint', (%s::text[])[1 + n %% %s])) AS d"
            " FROM generate_series(1, %s) n JOIN (SELECT d, d.failed_at, row_number() OVER (ORDER BY job_id) AS r"
            " FROM dlq_deadletter d) t(d, failed_at, r) ON t.r = 1 + n %% %s) x",
            [prints, ERRORS, count, KINDS],
        )
        cursor.execute("SELECT setval('queue_job_id_seq', %s)", [count + 2_000])
        cursor.execute("VACUUM ANALYZE")


def timed(action: Callable[[], object], repeats: int = REPEATS) -> dict[str, float]:
    """Milliseconds: the median and the 95th percentile of some calls."""
    spans = []
    for _ in range(repeats):
        started_at = time.perf_counter()
        action()
        spans.append((time.perf_counter() - started_at) * 1_000)
    spans.sort()
    return {
        "median_ms": round(statistics.median(spans), 1),
        "p95_ms": round(spans[int(len(spans) * 0.95) - 1], 1),
    }


def measure() -> dict[str, object]:
    from dlq import campaigns, groups, pacing, reads
    from dlq.campaigns import CampaignFilter, NewCampaign
    from dlq.reads import DeadFilter
    from jobqueue.types import FLEET, Scope
    from tenants.models import Tenant

    acme, globex = (Scope(tenant_id=Tenant.objects.get(slug=slug).pk) for slug in ("acme", "globex"))
    chosen = CampaignFilter(reason="exhausted")

    def listed(wanted: DeadFilter, scope: Scope) -> object:
        return reads.page(wanted, scope=scope, before=None, limit=50)

    found: dict[str, object] = {
        "list, fleet": timed(lambda: listed(DeadFilter(), FLEET)),
        "list, the tenant of all": timed(lambda: listed(DeadFilter(), acme)),
        "list, a tenant with none": timed(lambda: listed(DeadFilter(), globex)),
        "list, one kind": timed(lambda: listed(DeadFilter(kind="k7"), FLEET)),
        "groups, fleet": timed(lambda: groups.page(scope=FLEET, before=None, limit=50)),
        "groups, a tenant": timed(lambda: groups.page(scope=acme, before=None, limit=50)),
        "preview": timed(lambda: campaigns.preview(chosen, scope=FLEET), 3),
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    new = NewCampaign(chosen=chosen, note="bench", actor="bench", rate_per_s=200, canary=0)
    found["begin a campaign"] = timed(lambda: campaigns.create(new, scope=FLEET), 1)
    found["a pass of 50 redrives"] = timed(pacing.advance, 8)
    found["memory grown, KB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, platform(Path(folder)):
        bury(options.jobs)
        print(json.dumps({"dead letters": options.jobs, **measure()}, indent=1))


if __name__ == "__main__":
    main()
