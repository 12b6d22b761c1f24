"""`manage.py bench` of two checkouts in turns on one server: the median of each and the median of the ratios.

    python -m benchmarks.paired BEFORE AFTER [--rounds 5] [--jobs 10000]

Each round runs both, the first one first in every other round. A ratio is that of one round's two runs.
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs for each figure")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    asked = parser.parse_args()
    runs = _runs([asked.before.resolve(), asked.after.resolve()], asked.rounds, asked.jobs)
    ground.show("Two checkouts", _compared(*runs), asked.json)


def _runs(checkouts: list[Path], rounds: int, jobs: int) -> list[list[dict[str, float]]]:
    """The rates of each checkout, a dictionary a round."""
    sys.path[:0] = [str(ground.ROOT), str(ground.ROOT / "queue")]
    from jobsplatform.embedded import Server

    rates: list[list[dict[str, float]]] = [[] for _ in checkouts]
    with tempfile.TemporaryDirectory(prefix="jobsplatform-bench-") as name:
        server = Server(Path(name))
        server.ensure_running()
        try:
            wanted = ground.environment(Path(name))  # both checkouts find the server there
            for round_ in range(rounds):
                for index in (0, 1) if round_ % 2 == 0 else (1, 0):
                    rates[index].append(_bench(checkouts[index], jobs, wanted))
                    print(f"round {round_ + 1}, {checkouts[index].name}: done", file=sys.stderr)
        finally:
            server.stop()
    return rates


def _bench(checkout: Path, jobs: int, environment: dict[str, str]) -> dict[str, float]:
    path = f"{checkout}{os.pathsep}{checkout / 'queue'}"
    done = subprocess.run(
        [sys.executable, "manage.py", "bench", "--json", "--jobs", str(jobs)],
        cwd=checkout,
        env=environment | {"PYTHONPATH": path},
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
