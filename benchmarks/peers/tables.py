"""From figures to what people read: medians, tables, ratios and what they must be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.peers.catalog import FLOOR, OURS

Figures = Mapping[str, float]

COLUMNS: Final = {
    "single": "single enqueue/s",
    "bulk": "bulk enqueue/s",
    "drain1": "drain/s, 1 process",
    "drain2": "drain/s, 2 processes",
    "p50_ms": "start p50 ms",
    "p99_ms": "start p99 ms",
    "bulk_wal": "WAL B/job, enqueue",
    "drain1_wal": "WAL B/job, drain",
    "drain1_server_us": "server CPU µs/job, drain",
    "drain1_worker_us": "worker CPU µs/job, drain",
    "drain1_mib": "worker MiB",
}
GRAPHILE, PGQUEUER = "graphile-worker", "pgqueuer"
NOT_PEERS: Final = {FLOOR, OURS, "jobsplatform + upkeep"}


def medians(repetitions: Sequence[Figures]) -> dict[str, float]:
    """The median of each figure over the repetitions that have it."""
    names = {name: None for one in repetitions for name in one}
    return {name: median(one[name] for one in repetitions if name in one) for name in names}


def table(rows: Mapping[str, Figures], columns: Mapping[str, str] = COLUMNS, first: str = "queue") -> str:
    """A Markdown table; a figure that is not there is a dash."""
    shown = {name: title for name, title in columns.items() if any(name in row for row in rows.values())}
    lines = [f"| {first} | " + " | ".join(shown.values()) + " |", "|---|" + "---:|" * len(shown)]
    for title, row in rows.items():
        cells = [number(row[name]) if name in row else "–" for name in shown]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Three digits that mean something; whole from a hundred on."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim: ours against another's figure. `wanted`: the least ratio, or the largest where less is better."""

    claim: str
    ratio: float
    wanted: float
    less_is_better: bool = False

    @property
    def is_kept(self) -> bool:
        return self.ratio <= self.wanted if self.less_is_better else self.ratio >= self.wanted

    def __str__(self) -> str:
        sign = "≤" if self.less_is_better else "≥"
        word = "kept" if self.is_kept else "NOT KEPT"
        return f"{self.claim}: {self.ratio:.2f} (wanted {sign} {self.wanted:g}) {word}"


def verdicts(rows: Mapping[str, Figures]) -> list[Verdict]:
    """What is claimed of ours against the peers of the same run; a peer that is missing is left out."""
    ours = rows.get(OURS)
    peers = {name: row for name, row in rows.items() if name not in NOT_PEERS}
    if ours is None:
        return []
    found: list[Verdict] = []

    def against(claim: str, figure: str, names: Sequence[str], wanted: float, *, less: bool = False) -> None:
        others = {name: peers[name][figure] for name in names if figure in peers.get(name, {})}
        if figure in ours and others:
            best = (min if less else max)(others, key=lambda name: others[name])
            found.append(Verdict(f"{claim} {best}", ours[figure] / others[best], wanted, less))

    everybody = list(peers)
    against("drain, 1 process, against", "drain1", [PGQUEUER], 2.0)
    against("drain, 1 process, against", "drain1", [GRAPHILE], 0.9)
    against("drain, 2 processes, against", "drain2", [GRAPHILE], 1.0)
    against("bulk enqueue against the best,", "bulk", everybody, 1.3)
    against("single enqueue against the best,", "single", everybody, 1.1)
    against("start p50 against the best,", "p50_ms", everybody, 1.0, less=True)
    against("start p99 against the best,", "p99_ms", everybody, 1.0, less=True)
    return found


def losses(rows: Mapping[str, Figures], figures: Sequence[str] = tuple(COLUMNS)) -> list[str]:
    """Where a peer's figure is better than ours, one sentence each."""
    ours, found = rows.get(OURS, {}), []
    rising = {"single", "bulk", "drain1", "drain2"}
    for figure in figures:
        for name, row in rows.items():
            if name in NOT_PEERS or figure not in row or figure not in ours or not ours[figure]:
                continue
            ratio = row[figure] / ours[figure]
            if (ratio > 1) == (figure in rising) and abs(ratio - 1) > 0.005:
                found.append(f"{COLUMNS[figure]}: {name} {number(row[figure])}, ours {number(ours[figure])}")
    return found


def between(text: str, mark: str, content: str) -> str:
    """`text` with what stands between the marks of that name replaced. Raises ValueError without the marks."""
    start, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    head, found, rest = text.partition(start)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"There are no marks {start} … {end}.")
    return f"{head}{start}\n\n{content.strip()}\n\n{end}{tail}"
