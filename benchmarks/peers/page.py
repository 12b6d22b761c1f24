"""A run as people read it: on the terminal, and in docs/performance.md with its plots."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from benchmarks.bed import ROOT
from benchmarks.peers import installing, tables
from benchmarks.peers.catalog import FLOOR, OURS

PAGE: Final = ROOT / "docs" / "performance.md"
PICTURES: Final = ROOT / "docs" / "img"
ALT: Final = {
    "peers": "The same figures as bars: rates of each queue, start latency and log bytes.",
    "scale": "Costs of a job by batch size and payload, rates by worker processes and by shards.",
}
MATPLOTLIB: Final = ("matplotlib>=3.10,<4",)


def report(result: dict[str, Any]) -> str:
    """Table, verdicts, losses, how it was measured."""
    rows = rows_of(result)
    parts = [tables.table(rows)]
    if claims := tables.verdicts(rows):
        parts.append("\n".join(f"- {claim}" for claim in claims))
    if OURS in rows and (lost := tables.losses(rows)):
        parts.append("Where ours is behind:\n\n" + "\n".join(f"- {line}" for line in lost))
    parts.append(circumstances(result))
    return "\n\n".join(parts)


def rows_of(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The medians of each queue that was measured: ours, the floor, then the others by their drain."""
    rows = {name: tables.medians(one) for name, one in result["figures"].items() if one}
    first = [OURS, "jobsplatform + upkeep", FLOOR]

    def place(name: str) -> tuple[int, float]:
        return (first.index(name) if name in first else len(first), -rows[name].get("drain1", 0.0))

    return {name: rows[name] for name in sorted(rows, key=place)}


def circumstances(result: dict[str, Any]) -> str:
    """Machine, server, versions and settings, and how steady the machine was."""
    facts, gauges = result["facts"], result["gauges"]
    lines = [
        f"{facts['date']}; {facts['machine']}; PostgreSQL {facts['postgresql']} ({facts['settings']});"
        f" {result['repetitions']} repetitions in turns, medians; {result['pad']} B of padding.",
        f"The slowest moment of the machine was {max(gauges) / min(gauges):.2f} × its quickest (a fixed loop before"
        " each repetition).",
    ]
    lines += [f"{name} was not measured: {why}." for name, why in result["missing"].items()]
    lines += [f"{name} failed at least once: {why}." for name, why in result["failures"].items()]
    versions = ["| queue | version | jobs a drain | settings |", "|---|---|---:|---|"]
    versions += [
        f"| {name} | {told['version']} | {result['jobs'][name]:,} | {told['settings']} |"
        for name, told in result["peers"].items()
        if told
    ]
    return "\n".join(lines) + "\n\n" + "\n".join(versions)


def names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """The type of an argument: some of the known names, with commas between them."""

    def parse(text: str) -> list[str]:
        wanted = [name.strip() for name in text.split(",")]
        for name in wanted:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}; there are {', '.join(known)}")
        return wanted

    return parse


def write(result: dict[str, Any]) -> None:
    """Put the run into the page, and draw its plots if a registry serves matplotlib."""
    replace("side by side", f"`{result['command']}`\n\n{report(result)}", draw("peers", rows_of(result)))


def replace(mark: str, text: str, picture: str = "") -> None:
    """Put `text`, and the picture below it, between the marks of that name."""
    PAGE.write_text(tables.between(PAGE.read_text(), mark, f"{text}\n\n{picture}"))


def draw(plot: str, data: object) -> str:
    """Draw `plot` (see plots.py) in an environment of its own: the platform needs no plotting library.

    Gives the picture's line for the page; empty where it could not be drawn.
    """
    try:
        python = installing.python_with(MATPLOTLIB)
    except installing.Missing as error:
        print(f"plots: not drawn, {error}", file=sys.stderr)
        return ""
    PICTURES.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [python, "-m", "benchmarks.peers.plots", plot, str(PICTURES)],
        input=json.dumps(data),
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
    )
    return f"![{ALT[plot]}](img/performance-{plot}.png)"
