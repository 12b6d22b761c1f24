"""What one job costs, and on what that depends: batch sizes, payloads, worker processes, shards, one loud tenant.

Costs are processor microseconds of the database server and of Python apart, and bytes of log and disk. Every case has a
fresh database on one server; the cases of a repetition follow each other, medians are shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks import bed as beds
from benchmarks.bed import Bed
from benchmarks.peers import page, tables
from benchmarks.peers.catalog import OURS, PEERS, Peer
from benchmarks.peers.running import DATABASE, Runner, Sizes

KIB: Final = 1_024
PAYLOAD_BYTES: Final = 100
BATCHES: Final = {1: 2_000, 10: 10_000, 100: 40_000, 500: 50_000, 1_000: 60_000}  # size → jobs
PAYLOADS: Final = {100: 40_000, KIB: 40_000, 16 * KIB: 8_000, 128 * KIB - 64: 2_000}  # bytes → jobs
PROCESSES: Final = (1, 2, 4, 8)
SHARDS: Final = (1, 2, 3, 4)
COLUMNS: Final = {
    "enqueue": "enqueue/s",
    "enqueue_server_us": "server µs",
    "enqueue_client_us": "Python µs",
    "enqueue_wal": "WAL B",
    "finish": "claim + complete/s",
    "finish_server_us": "server µs ",
    "finish_client_us": "Python µs ",
    "finish_wal": "WAL B ",
    "disk_waiting": "disk B, waiting",
    "disk_finished": "disk B, finished",
}
DRAINED: Final = {
    "drain": "runworker, jobs/s",
    "drain_server_us": "server µs",
    "drain_worker_us": "worker µs",
    "drain_wal": "WAL B",
    "drain_mib": "worker MiB",
}
Row = dict[str, float]


def main() -> None:
    asked = _arguments()
    found: dict[str, dict[str, list[Row]]] = {}
    with beds.bed() as bed:
        facts = bed.facts()
        for repetition in range(asked.repetitions):
            for name in asked.cases:
                for title, row in CASES[name](bed, asked.scale):
                    found.setdefault(name, {}).setdefault(title, []).append(row)
                    print(f"repetition {repetition + 1}, {name}, {title}", file=sys.stderr, flush=True)
    rows = {name: {title: tables.medians(some) for title, some in one.items()} for name, one in found.items()}
    command = "python -m benchmarks.scale " + " ".join(sys.argv[1:])
    text = report(rows, facts)
    print(text)
    if asked.json:
        asked.json.write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n")
    if asked.write:
        page.replace("scale", f"`{command}`\n\n{text}", page.draw("scale", plotted(rows)))


def report(rows: Mapping[str, Mapping[str, Row]], facts: Mapping[str, str]) -> str:
    """A table for each group of cases."""
    parts = [f"{facts['date']}; {facts['machine']}; PostgreSQL {facts['postgresql']}; all figures per job."]
    for name, cases in rows.items():
        columns = DRAINED if name in ("workers", "shards") else COLUMNS
        parts.append(tables.table(cases, columns, name))
    return "\n\n".join(parts)


def plotted(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, list[Row]]:
    """The points of the plots."""
    points: dict[str, list[Row]] = {}
    for title, row in rows.get("batches", {}).items():
        server = row["enqueue_server_us"] + row["finish_server_us"]
        client = row["enqueue_client_us"] + row["finish_client_us"]
        points.setdefault("batches", []).append(
            {"batch": _first(title), "server_us": server, "client_us": client}
        )
    for title, row in rows.get("payloads", {}).items():
        wal = row["enqueue_wal"] + row["finish_wal"]
        points.setdefault("payloads", []).append(
            {"bytes": _first(title), "wal": wal, "disk": row["disk_finished"]}
        )
    for name, across in (("workers", "processes"), ("shards", "shards")):
        for title, row in rows.get(name, {}).items():
            points.setdefault(name, []).append({across: _first(title), "rate": row["drain"]})
    return points


def _first(title: str) -> float:
    return float(title.split()[0].replace(",", ""))


# Cases: each gives a title and its figures


def batches(bed: Bed, scale: float) -> list[tuple[str, Row]]:
    return [
        (f"{size:,} a call", verbs(bed, jobs=_jobs(jobs, scale, size), batch=size))
        for size, jobs in BATCHES.items()
    ]


def payloads(bed: Bed, scale: float) -> list[tuple[str, Row]]:
    return [
        (f"{size:,} B", verbs(bed, jobs=_jobs(jobs, scale, 100), batch=100, size=size))
        for size, jobs in PAYLOADS.items()
    ]


def tenants(bed: Bed, scale: float) -> list[tuple[str, Row]]:
    jobs = _jobs(40_000, scale, 1_000)
    cases = (("1 tenant", 1, 1.0), ("100 tenants alike", 100, 0.01), ("100 tenants, 90 % from one", 100, 0.9))
    return [
        (title, verbs(bed, jobs=jobs, batch=500, tenants=count, loudest=share))
        for title, count, share in cases
    ]


def workers(bed: Bed, scale: float) -> list[tuple[str, Row]]:
    runner = Runner(bed, PEERS[OURS], Sizes(scale=scale))
    runner.make()
    return [(f"{count} processes", _drained(runner, count)) for count in PROCESSES]


def shards(bed: Bed, scale: float) -> list[tuple[str, Row]]:
    rows = []
    for count in SHARDS:
        runner = OnShards(bed, count, Sizes(scale=scale))
        runner.make()
        rows.append((f"{count} shards", _drained(runner, 2)))
    return rows


CASES: Final[Mapping[str, Callable[[Bed, float], Sequence[tuple[str, Row]]]]] = {
    "batches": batches,
    "payloads": payloads,
    "tenants": tenants,
    "workers": workers,
    "shards": shards,
}


def verbs(
    bed: Bed, *, jobs: int, batch: int, size: int = PAYLOAD_BYTES, tenants: int = 1, loudest: float = 1.0
) -> Row:
    """One process enqueues `jobs` and then claims and completes them, `batch` a call, by the platform's functions."""
    runner = Runner(bed, PEERS[OURS], Sizes())
    if not bed.value("SELECT count(*) FROM pg_database WHERE datname = %s", [runner.template]):
        runner.make()
    runner.copy()
    wanted = {"jobs": jobs, "batch": batch, "size": size, "tenants": tenants, "loudest": loudest}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale_side", json.dumps(wanted)],
        env=beds.environment(
            bed.folder / "platform", bed.dsn(DATABASE), BENCH_POSTMASTER=str(bed.server.pid() or 0)
        ),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def _drained(runner: Runner, processes: int) -> Row:
    figures = runner.bulk_and_drain(processes, drains=True)
    mark = f"drain{processes}"
    return {
        f"drain{name.removeprefix(mark)}": value for name, value in figures.items() if name.startswith(mark)
    }


