"""Two checkouts on one server, in turns: slices of work by the verbs, and `manage.py bench` as a whole.

    python -m benchmarks.paired BEFORE AFTER [--slices 60] [--rounds 5] [--jobs 10000]

Slices of 500 jobs, tenths of a second each, hold where the machine is busy otherwise: both sides meet the same spell.
A ratio is that of one turn's two runs; who is first changes each turn. `--rounds 0` leaves the whole bench out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import ground

SLICE = 500  # jobs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another")
    parser.add_argument("--slices", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5, help="of the whole bench")
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs for each figure")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    asked = parser.parse_args()
    checkouts = [asked.before.resolve(), asked.after.resolve()]
    sys.path[:0] = [str(ground.ROOT), str(ground.ROOT / "queue")]
    from jobsplatform.embedded import Server

    with tempfile.TemporaryDirectory(prefix="jobsplatform-bench-") as name:
        server = Server(Path(name))
        server.ensure_running()
        try:
            ground.show("Two checkouts, slices", _sliced(server, checkouts, asked.slices), asked.json)
            if asked.rounds:
                runs = _runs(Path(name), checkouts, asked.rounds, asked.jobs)
                ground.show("Two checkouts, bench", _compared(*runs), asked.json)
        finally:
            server.stop()


# Slices


def _sliced(server: Any, checkouts: list[Path], slices: int) -> list[dict[str, Any]]:
    children = [_child(server, index, checkout) for index, checkout in enumerate(checkouts)]
    times: list[list[dict[str, float]]] = [[], []]
    try:
        for turn in range(slices):
            for index in (0, 1) if turn % 2 == 0 else (1, 0):
                times[index].append(json.loads(_answer(children[index], f"{SLICE}\n")))
    finally:
        for child in children:
            child.terminate()
            child.wait(60)
    words = {"enqueue": "enqueue", "drain": "claim + complete", "cpu": "claim + complete, by processor time"}
    rates = [[{words[name]: SLICE / value for name, value in one.items()} for one in side] for side in times]
    return _compared(*rates)


def _child(server: Any, index: int, checkout: Path) -> subprocess.Popen[str]:
    """It has a database of its own, and has warmed up."""
    name = f"side{index}"
    server.create_database(name)
    wanted = ground.environment(server.data) | {
        "JOBSPLATFORM_DATABASE_URL": server.url(name),
        "JOBSPLATFORM_SECRET_KEY": "k" * 64,
        "JOBSPLATFORM_TOKEN_PEPPER": "p" * 64,
        "JOBS_PREPARED_STATEMENTS": "true",
        "PYTHONPATH": _path(checkout),
    }
    child = subprocess.Popen(
        [sys.executable, str(ground.ROOT / "benchmarks" / "slice.py")],
        cwd=checkout,
        env=wanted,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    _answer(child, "")
    return child


def _answer(child: subprocess.Popen[str], line: str) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(line)
    child.stdin.flush()
    answer = child.stdout.readline()
    if not answer:
        raise RuntimeError("A side ended.")
    return answer


def _path(checkout: Path) -> str:
    return f"{checkout}{os.pathsep}{checkout / 'queue'}"


# The whole bench


def _runs(folder: Path, checkouts: list[Path], rounds: int, jobs: int) -> list[list[dict[str, float]]]:
    """The rates of each checkout, a dictionary a round. Both find the server in `folder`."""
    rates: list[list[dict[str, float]]] = [[] for _ in checkouts]
    for round_ in range(rounds):
        for index in (0, 1) if round_ % 2 == 0 else (1, 0):
            rates[index].append(_bench(checkouts[index], jobs, ground.environment(folder)))
            print(f"round {round_ + 1}, {checkouts[index].name}: done", file=sys.stderr)
    return rates


def _bench(checkout: Path, jobs: int, environment: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "manage.py", "bench", "--json", "--jobs", str(jobs)],
        cwd=checkout,
        env=environment | {"PYTHONPATH": _path(checkout)},
        stdout=subprocess.PIPE,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {name: figure["jobs_per_s"] for name, figure in figures.items()}


def _compared(before: list[dict[str, float]], after: list[dict[str, float]]) -> list[dict[str, Any]]:
    return [
        {
            "jobs/s": name,
            "before": round(median(one[name] for one in before)),
            "after": round(median(one[name] for one in after)),
            "after/before": median(b[name] / a[name] for a, b in zip(before, after, strict=True)),
            "lowest": min(b[name] / a[name] for a, b in zip(before, after, strict=True)),
            "highest": max(b[name] / a[name] for a, b in zip(before, after, strict=True)),
        }
        for name in before[0]
        if name in after[0]
    ]


if __name__ == "__main__":
    main()
