"""Does throughput survive what breaks other queues: an old snapshot, a dump, deep backlogs, growth, tenants, a past?

One process claims, completes and enqueues as much again, a hundred at a time, over connections and prepared plans that
it keeps throughout, with dispatcher and reaper beside it. It is measured in windows: first free, then under the
condition. Each condition has a server of its own; only ratios are judged.

The full form: `python -m benchmarks.horizon --held 600 --windows 10` (about fifty minutes).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import ground
from benchmarks.peers import page, tables
from benchmarks.peers.tables import Verdict

QUEUE: Final = "bench"
TENANT: Final = 1_000_000
WARM_S: Final = 2.0
KEPT_LEAST: Final = 0.5  # of the throughput without the condition
DECLINE_LEAST: Final = 0.85  # the last third of the windows under it, against the first third
PAST_DAYS: Final = 25  # fewer than jobs are kept
LOADED_AT_ONCE: Final = 500_000  # finished jobs
P50_MOST, P99_MOST = 1.5, 3.0  # claims, against those without it
COLUMNS: Final = {
    "free": "jobs/s, free",
    "under": "jobs/s, under it",
    "first": "its first third",
    "last": "its last third",
    "free_p50": "claim p50 ms, free",
    "under_p50": "p50 under it",
    "free_p99": "claim p99 ms, free",
    "under_p99": "p99 under it",
}


@dataclass(slots=True)
class Window:
    """What was done in some seconds: jobs through their whole life, and how long each claim took."""

    jobs: int = 0
    seconds: float = 0.0
    claims_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds


@dataclass(frozen=True, slots=True)
class Asked:
    """`seconds` a window; `windows` free and under each condition; `held_s` a snapshot; the others count jobs."""

    seconds: float = 6.0
    windows: int = 6
    held_s: float = 60.0
    batch: int = 100
    standing: int = 5_000
    backlog: int = 2_000_000
    growth: int = 1_000_000
    scheduled: int = 1_000_000
    tenants: int = 10_000
    finished: int = 10_000_000
    dumped: int = 300_000


def main() -> None:
    wanted, options = _arguments()
    if options.inside:
        with ground.ground(), _upkeep():
            found, verdicts = CONDITIONS[options.inside](wanted)
        print(json.dumps([found, [asdict(verdict) for verdict in verdicts]]))
        return
    rows: dict[str, dict[str, float]] = {}
    claims: list[Verdict] = []
    for name in options.conditions:
        command = [sys.executable, "-m", "benchmarks.horizon", *sys.argv[1:], "--inside", name]
        child = subprocess.run(command, cwd=ground.ROOT, stdout=subprocess.PIPE, text=True, check=True)
        found, told = json.loads(child.stdout.splitlines()[-1])
        rows |= found
        new = [Verdict(**one) for one in told]
        claims += new
        print("\n".join(map(str, new)), file=sys.stderr, flush=True)
    text = f"{ground.machine()}\n\n{tables.table(rows, COLUMNS, 'condition')}\n\n"
    text += "\n".join(f"- {claim}" for claim in claims)
    print(text)
    if options.json:
        told = [{"claim": one.claim, "ratio": one.ratio, "is_kept": one.is_kept} for one in claims]
        options.json.write_text(json.dumps({"rows": rows, "verdicts": told}, indent=1) + "\n")
    if options.write:
        how = "python -m benchmarks.horizon " + " ".join(sys.argv[1:])
        page.replace("horizon", f"`{how}`\n\n{text}")
    sys.exit(0 if all(claim.is_kept for claim in claims) else 1)


# Judging: pure


def summed(free: Sequence[Window], under: Sequence[Window]) -> dict[str, float]:
    """The row of a table: medians over windows; percentiles over all claims."""
    third = max(1, len(under) // 3)
    row = {
        "free": median(one.rate for one in free),
        "under": median(one.rate for one in under),
        "first": median(one.rate for one in under[:third]),
        "last": median(one.rate for one in under[-third:]),
    }
    for name, windows in (("free", free), ("under", under)):
        claims = [ms for one in windows for ms in one.claims_ms]
        row |= {f"{name}_p50": ground.percentile(claims, 0.5), f"{name}_p99": ground.percentile(claims, 0.99)}
    return row


def judged(title: str, row: Mapping[str, float], *, declines: bool = True) -> list[Verdict]:
    """Throughput kept, no further decline, claims not much slower."""
    found = [Verdict(f"{title}: throughput", row["under"] / row["free"], KEPT_LEAST)]
    if declines:
        found.append(Verdict(f"{title}: last third against first", row["last"] / row["first"], DECLINE_LEAST))
    found.append(
        Verdict(f"{title}: claim p50", row["under_p50"] / row["free_p50"], P50_MOST, less_is_better=True)
    )
    found.append(
        Verdict(f"{title}: claim p99", row["under_p99"] / row["free_p99"], P99_MOST, less_is_better=True)
    )
    return found


# Conditions: each gives rows and verdicts

COUNTS: Final = ("backlog", "growth", "scheduled", "tenants", "finished", "dumped")  # flags: how many of each
Found = tuple[dict[str, dict[str, float]], list[Verdict]]


def held(asked: Asked) -> Found:
    """Another session keeps one snapshot over all of it."""
    load = Load(asked, [TENANT])
    free = load.windows(asked.windows, asked.seconds)
    with _snapshot():
        under = load.windows(asked.windows, asked.held_s / asked.windows)
    title = f"snapshot held for {asked.held_s:,.0f} s"
    row = summed(free, under)
    claims = judged(title, row)
    return {title: row}, [claim for claim in claims if not claim.claim.endswith("p50")]


def dump(asked: Asked) -> Found:
    """pg_dump of the whole database, again and again, with many jobs standing in another queue."""
    load = Load(asked, [TENANT])
    _other_queue(asked.dumped)
    free = load.windows(asked.windows, asked.seconds)
    with _dumping() as dumps:
        under = load.windows(asked.windows, asked.seconds)
    title = f"under pg_dump ({len(dumps)} of {asked.dumped:,} jobs)"
    row = summed(free, under)
    return {title: row}, judged(title, row, declines=False)[:1]


def backlog(asked: Asked) -> Found:
    """The same queue with so many ready."""
    load = Load(asked, [TENANT])
    return load.before_and_after(
        f"{asked.backlog:,} ready", lambda: ground.fill(QUEUE, [TENANT], asked.backlog)
    )


def growth(asked: Asked) -> Found:
    """Plans that were made while the table was all but empty, as it grows. Nobody but autovacuum analyses it."""
    load = Load(asked, [TENANT])
    free = load.windows(asked.windows, asked.seconds)
    rows, claims, there = {}, [], 0
    for ready in (asked.growth // 100, asked.growth // 10, asked.growth):
        ground.fill(QUEUE, [TENANT], ready - there)
        there = ready
        title = f"grown to {ready:,} ready"
        rows[title] = summed(free, load.windows(max(2, asked.windows // 2), asked.seconds))
        claims += judged(title, rows[title], declines=False)
    return rows, claims


def scheduled(asked: Asked) -> Found:
    """The same queue with so many more that are due in ten days."""
    load = Load(asked, [TENANT])
    return load.before_and_after(f"{asked.scheduled:,} scheduled", lambda: _schedule(asked.scheduled))


def tenants(asked: Asked) -> Found:
    """Work of so many tenants, a few jobs each, in place of one tenant's."""
    load = Load(asked, [TENANT])

    def spread() -> None:
        load.tenants = [TENANT + 1 + number for number in range(asked.tenants)]
        ground.fill(QUEUE, load.tenants, 10)

    return load.before_and_after(f"{asked.tenants:,} tenants", spread)


