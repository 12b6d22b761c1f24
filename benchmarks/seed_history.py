"""A platform with a long past: millions of finished jobs, dead letters, a backlog, and an audit, loaded by COPY.

    python -m benchmarks.seed_history --jobs 10000000 --dead 1000000

It fills the platform that the settings name (`JOBSPLATFORM_DATA`, or a database's URL), which must be migrated and
empty of jobs; `benchmarks.pages` uses it on a platform of its own. Rows are as the verbs would leave them: `fsck` finds
no fault in them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TENANTS: Final = 200
KINDS: Final = ("mail.send", "report", "resize", "sync", "index")
ERRORS: Final = 40
DAYS: Final = 30  # that the past is long
MEANWHILE: Final = timedelta(milliseconds=120)  # from acceptance to claim


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many jobs: `jobs` in all, of them `dead`, waiting and delayed; and audit entries of dead letters' past."""

    jobs: int
    dead: int
    ready: int
    delayed: int


def seed(sizes: Sizes, *, now: datetime | None = None) -> dict[str, float]:
    """Load it all; how many seconds each part took."""
    random.seed(17)
    at = now or datetime.now(UTC)
    took: dict[str, float] = {}
    started = time.monotonic()
    lanes = _lanes(at)
    took["tenants and lanes"] = time.monotonic() - started
    for name, load in (("jobs", _jobs), ("places", _places), ("attempts", _attempts)):
        started = time.monotonic()
        load(sizes, lanes, at)
        took[name] = time.monotonic() - started
    started = time.monotonic()
    samples(at)
    took["samples"] = time.monotonic() - started
    started = time.monotonic()
    _settle(sizes)
    took["vacuum and analyse"] = time.monotonic() - started
    return {name: round(seconds, 1) for name, seconds in took.items()}


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane that jobs are dealt to."""

    id: int
    tenant_id: int
    queue_id: int
    priority: int
    kind: str


def _lanes(at: datetime) -> list[Lane]:
    """Tenants by the verb, and a lane for each of their kinds."""
    from benchmarks.ground import run
    from jobqueue import policies
    from tenants import registry
    from tenants.models import Tenant

    slugs = [f"tenant-{number:04}" for number in range(TENANTS)]
    for slug in slugs:
        if not Tenant.objects.filter(slug=slug).exists():
            registry.create_tenant(slug, actor="bench")
    ids = list(Tenant.objects.filter(slug__in=slugs).values_list("pk", flat=True))
    queue = policies.by_name("default")
    rows = run(
        """INSERT INTO queue_lane (queue_id, priority, tenant_id, kind, dependency, is_active, low)
           SELECT %s, p, t, k, '', true, 'epoch'
           FROM unnest(%s::bigint[]) t CROSS JOIN generate_series(0, 4) p CROSS JOIN unnest(%s::text[]) k
           ON CONFLICT DO NOTHING RETURNING id, tenant_id, queue_id, priority, kind""",
        [queue.id, ids, list(KINDS)],
    )
    return [Lane(*row) for row in rows]


def _dealt(lanes: Sequence[Lane], number: int) -> Lane:
    """The lane of a job: some tenants have much, most have little."""
    spread = (number * 2_654_435_761) % 4_294_967_296 / 4_294_967_296
    return lanes[int(spread * spread * spread * len(lanes))]


def _accepted_at(sizes: Sizes, number: int, at: datetime) -> datetime:
    return at - timedelta(days=DAYS) * (1 - number / sizes.jobs)


# Which of the numbers is what: the newest wait, dead letters lie all over the past.


def _state(sizes: Sizes, number: int) -> str:
    waiting = sizes.ready + sizes.delayed
    if number > sizes.jobs - waiting:
        return "ready" if number <= sizes.jobs - sizes.delayed else "scheduled"
    step = max((sizes.jobs - waiting) // max(sizes.dead, 1), 1)
    if number % step == 0 and number // step <= sizes.dead:
        return "dead"
    return "cancelled" if number % 997 == 0 else "succeeded"


def _numbers(sizes: Sizes, *states: str) -> Iterator[int]:
    return (number for number in range(1, sizes.jobs + 1) if _state(sizes, number) in states)


def _jobs(sizes: Sizes, lanes: Sequence[Lane], at: datetime) -> None:
    payload = json.dumps({"to": "a@example.org", "text": "x" * 60})

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(1, sizes.jobs + 1):
            lane = _dealt(lanes, number)
            key = f"order-{number}" if number % 2 else None
            made = _accepted_at(sizes, number, at)
            yield (number, lane.tenant_id, lane.queue_id, lane.priority, 3, made, lane.kind, payload, key)

    columns = "id, tenant_id, queue_id, priority, max_attempts, created_at, kind, payload, request_key"
    _copy("queue_job", columns, rows())
    keyed = hashlib.sha256(b"bench").digest()

    def keys() -> Iterator[tuple[Any, ...]]:
        for number in range(1, sizes.jobs + 1, 2):
            lane = _dealt(lanes, number)
            made = _accepted_at(sizes, number, at)
            yield (lane.tenant_id, lane.queue_id, 0, f"order-{number}", number, keyed, made)

    _copy("queue_requestkey", "tenant_id, queue_id, namespace, key, job_id, fingerprint, accepted_at", keys())


def _places(sizes: Sizes, lanes: Sequence[Lane], at: datetime) -> None:
    from dlq import quarantine

    result = '"done"'
    hashed = hashlib.sha256(result.encode()).digest()

    def finished() -> Iterator[tuple[Any, ...]]:
        for number in _numbers(sizes, "succeeded", "cancelled"):
            state = _state(sizes, number)
            ended = _accepted_at(sizes, number, at) + 2 * MEANWHILE
            is_done = state == "succeeded"
            tried = int(is_done)
            told = (hashed, result) if is_done else (None, None)
            yield (number, tried, tried, 0, 0, False, ended, state, *told)

    _copy(
        "queue_result",
        "job_id, generation, attempt, crashes, redrive_generation, late, finished_at, outcome, payload_hash, body",
        finished(),
    )
    messages = [f"connection to host {chr(97 + n % 26) * (1 + n // 26)} refused" for n in range(ERRORS)]
    prints = [quarantine.fingerprint("transient", message) for message in messages]

    def dead() -> Iterator[tuple[Any, ...]]:
        for number in _numbers(sizes, "dead"):
            made = _accepted_at(sizes, number, at)
            error = number // 7 % ERRORS
            yield (
                *(number, _dealt(lanes, number).id, made, 3, 0, 3, 3, 0, 0, 0, 0, False),
                *("exhausted", made + 3 * MEANWHILE, "transient", messages[error], prints[error]),
            )

    ticket = (
        "job_id, lane_id, first_ready_at, generation, releases, attempt, max_attempts, crashes, lapses,"
        " payload_version, redrive_generation, reconcile"
    )
    _copy("dlq_deadletter", f"{ticket}, reason, failed_at, error_class, message, fingerprint", dead())

    def waiting(state: str) -> Iterator[tuple[Any, ...]]:
        for number in _numbers(sizes, state):
            made = _accepted_at(sizes, number, at)
            lane = _dealt(lanes, number).id
            kept = (0, 0, 0, 3, 0, 0, 0, 0, False)
            if state == "ready":
                yield (number, lane, made, *kept, made, True)
            else:
                yield (number, lane, None, *kept, at + timedelta(hours=1 + number % 48), "delayed")

    _copy("queue_readyjob", f"{ticket}, position, fresh", waiting("ready"))
    _copy("queue_scheduledjob", f"{ticket}, due_at, reason", waiting("scheduled"))


def _attempts(sizes: Sizes, lanes: Sequence[Lane], at: datetime) -> None:
    token = secrets.token_bytes(16)

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in _numbers(sizes, "succeeded", "dead"):
            made = _accepted_at(sizes, number, at)
            is_done = _state(sizes, number) == "succeeded"
            for tried in range(1, 2 if is_done else 4):
                began = made + tried * MEANWHILE - MEANWHILE / 2
                led = "succeeded" if is_done else "dead" if tried == 3 else "scheduled"
                error = None if is_done else "connection refused"
                yield (
                    *(
                        number,
                        tried,
                        tried,
                        0,
                        token,
                        f"w-{number % 20}",
                        began,
                        began + MEANWHILE / 2,
                        60,
                        0,
                    ),
                    *(
                        "share",
                        "succeeded" if is_done else "failed",
                        led,
                        None if is_done else "transient",
                        error,
                    ),
                )

    _copy(
        "queue_attempt",
        "job_id, generation, attempt, redrive_generation, token_hash, worker, claimed_at, ended_at, service_ms,"
        " policy_version, chosen, outcome, led_to, error_class, message",
        rows(),
    )


def samples(at: datetime) -> None:
    """A day in which every tenant waited in every band, as the dispatcher samples it."""
    from benchmarks.ground import run
    from jobqueue import policies
    from tenants.models import Tenant

    ids = [0, *Tenant.objects.filter(slug__startswith="tenant-").values_list("pk", flat=True)]
    minutes = "generate_series(%s::timestamptz - interval '24 hours', %s::timestamptz, interval '1 minute')"
    begun = at.replace(second=0, microsecond=0)
    run(
        "INSERT INTO queue_depthround (minute, lane_id, is_over, looked_at)"
        f" SELECT m, 1, true, m FROM {minutes} m",
        [begun, begun],
    )
    run(
        "INSERT INTO queue_depthminute (minute, tenant_id, queue_id, priority, is_capped, age_s, ready)"
        " SELECT m, t, %s, p, false, 60, 10"
        f" FROM {minutes} m CROSS JOIN unnest(%s::bigint[]) t CROSS JOIN generate_series(0, 4) p",
        [policies.by_name("default").id, begun, begun, ids],
    )


def _copy(table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Load rows into a table of the shard."""
    from django.db import connections

    from benchmarks.ground import alias

    wrapper = connections[alias()]
    wrapper.ensure_connection()
    with wrapper.connection.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _settle(sizes: Sizes) -> None:
    """Sequences behind what was loaded, statistics, and what index-only reads need."""
    from benchmarks.ground import run

    run("SELECT setval('queue_job_id_seq', %s)", [sizes.jobs + 1])
    run("VACUUM ANALYZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000_000)
    parser.add_argument("--dead", type=int, default=1_000_000)
    parser.add_argument("--ready", type=int, default=100_000)
    parser.add_argument("--delayed", type=int, default=20_000)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsplatform.settings")
    import django

    django.setup()
    print(json.dumps(seed(Sizes(options.jobs, options.dead, options.ready, options.delayed)), indent=1))


if __name__ == "__main__":
    main()
