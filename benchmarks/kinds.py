"""What registered kinds cost an enqueue: batches of 100 jobs of 1 KB, each variant in turn, medians of the rounds.

Run as `python benchmarks/kinds.py [rounds]` in a checkout whose platform's database runs; it works in a database of
its own. "without the look" is the statement as if there were no registry.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
INSIDE = "--inside"
BATCH = 100
PAYLOAD = json.dumps({"to": "a@example.org", "pad": "x" * 980})
SCHEMA = {
    "type": "object",
    "required": ["to"],
    "properties": {"to": {"type": "string", "pattern": "@", "maxLength": 320}, "pad": {"type": "string"}},
    "additionalProperties": False,
}
LOOK = b"LEFT JOIN queue_kindrow k ON k.kind = l.kind"
NO_LOOK = b"""CROSS JOIN (SELECT NULL::text AS payload_schema, NULL::text AS dependency, NULL::bigint AS version,
    NULL::smallint AS max_attempts) k"""


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsplatform.settings")
    django.setup()
    rounds = next((int(word) for word in sys.argv[1:] if word.isdecimal()), 100)
    if INSIDE in sys.argv:
        measure(rounds)
        return
    from django.conf import settings

    from jobqueue import bench

    with bench.scratch_database(f"jobsplatform_kinds_{os.getpid()}") as url:
        environment = os.environ | {
            "JOBSPLATFORM_DATABASE_URL": url,
            "JOBSPLATFORM_SHARDS": "",
            "JOBSPLATFORM_SECRET_KEY": settings.SECRET_KEY,
            "JOBSPLATFORM_TOKEN_PEPPER": settings.TOKEN_PEPPER.decode(),
        }
        subprocess.run([sys.executable, __file__, INSIDE, str(rounds)], env=environment, check=True)


def measure(rounds: int) -> None:
    from django.core.management import call_command

    from jobqueue import kinds, policies
    from jobqueue.enqueue import Accepted, NewJob, enqueue
    from jobqueue.payloads import Checker
    from jobsplatform import sql
    from tenants import registry

    call_command("migrate", verbosity=0, interactive=False)
    tenant = registry.create_tenant("bench", actor="bench")
    queue = policies.create_queue("bench", actor="bench")
    kinds.change("checked", {"payload_schema": SCHEMA}, actor="bench")
    kinds.change("defaults", {"max_attempts": 3}, actor="bench")
    text = sql.text

    def store(kind: str) -> None:
        job = NewJob(tenant_id=tenant.pk, queue=queue, kind=kind, priority=2, payload=PAYLOAD)
        assert all(isinstance(outcome, Accepted) for outcome in enqueue([job] * BATCH))

    def store_without_look() -> None:
        without = text("jobqueue/enqueue").replace(LOOK, NO_LOOK)
        sql.text = lambda name: without if name == "jobqueue/enqueue" else text(name)  # type: ignore[assignment]
        try:
            store("plain")
        finally:
            sql.text = text

    variants: dict[str, Callable[[], None]] = {
        "without the look": store_without_look,
        "kind not registered": lambda: store("plain"),
        "registered, defaults": lambda: store("defaults"),
        "registered, schema": lambda: store("checked"),
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    for round_ in range(rounds + 5):
        for name, action in variants.items():
            began = time.perf_counter()
            action()
            if round_ >= 5:
                times[name].append(time.perf_counter() - began)
    for name, seconds in times.items():
        print(f"{name:24} {statistics.median(seconds) * 1e6 / BATCH:8.1f} µs a job")
    checker = Checker(SCHEMA)
    began = time.perf_counter()
    for _ in range(10_000):
        checker.refusal(PAYLOAD)
    print(f"{'one check (1 KB)':24} {(time.perf_counter() - began) * 100:8.1f} µs")


if __name__ == "__main__":
    main()