def finished(asked: Asked) -> Found:
    """A past of so many jobs that are done: their intents, attempts and results are kept."""
    load = Load(asked, [TENANT])
    return load.before_and_after(f"{asked.finished:,} finished", lambda: _finish(asked.finished))


CONDITIONS: Final[Mapping[str, Callable[[Asked], Found]]] = {
    "held": held,
    "growth": growth,
    "backlog": backlog,
    "scheduled": scheduled,
    "tenants": tenants,
    "finished": finished,
    "dump": dump,
}


# The load


class Load:
    """Claims, completes and enqueues as much again, over connections that it keeps."""

    def __init__(self, asked: Asked, tenant_ids: list[int]) -> None:
        from jobqueue import policies
        from jobqueue.claiming import ClaimRequest

        self.asked, self.tenants, self.place = asked, tenant_ids, 0
        self.queue = policies.create_queue(QUEUE, actor="bench")
        self.request = ClaimRequest(
            queues=(self.queue,), kinds=(ground.KIND,), limit=asked.batch, worker="bench"
        )
        for _ in range(0, asked.standing, asked.batch):
            self._enqueue(asked.batch)
        self.window(WARM_S)

    def before_and_after(self, title: str, change: Callable[[], None]) -> Found:
        free = self.windows(self.asked.windows, self.asked.seconds)
        change()
        row = summed(free, self.windows(self.asked.windows, self.asked.seconds))
        return {title: row}, judged(title, row, declines=False)

    def windows(self, count: int, seconds: float) -> list[Window]:
        return [self.window(seconds) for _ in range(count)]

    def window(self, seconds: float) -> Window:
        from jobqueue import claiming, leases

        done, start = Window(), time.perf_counter()
        while (now := time.perf_counter()) < start + seconds:
            leased = claiming.claim(self.request)
            done.claims_ms.append((time.perf_counter() - now) * 1_000)
            if len(leased) != self.asked.batch:
                raise RuntimeError(f"A claim gave {len(leased)} of {self.asked.batch}.")
            answers = leases.complete(
                [leases.Complete(one.job_id, one.generation, one.token) for one in leased]
            )
            done.jobs += sum(isinstance(answer, leases.Completed) for answer in answers)
            self._enqueue(len(leased))
        done.seconds = time.perf_counter() - start
        return done

    def _enqueue(self, count: int) -> None:
        from jobqueue.enqueue import NewJob, enqueue

        new = []
        for _ in range(count):
            tenant_id = self.tenants[self.place % len(self.tenants)]
            self.place += 1
            new.append(
                NewJob(
                    tenant_id=tenant_id,
                    queue=self.queue,
                    kind=ground.KIND,
                    priority=2,
                    payload=ground.PAYLOAD,
                )
            )
        enqueue(new)


