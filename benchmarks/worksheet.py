"""The capacity worksheet: from what one job costs to what a load needs. Pure arithmetic, average and peak apart.

    python -m benchmarks.worksheet COSTS.json [--write]

`COSTS.json` is what `python -m benchmarks.scale --json` wrote. What is assumed is said in each load.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.peers import page, tables

BATCH, PAYLOAD, PROCESSES = "500 a call", "1,024 B", "2 processes"  # rows of the figures that are used
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of one job of 1 KB in batches: processor microseconds, bytes; and what the measured machine managed."""

    enqueue_server_us: float
    finish_server_us: float
    enqueue_client_us: float
    worker_us: float
    wal: float
    disk_waiting: float
    disk_finished: float
    drained_per_s: float  # by runworker on the measured machine, server beside it
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Jobs a second on average and at peak; how long one runs; retries a job; how full a machine may be."""

    name: str
    average_per_s: float
    peak_per_s: float
    service_s: float
    retries: float = 0.1
    utilisation: float = 0.6  # of processors at peak: the rest is headroom, failover and catching up
    replicas: int = 3
    shards: int = 1
    backlog: float = 0  # jobs that wait, normally
    worst_backlog: float = 0  # and after the worst day
    history_days: float = 1.0  # finished jobs that are kept


def needs(load: Load, costs: Costs) -> dict[str, tuple[float, float]]:
    """What the load needs: (average, peak) by name. Sizes in bytes are totals over all shards."""
    attempts = 1 + load.retries

    def both(of_one_per_s: float) -> tuple[float, float]:
        return load.average_per_s * of_one_per_s, load.peak_per_s * of_one_per_s

    server = (costs.enqueue_server_us + attempts * costs.finish_server_us) / 1e6 / load.utilisation
    kept = load.average_per_s * DAY_S * load.history_days * costs.disk_finished
    return {
        "jobs/s": both(1),
        "jobs/s a shard": both(1 / load.shards),
        "operations/s (enqueue, receive, ack, retries)": both(3 + 2 * load.retries),
        "handlers at once": both(load.service_s * attempts),
        "cores of databases": both(server),
        "cores of a shard's primary": both(server / load.shards),
        "cores of producers": both(costs.enqueue_client_us / 1e6 / load.utilisation),
        "cores of workers, beside their handlers' work": both(
            attempts * costs.worker_us / 1e6 / load.utilisation
        ),
        "WAL MB/s": both(costs.wal * attempts / 1e6),
        "WAL MB/s a shard": both(costs.wal * attempts / 1e6 / load.shards),
        "MB/s to replicas": both(costs.wal * attempts * (load.replicas - 1) / 1e6),
        "disk of waiting jobs, GB, all replicas": (
            load.backlog * costs.disk_waiting * load.replicas / 1e9,
            load.worst_backlog * costs.disk_waiting * load.replicas / 1e9,
        ),
        f"disk of {load.history_days:g} days' finished jobs, GB, all replicas": (
            kept * load.replicas / 1e9,
            kept * load.replicas / 1e9,
        ),
        "hours to drain the backlog at peak capacity": (
            _hours(load.backlog, load),
            _hours(load.worst_backlog, load),
        ),
        "machines like the measured one": both(attempts / (costs.drained_per_s * load.utilisation)),
    }


def _hours(backlog: float, load: Load) -> float:
    """Provided for the peak, and the average still coming in; nothing drains where the two are one."""
    spare = load.peak_per_s - load.average_per_s
    return backlog / spare / 3_600 if spare > 0 else 0.0


LOADS: Final = (
    Load(
        name="10,000 jobs/s at 200 ms",
        average_per_s=10_000,
        peak_per_s=20_000,  # assumed: twice the average
        service_s=0.2,
        shards=1,
        backlog=10_000 * 60,  # assumed: a minute's
        worst_backlog=10_000 * 3_600,  # assumed: an hour's
    ),
    Load(
        name="1.2 billion messages a day",
        average_per_s=1.2e9 / DAY_S,
        peak_per_s=56_000,
        service_s=0.05,  # assumed
        shards=32,
        backlog=40e6,
        worst_backlog=1.2e9,
    ),
)


def costs_of(rows: Mapping[str, Any], cores: int) -> Costs:
    """From the tables of `benchmarks.scale`: the payload of 1 KB, and the worker that two processes are."""
    one, drained = rows["payloads"][PAYLOAD], rows["workers"][PROCESSES]
    batched = rows["batches"][BATCH]
    bigger = one["finish_server_us"] / rows["batches"]["100 a call"]["finish_server_us"]  # what 1 KB adds
    return Costs(
        enqueue_server_us=one["enqueue_server_us"],
        finish_server_us=batched["finish_server_us"] * bigger,
        enqueue_client_us=one["enqueue_client_us"],
        worker_us=drained["drain_worker_us"],
        wal=one["enqueue_wal"] + one["finish_wal"],
        disk_waiting=one["disk_waiting"],
        disk_finished=one["disk_finished"],
        drained_per_s=drained["drain"],
        cores=cores,
    )


def report(costs: Costs) -> str:
    """The costs, and a table for each load."""
    words = (
        f"One job of 1 KB costs {costs.enqueue_server_us:.1f} + {costs.finish_server_us:.1f} µs of the server,"
        f" {costs.enqueue_client_us:.1f} µs of the producer, {costs.worker_us:.1f} µs of the worker,"
        f" {costs.wal:,.0f} B of WAL, {costs.disk_waiting:,.0f} B of disk while it waits and"
        f" {costs.disk_finished:,.0f} B once it is history. {costs.cores} cores drained"
        f" {costs.drained_per_s:,.0f} jobs/s, database included."
    )
    parts = [words]
    for load in LOADS:
        rows = {name: {"average": pair[0], "peak": pair[1]} for name, pair in needs(load, costs).items()}
        assumed = (
            f"{load.retries:.0%} retries, {load.utilisation:.0%} of each processor at most, {load.replicas} replicas,"
            f" {load.shards} shard{'s' if load.shards > 1 else ''}, {load.service_s * 1_000:.0f} ms a job."
        )
        table = tables.table(rows, {"average": "average", "peak": "peak, or worst"}, load.name)
        parts.append(f"{table}\n\nWith {assumed}")
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.worksheet", description=__doc__)
    parser.add_argument("costs", type=Path, help="what `benchmarks.scale --json` wrote")
    parser.add_argument("--write", action="store_true", help="put it into docs/performance.md")
    asked = parser.parse_args()
    found = json.loads(asked.costs.read_text())
    text = report(costs_of(found["rows"], int(found["facts"]["machine"].split()[0])))
    print(text)
    if asked.write:
        page.replace("worksheet", text)


if __name__ == "__main__":
    main()
