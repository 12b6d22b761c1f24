"""Measures how late schedules fire: many at one instant, and while dispatchers are killed.

    python benchmarks/schedules.py [--schedules 10000] [--dispatchers 3] [--seconds 30]

Runs on a PostgreSQL of its own in a temporary folder (fsync on), with `manage.py rundispatcher` processes, and removes
everything at the end. A tick is the dispatcher's interval, half a second.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
TICK_SECONDS = 0.5
LEAD_SECONDS = 10  # for the dispatchers to start
KILL_SECONDS = 5
WAIT_SECONDS_MAX = 120


def main() -> None:
    """Parse, prepare, measure, clean up."""
    parser = argparse.ArgumentParser(description="How late schedules fire.")
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--dispatchers", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30, help="of killing dispatchers")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="schedules-"))
    try:
        with_server(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def with_server(folder: Path, options: argparse.Namespace) -> None:
    """Start a server of one's own, and stop it again."""
    os.environ.update(DJANGO_SETTINGS_MODULE="jobsplatform.settings", JOBSPLATFORM_DATA=str(folder))
    os.environ.update(JOBSPLATFORM_DATABASE_URL="", JOBSPLATFORM_SHARDS="", JOBSPLATFORM_LOG_LEVEL="WARNING")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), str(ROOT / "queue"), os.environ.get("PYTHONPATH", "")]
    )
    from jobsplatform.embedded import Server

    server = Server(folder)
    server.ensure_running()
    try:
        prepare()
        at_one_instant(options.schedules, options.dispatchers)
        under_kills(options.seconds, options.dispatchers)
    finally:
        from django.db import connections

        connections.close_all()
        server.stop()


def prepare() -> None:
    """Tables, a tenant, and a lane that is known."""
    import django

    django.setup()
    from django.core.management import call_command

    from jobqueue import policies
    from tenants import registry

    call_command("migrate", verbosity=0)
    registry.create_tenant("bench", actor="bench")
    policies.push_by_name("default")


def make(instants: Sequence[datetime]) -> list[int]:
    """Schedules in register and shard that stand before these instants, and then before the first of next January."""
    from jobqueue import policies
    from jobqueue.schedule_models import Schedule, ScheduleRow
    from tenants.models import Tenant

    tenant, queue = Tenant.objects.get(slug="bench"), policies.by_name("default")
    shared = {
        "kind": "noop",
        "cron": "0 0 1 1 *",
        "timezone": "Europe/Berlin",
        "payload": "null",
        "priority": 2,
    }
    told = {**shared, "missed": "one", "overlap": "allow", "is_enabled": True, "version": 1}
    made = Schedule.objects.bulk_create(
        [
            Schedule(tenant=tenant, queue_id=queue.id, name=f"s{n}", shard=0, **told)
            for n in range(len(instants))
        ],
        batch_size=1_000,
    )
    rows = [
        ScheduleRow(schedule_id=row.pk, tenant_id=tenant.pk, queue_id=queue.id, next_at=at, due_at=at, **told)
        for row, at in zip(made, instants, strict=True)
    ]
    ScheduleRow.objects.bulk_create(rows, batch_size=1_000)
    return [row.pk for row in made]


def at_one_instant(count: int, dispatchers: int) -> None:
    """`count` schedules fire at the same instant."""
    ids = make([clock() + timedelta(days=1)] * count)
    running = [start() for _ in range(dispatchers)]
    time.sleep(LEAD_SECONDS)
    instant = clock() + timedelta(seconds=1)
    stand(ids, instant)
    wait_for(ids, instant)
    took = (clock() - instant).total_seconds()
    end(running)
    print(
        f"{count:,} schedules at one instant, {dispatchers} dispatchers: all jobs committed after {took:.2f} s"
    )
    tell(ids, count)


def under_kills(seconds: int, dispatchers: int) -> None:
    """Four fires a second while every few seconds a dispatcher is killed and another started."""
    begin = clock() + timedelta(seconds=LEAD_SECONDS)
    instants = [begin + timedelta(seconds=quarter / 4) for quarter in range(4 * seconds)]
    ids = make(instants)
    running = [start() for _ in range(dispatchers)]
    kills = 0
    while clock() < instants[-1]:
        time.sleep(KILL_SECONDS)
        if clock() > begin:
            victim = running.pop(random.randrange(len(running)))
            victim.kill()
            victim.wait()
            running.append(start())
            kills += 1
    wait_for(ids, instants[-1])
    end(running)
    print(f"{len(ids)} fires in {seconds} s, {dispatchers} dispatchers, {kills} of them killed with SIGKILL:")
    tell(ids, len(ids))


def stand(ids: list[int], at: datetime) -> None:
    from jobqueue.schedule_models import ScheduleRow

    ScheduleRow.objects.filter(schedule_id__in=ids).update(next_at=at, due_at=at)


def wait_for(ids: list[int], since: datetime) -> None:
    """Until each schedule has fired."""
    from jobqueue.schedule_models import ScheduleFire

    limit = time.monotonic() + WAIT_SECONDS_MAX
    while ScheduleFire.objects.filter(schedule_id__in=ids).count() < len(ids):
        if time.monotonic() > limit:
            raise SystemExit("not all schedules fired")
        time.sleep(0.05)


def tell(ids: list[int], expected: int) -> None:
    """How many jobs there are, and how late they were made."""
    from jobqueue.schedule_models import ScheduleFire

    fires = list(ScheduleFire.objects.filter(schedule_id__in=ids))
    late = sorted((fire.fired_at - fire.nominal_at).total_seconds() for fire in fires)
    jobs = {fire.job_id for fire in fires}
    print(f"  fires {len(fires)}, jobs {len(jobs)}, doubles {len(fires) - expected}")
    shown = ", ".join(f"{name} {late[int(share * (len(late) - 1))]:.2f} s" for name, share in PERCENTILES)
    print(f"  late: {shown}; in ticks at most {late[-1] / TICK_SECONDS:.1f}")


PERCENTILES = (("median", 0.5), ("p99", 0.99), ("most", 1.0))


def clock() -> datetime:
    """The database's."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        at: datetime = cursor.fetchone()[0]
    return at


def start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "rundispatcher"], stderr=subprocess.DEVNULL
    )


def end(running: list[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.terminate()
    for process in running:
        process.wait(30)


if __name__ == "__main__":
    main()