@contextmanager
def _upkeep() -> Iterator[None]:
    """Dispatcher and reaper, as a platform has them."""
    commands = [[sys.executable, "manage.py", name] for name in ("rundispatcher", "runreaper")]
    children = [subprocess.Popen(command, cwd=ground.ROOT, stdout=subprocess.DEVNULL) for command in commands]
    time.sleep(WARM_S)
    try:
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(60)


@contextmanager
def _snapshot() -> Iterator[None]:
    from django.db import connections

    session = connections[ground.alias()].copy()
    try:
        with session.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT count(*) FROM queue_queue")  # from here on it keeps what it has seen
        yield
        with session.cursor() as cursor:
            cursor.execute("ROLLBACK")
    finally:
        session.close()


@contextmanager
def _dumping() -> Iterator[list[float]]:
    """Dumps until it is over; the seconds of each that was whole."""

    from jobsplatform.embedded import Server
    from jobsplatform.embedded.binaries import find_binaries

    url = Server(Path(os.environ["JOBSPLATFORM_DATA"])).url()
    command = [str(find_binaries() / "pg_dump"), "--format=custom", url]
    dumps: list[float] = []
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            dumps.append(time.perf_counter() - start)

    with ThreadPoolExecutor(1) as pool:
        dumping = pool.submit(run)
        try:
            yield dumps
        finally:
            over.set()
        dumping.result()  # a dump that failed measured nothing


def _other_queue(jobs: int) -> None:
    from jobqueue import policies

    policies.create_queue("standing", actor="bench")
    ground.fill("standing", [TENANT], jobs)


