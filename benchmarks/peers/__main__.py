"""Queues side by side on one embedded PostgreSQL, in one run: repetitions in turns, medians, one table.

The machine drifts by 10 to 25 % between runs: only figures of one run compare. Peers that the registry does not serve,
or that this machine cannot run, are one line each.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import bed as beds
from benchmarks.bed import Bed
from benchmarks.peers import installing, page
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.running import PARTS, Failed, Runner, Sizes

SLOW = 1.25  # of the best gauge: the host is busy elsewhere; wait
PATIENCE = 10  # gauges


def main() -> None:
    asked = _arguments()
    with beds.bed() as bed:
        runners, missing = installed(bed, asked.only, asked.sizes)
        result = measured(bed, runners, asked.repetitions, asked.parts) | {"missing": missing}
    result["command"] = "python -m benchmarks.peers " + " ".join(sys.argv[1:])
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1) + "\n")
    print(page.report(result))
    if asked.write:
        page.write(result)


def measured(
    bed: Bed, runners: dict[str, Runner], repetitions: int, parts: Sequence[str] = PARTS
) -> dict[str, Any]:
    """Everything of one run: facts, figures of each repetition, gauges, what failed."""
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in runners}
    gauges: list[float] = []
    failures: dict[str, str] = {}
    for repetition in range(repetitions):
        for name, runner in runners.items():
            gauges.append(_quiet(gauges))
            start = time.monotonic()
            try:
                figures[name].append(runner.measure(parts))
                words = f"{time.monotonic() - start:.0f} s"
            except Failed as error:
                failures[name] = str(error)
                words = f"failed: {error}"
            print(f"repetition {repetition + 1}, {name}: {words}", file=sys.stderr, flush=True)
    return {
        "facts": bed.facts(),
        "peers": {name: runner.facts for name, runner in runners.items()},
        "figures": figures,
        "gauges": gauges,
        "failures": failures,
        "repetitions": repetitions,
        "jobs": {name: runner.sizes.of(runner.peer.jobs) for name, runner in runners.items()},
        "pad": next(iter(runners.values())).sizes.pad,
    }


def _quiet(before: Sequence[float]) -> float:
    """How fast the machine is, after waiting a little for a slow spell of the host to pass."""
    for _ in range(PATIENCE):
        gauge = beds.gauge_s()
        if not before or gauge <= SLOW * min(before):
            break
        time.sleep(1)
    return gauge


def installed(bed: Bed, names: Sequence[str], sizes: Sizes) -> tuple[dict[str, Runner], dict[str, str]]:
    """The queues that can be measured here, and why the others cannot."""
    found, missing = {}, {}
    for name in names:
        try:
            found[name] = Runner(bed, PEERS[name], sizes)
        except installing.Missing as error:
            missing[name] = str(error)
            print(f"{name}: not measured, {error}", file=sys.stderr, flush=True)
    if not found:
        sys.exit("There is nothing to measure.")
    return found, missing


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--only", type=page.names(PEERS), default=list(PEERS), help=f"with commas, of: {', '.join(PEERS)}"
    )
    parser.add_argument("--repetitions", type=int, default=3, help="default 3")
    parser.add_argument(
        "--parts", type=page.names(PARTS), default=PARTS, help=f"with commas, of: {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the jobs and calls of each peer, default 1"
    )
    parser.add_argument("--paced", type=int, default=500, help="jobs whose start is timed, default 500")
    parser.add_argument("--pad", type=int, default=100, help="bytes of padding in each payload, default 100")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--write", action="store_true", help="put tables and plots into docs/performance.md")
    asked = parser.parse_args()
    if asked.repetitions < 1 or asked.paced < 1 or asked.scale <= 0 or asked.pad < 0:
        parser.error("there must be something to do")
    asked.sizes = Sizes(scale=asked.scale, paced=asked.paced, pad=asked.pad)
    return asked


if __name__ == "__main__":
    main()
