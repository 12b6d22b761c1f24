"""Plots for the docs: `plots PLOT FOLDER` reads JSON. Runs where matplotlib is; the platform does not need it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

OURS, FLOOR, OTHER, INK = "#0b6e4f", "#9aa0a6", "#5b7db1", "#202124"
Rows = Mapping[str, Mapping[str, float]]


def peers(rows: Rows, folder: Path) -> None:
    """Rates (more is better) and waits (less is better): one small chart each, on logarithmic scales."""
    charts = [
        ("drain1", "drain, 1 process, jobs/s"),
        ("drain2", "drain, 2 processes, jobs/s"),
        ("bulk", "bulk enqueue, jobs/s"),
        ("single", "single enqueue, jobs/s"),
        ("p99_ms", "start p99, ms (less is better)"),
        ("drain1_wal", "WAL of a drain, bytes/job (less is better)"),
    ]
    _grid(rows, charts, folder / "performance-peers.png")


def _grid(rows: Rows, charts: list[tuple[str, str]], path: Path) -> None:
    figure, places = plt.subplots(len(charts) // 2, 2, figsize=(11, 1.2 + 0.3 * len(rows) * len(charts) / 2))
    for place, (name, title) in zip(places.flat, charts, strict=True):
        values = {queue: row[name] for queue, row in rows.items() if row.get(name)}
        _bars(place, values, title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _bars(place: Any, values: Mapping[str, float], title: str) -> None:
    names = sorted(values, key=values.__getitem__)
    colours = [OURS if n.startswith("jobsplatform") else FLOOR if n == "SQL floor" else OTHER for n in names]
    bars = place.barh(names, [values[name] for name in names], color=colours)
    place.bar_label(bars, labels=[_number(values[name]) for name in names], padding=3, fontsize=8, color=INK)
    place.set_title(title, fontsize=10, loc="left", color=INK)
    place.set_xscale("log")
    if values:
        place.set_xlim(min(values.values()) / 3, max(values.values()) * 4)
    place.tick_params(axis="y", labelsize=8)
    place.tick_params(axis="x", labelbottom=False, bottom=False, which="both")
    for side in ("top", "right", "bottom"):
        place.spines[side].set_visible(False)


def scale(cases: Mapping[str, list[Mapping[str, float]]], folder: Path) -> None:
    """Cost of a job by batch size and payload; rate by worker processes and shards."""
    figure, places = plt.subplots(2, 2, figsize=(11, 7))
    for place, (name, across, heights, title) in zip(
        places.flat,
        [
            ("batches", "batch", ("server_us", "client_us"), "CPU µs/job by batch size"),
            ("payloads", "bytes", ("wal", "disk"), "WAL and disk, bytes/job by payload"),
            ("workers", "processes", ("rate",), "jobs/s by worker processes"),
            ("shards", "shards", ("rate",), "jobs/s by shards (two worker processes)"),
        ],
        strict=True,
    ):
        for height, colour in zip(heights, (OURS, OTHER), strict=False):
            rows = cases.get(name, [])
            place.plot(
                [row[across] for row in rows], [row[height] for row in rows], "o-", color=colour, label=height
            )
        if len(heights) > 1:
            place.set_xscale("log")
            place.set_yscale("log")
            place.legend(fontsize=8, frameon=False)
        else:
            place.set_ylim(bottom=0)
        place.set_title(title, fontsize=10, loc="left", color=INK)
        place.set_xlabel(across, fontsize=8)
        place.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(folder / "performance-scale.png", dpi=110)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def main() -> None:
    plot, folder = sys.argv[1], Path(sys.argv[2])
    data = json.load(sys.stdin)
    if plot == "peers":
        peers(data, folder)
    else:
        scale(data, folder)


if __name__ == "__main__":
    main()