def _schedule(jobs: int) -> None:
    """Copies of one job that is due in ten days."""
    from jobqueue import policies
    from jobqueue.enqueue import NewJob, enqueue
    from jobqueue.models import Job, ScheduledJob

    [made] = enqueue(
        [
            NewJob(
                tenant_id=TENANT,
                queue=policies.by_name(QUEUE),
                kind=ground.KIND,
                priority=2,
                payload=ground.PAYLOAD,
                delay_s=864_000,
            )
        ]
    )
    job_id: int = made.job_id  # type: ignore[union-attr]
    job = ", ".join(ground._columns(Job, {"id"}))
    row = ", ".join(ground._columns(ScheduledJob, {"job_id"}))
    ground.run(
        f"""WITH wanted AS MATERIALIZED (SELECT nextval('queue_job_id_seq') AS id FROM generate_series(2, %s)),
                made AS (INSERT INTO queue_job (id, {job})
                         SELECT w.id, s.* FROM wanted w CROSS JOIN (SELECT {job} FROM queue_job WHERE id = %s) s)
            INSERT INTO queue_scheduledjob (job_id, {row})
            SELECT w.id, s.*
            FROM wanted w CROSS JOIN (SELECT {row} FROM queue_scheduledjob WHERE job_id = %s) s""",
        [jobs, job_id, job_id],
    )


def _finish(jobs: int) -> None:
    """Copies of one job that is done, as if as many a second had ended over the last weeks; then what autovacuum would
    have done meanwhile.
    """
    from jobqueue.models import Attempt, Job, Result

    [(job_id,)] = ground.run("SELECT job_id FROM queue_result LIMIT 1")
    at = f"(clock_timestamp() - {PAST_DAYS} * interval '1 day' * (1 - w.n::float / {jobs}))"
    parts = []
    for model, key, times in (
        (Job, "id", {"created_at"}),
        (Attempt, "job_id", {"claimed_at", "ended_at"}),
        (Result, "job_id", {"finished_at"}),
    ):
        columns = ground._columns(model, {key, *times})
        shown = ", ".join([key, *times, *columns])
        values = ", ".join(["w.id", *(at for _ in times), *(f"s.{name}" for name in columns)])
        parts.append(
            f"INSERT INTO {model._meta.db_table} ({shown})"
            f" SELECT {values} FROM wanted w CROSS JOIN {model._meta.db_table} s WHERE s.{key} = %s"
        )
    for first in range(0, jobs, LOADED_AT_ONCE):
        last = min(first + LOADED_AT_ONCE, jobs)
        ground.run(
            f"""WITH wanted AS MATERIALIZED (
                        SELECT nextval('queue_job_id_seq') AS id, n FROM generate_series(%s::int, %s::int) n
                    ),
                    job AS ({parts[0]}),
                    attempt AS ({parts[1]})
                {parts[2]}""",
            [first + 1, last, job_id, job_id, job_id],
        )
    ground.run("VACUUM ANALYZE queue_job, queue_attempt, queue_result")
    ground.run("CHECKPOINT")


def _arguments() -> tuple[Asked, Any]:
    parser = argparse.ArgumentParser(
        prog="benchmarks.horizon", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    base = Asked()
    parser.add_argument(
        "--conditions",
        type=page.names(CONDITIONS),
        default=list(CONDITIONS),
        help=f"of: {', '.join(CONDITIONS)}",
    )
    parser.add_argument("--seconds", type=float, default=base.seconds, help=f"of a window ({base.seconds:g})")
    parser.add_argument("--windows", type=int, default=base.windows, help=f"of each kind ({base.windows})")
    parser.add_argument(
        "--held", type=float, default=base.held_s, help=f"seconds of the snapshot ({base.held_s:g})"
    )
    for name in COUNTS:
        default = getattr(base, name)
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default:,}")
    parser.add_argument("--inside", choices=CONDITIONS, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args()
    counts = {name: getattr(options, name) for name in COUNTS}
    if min(options.seconds, options.windows, options.held, *counts.values()) <= 0 or options.growth < 100:
        parser.error("there must be something to do")
    return Asked(seconds=options.seconds, windows=options.windows, held_s=options.held, **counts), options


if __name__ == "__main__":
    main()
