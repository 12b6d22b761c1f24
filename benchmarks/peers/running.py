"""Runs one peer through everything that is measured: each part in a fresh copy of the database that it made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import bed as beds
from benchmarks.bed import ROOT, Bed
from benchmarks.peers import counter, installing
from benchmarks.peers.catalog import Peer

PARTS: Final = ("single", "bulk", "drain1", "drain2", "latency")
DATABASE: Final = "bench_used"
CALL_SECONDS_MAX: Final = 600
DRAIN_SECONDS_MAX: Final = 240.0
START_SECONDS: Final = 5.0  # a worker that has nothing to do is given so long before waits are measured
END_SECONDS: Final = 8.0
LOOK_S: Final = 0.01


class Failed(Exception):
    """A peer did not do what was asked."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done: `scale` of each peer's own counts; `paced` jobs, `every_ms` apart; bytes of padding."""

    scale: float = 1.0
    paced: int = 500
    every_ms: float = 20.0
    pad: int = 100

    def of(self, count: int) -> int:
        return max(100, round(count * self.scale))


class Runner:
    """One peer on a bed. Figures: see `tables.COLUMNS`."""

    def __init__(self, bed: Bed, peer: Peer, sizes: Sizes) -> None:
        self.bed, self.peer, self.sizes = bed, peer, sizes
        self.command = installing.command_of(peer)
        self.log = bed.folder / "adapters.log"
        self.template = "bench_" + "".join(letter for letter in peer.name.lower() if letter.isalnum())
        self.facts: dict[str, str] = {}

    def measure(self, parts: Sequence[str]) -> dict[str, float]:
        """One repetition. Raises Failed."""
        if not self.facts:
            self.make()
        figures: dict[str, float] = {}
        if "single" in parts:
            figures |= self._single()
        for workers in (1, 2):
            if f"drain{workers}" in parts or ("bulk" in parts and workers == 1):
                figures |= self.bulk_and_drain(workers, drains=f"drain{workers}" in parts)
        if "latency" in parts:
            figures |= self._latency()
        return figures

    def make(self) -> None:
        """The peer's tables, and its own words of itself."""
        self.bed.fresh(self.template)
        self._call(self.template, "setup")
        self.facts = self._call(self.template, "info")

    def copy(self) -> None:
        """A fresh copy of what was made."""
        self.bed.fresh(DATABASE, self.template)

    def databases(self) -> list[str]:
        """Where its jobs lie."""
        return [DATABASE]

    # Parts

    def _single(self) -> dict[str, float]:
        calls = self.sizes.of(self.peer.singles)
        self.copy()
        before = self.bed.wal_bytes()
        seconds = self._call(DATABASE, "single", calls)["seconds"]
        return {"single": calls / seconds, "single_wal": (self.bed.wal_bytes() - before) / calls}

    def bulk_and_drain(self, workers: int, *, drains: bool) -> dict[str, float]:
        jobs = self.sizes.of(self.peer.jobs)
        self.copy()
        before = self.bed.wal_bytes()
        seconds = self._call(DATABASE, "bulk", jobs)["seconds"]
        figures = (
            {"bulk": jobs / seconds, "bulk_wal": (self.bed.wal_bytes() - before) / jobs}
            if workers == 1
            else {}
        )
        if drains:
            for name in self.databases():
                with self.bed.session(name) as session:
                    session.execute("VACUUM ANALYZE")
            figures |= {f"drain{workers}{name}": value for name, value in self._drain(jobs, workers).items()}
        return figures

    def _drain(self, jobs: int, workers: int) -> dict[str, float]:
        """From the start of the first job until the database says that none is left; costs of what ran meanwhile."""
        with self.workers(DATABASE, workers) as (folder, pids):
            wal, end = self.bed.wal_bytes(), time.monotonic() + DRAIN_SECONDS_MAX
            self._await(folder, 1, pids, end)
            early, costs = counter.read(folder)[0], (beds.cpu_s(pids), self.bed.cpu_s())
            self._await(folder, jobs, pids, end)
            for name in self.databases():
                self._await_end(name, end)
            over = time.time_ns()
            measured = max(1, jobs - early)
            return {
                "": jobs / ((over - counter.read(folder)[1]) / 1e9),
                "_wal": (self.bed.wal_bytes() - wal) / jobs,
                "_worker_us": (beds.cpu_s(pids) - costs[0]) / measured * 1e6,
                "_server_us": (self.bed.cpu_s() - costs[1]) / measured * 1e6,
                "_mib": beds.peak_mib(pids),
            }

    def _latency(self) -> dict[str, float]:
        self.copy()
        with self.workers(DATABASE, 1) as (folder, pids):
            time.sleep(START_SECONDS)
            self._call(DATABASE, "paced", self.sizes.paced, self.sizes.every_ms, folder=folder)
            self._await(folder, self.sizes.paced, pids, time.monotonic() + 10)
            waits = counter.waits_ms(folder)
        return {name: waits[int(len(waits) * share)] for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99))}

    # Processes

    def _await_end(self, database: str, end: float) -> None:
        with self.bed.session(database) as session:
            while (left := session.execute(self.facts["unfinished"]).fetchone()) and left[0]:
                if time.monotonic() > end:
                    raise Failed(f"{left[0]} jobs were never finished")
                time.sleep(LOOK_S)

    def _await(self, folder: Path, jobs: int, pids: Sequence[int], end: float) -> None:
        while (done := counter.read(folder)[0]) < jobs:
            if time.monotonic() > end or not all(map(_lives, pids)):
                raise Failed(f"stopped at {done} of {jobs} jobs; {self._last_words()}")
            time.sleep(LOOK_S)

    @contextmanager
    def workers(self, database: str, workers: int) -> Iterator[tuple[Path, list[int]]]:
        """Worker processes and the folder that their jobs count in; sessions of their own, ended as wholes."""
        with tempfile.TemporaryDirectory(dir=self.bed.folder) as name, self.log.open("ab") as log:
            folder = Path(name)
            environment = self._environment(database, folder, workers)
            children = [
                subprocess.Popen(
                    [*self.command, "worker"], env=environment, stdout=log, stderr=log, start_new_session=True
                )
                for _ in range(1 if self.peer.one_command else workers)
            ]
            try:
                yield folder, [child.pid for child in children]
            finally:
                _end(children)

    def _call(self, database: str, verb: str, *numbers: float, folder: Path | None = None) -> dict[str, Any]:
        done = subprocess.run(
            [*self.command, verb, *map(str, numbers)],
            env=self._environment(database, folder or self.bed.folder, 1),
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS_MAX,
        )
        if done.returncode:
            raise Failed(f"{verb}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
        answer: dict[str, Any] = json.loads(answers[-1]) if answers else {}
        return answer

    def _environment(self, database: str, folder: Path, workers: int) -> dict[str, str]:
        ours = {
            "BENCH_DSN": self.bed.dsn(database),
            "BENCH_RUN_DIR": str(folder),
            "BENCH_WORKERS": str(workers),
            "BENCH_PAD": str(self.sizes.pad),
            "BENCH_NODE_FOLDER": str(installing.node_folder()),
        }
        if not self.peer.packages:
            return beds.environment(
                self.bed.folder / "platform", self.bed.dsn(database), **ours, **self.peer.environment
            )
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("JOBS", "DJANGO", "PG"))
        }
        return kept | ours | self.peer.environment | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


def _lives(pid: int) -> bool:
    return any(fields and fields[0] != "Z" for fields in [beds._stat(pid)])


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()
    end = time.monotonic() + END_SECONDS
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.1, end - time.monotonic()))
        _kill_session(child)
        child.wait()


def _kill_session(child: subprocess.Popen[bytes]) -> None:
    """Whatever a worker started ends with it; the session is named by the child that we started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