class OnShards(Runner):
    """Ours on several databases of one server; control has one of its own."""

    def __init__(self, bed: Bed, count: int, sizes: Sizes) -> None:
        self.count = count
        peer = PEERS[OURS]
        super().__init__(bed, Peer(f"{count} shards", peer.adapter, jobs=peer.jobs, one_command=True), sizes)

    def make(self) -> None:
        for name in (self.template, *self._named(self.template)):
            self.bed.fresh(name)
        self._call(self.template, "setup")
        self.facts = self._call(self.template, "info")

    def copy(self) -> None:
        self.bed.fresh(DATABASE, self.template)
        for made, used in zip(self._named(self.template), self.databases(), strict=True):
            self.bed.fresh(used, made)

    def databases(self) -> list[str]:
        return self._named(DATABASE)

    def _named(self, first: str) -> list[str]:
        return [f"{first}{number}" for number in range(self.count)]

    def _environment(self, database: str, folder: Path, workers: int) -> dict[str, str]:
        urls = ",".join(self.bed.dsn(name) for name in self._named(database))
        return super()._environment(database, folder, workers) | {"JOBSPLATFORM_SHARDS": urls}


def _jobs(count: int, scale: float, batch: int) -> int:
    """A whole number of batches."""
    return max(1, round(count * scale / batch)) * batch


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.scale", description=__doc__)
    parser.add_argument(
        "--cases", type=page.names(CASES), default=list(CASES), help=f"of: {', '.join(CASES)}"
    )
    parser.add_argument("--repetitions", type=int, default=3, help="default 3")
    parser.add_argument("--scale", type=float, default=1.0, help="of the jobs of each case, default 1")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--write", action="store_true", help="put tables and plots into docs/performance.md")
    asked = parser.parse_args()
    if asked.repetitions < 1 or asked.scale <= 0:
        parser.error("there must be something to do")
    return asked


if __name__ == "__main__":
    main()
