"""What measurements stand on: a PostgreSQL of their own, queues filled by the hundred thousand, percentiles, tables.

Everything is on loopback, in a temporary folder, and gone at the end. fsync is on. The machine drifts more than most
changes weigh: cases are measured in turns, and only figures of one run compare.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
KIND: Final = "bench.noop"
PAYLOAD: Final = "{}"  # short: a claim reads payloads after its commit


def environment(folder: Path) -> dict[str, str]:
    """The environment of this process without the platform's knobs, and with a state of its own in `folder`."""
    kept = {"JOBSPLATFORM_PG_BIN"}
    clean = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("JOBSPLATFORM_", "JOBS_"))
    }
    return clean | {
        "DJANGO_SETTINGS_MODULE": "jobsplatform.settings",
        "JOBSPLATFORM_DATA": str(folder),
        "JOBSPLATFORM_LOG_LEVEL": "WARNING",
    }


@contextmanager
def ground() -> Iterator[None]:
    """Django on an empty, migrated platform in a temporary folder."""
    sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
    from jobsplatform.embedded import Server

    with tempfile.TemporaryDirectory(prefix="jobsplatform-bench-") as name:
        folder = Path(name)
        wanted = environment(folder) | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'queue'}"}
        os.environ.clear()
        os.environ.update(wanted)
        server = Server(folder)
        server.ensure_running()
        try:
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0, interactive=False)
            yield
        finally:
            server.stop()


# Filling


def alias() -> str:
    """The database alias of the shard."""
    from jobsplatform import database

    return next(iter(database.aliases().values()))


def run(statement: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """One statement on the shard; its rows."""
    from django.db import connections

    with connections[alias()].cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall()) if cursor.description else []


def fill(queue_name: str, tenant_ids: Sequence[int], jobs: int, *, priority: int = 2, age_s: int = 0) -> None:
    """Make `jobs` of each tenant ready, first come first served, `age_s` seconds ago: copies of an enqueued one."""
    from jobqueue import policies
    from jobqueue.enqueue import NewJob, enqueue
    from jobqueue.models import Job, ReadyJob

    queue = policies.by_name(queue_name)
    [made] = enqueue(
        [NewJob(tenant_id=tenant_ids[0], queue=queue, kind=KIND, priority=priority, payload=PAYLOAD)]
    )
    job_id: int = made.job_id  # type: ignore[union-attr]
    ids = list(tenant_ids)
    run(
        """INSERT INTO queue_lane (queue_id, priority, tenant_id, kind, dependency, is_active, low)
           SELECT %s, %s, t, %s, '', true, 'epoch' FROM unnest(%s::bigint[]) t ON CONFLICT DO NOTHING""",
        [queue.id, priority, KIND, ids],
    )
    job = ", ".join(_columns(Job, {"id", "tenant_id"}))
    ready = ", ".join(_columns(ReadyJob, {"job_id", "lane_id", "position", "first_ready_at"}))
    place = f"clock_timestamp() - {int(age_s)} * interval '1 s' + n * interval '1 us'"
    run(
        f"""WITH wanted AS MATERIALIZED (
                    SELECT nextval('queue_job_id_seq') AS id, t, n
                    FROM generate_series(1, %s) n CROSS JOIN unnest(%s::bigint[]) t
                    WHERE NOT (n = 1 AND t = %s)  -- that one is there
                ),
                made AS (
                    INSERT INTO queue_job (id, tenant_id, {job})
                    SELECT w.id, w.t, s.* FROM wanted w CROSS JOIN (SELECT {job} FROM queue_job WHERE id = %s) s
                )
            INSERT INTO queue_readyjob (job_id, lane_id, position, first_ready_at, {ready})
            SELECT w.id, l.id, {place}, {place}, s.*
            FROM wanted w CROSS JOIN (SELECT {ready} FROM queue_readyjob WHERE job_id = %s) s
            JOIN queue_lane l ON l.tenant_id = w.t AND l.queue_id = %s AND l.priority = %s AND l.kind = %s""",
        [jobs, ids, ids[0], job_id, job_id, queue.id, priority, KIND],
    )


def _columns(model: Any, own: set[str]) -> list[str]:
    return [field.column for field in model._meta.concrete_fields if field.column not in own]


# Showing


def arguments(description: str, **options: int) -> argparse.Namespace:
    """`--json FILE` and these whole numbers, with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default:,}")
    return parser.parse_args()


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(title: str, rows: Sequence[dict[str, Any]], json_file: Path | None) -> None:
    """Print a table in Markdown with the machine above it; write it as JSON too if asked."""
    print(f"{title} — {machine()}\n")
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |")
    print("|" + " --- |" * len(columns))
    for row in rows:
        print("| " + " | ".join(_cell(row[name]) for name in columns) + " |")
    print(flush=True)
    if json_file is not None:
        known = json.loads(json_file.read_text()) if json_file.exists() else {}
        known[title] = {"machine": machine(), "rows": rows}
        json_file.write_text(json.dumps(known, indent=1) + "\n")


def _cell(value: object) -> str:
    return (
        f"{value:,.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def machine() -> str:
    """Cores, load and versions."""
    import psycopg

    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}, psycopg {psycopg.__version__}"
