"""A run as an SVG picture: starts a second, busy slots and waiting jobs over time, and shares against targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from jobqueue.policy.simulated import Run, Sample, Start
from jobqueue.simulating.files import Scenario
from jobqueue.simulating.measures import Figures, of_bands, of_tenants

GROUPS_MAX: Final = 8  # lines in a panel; more would be a thicket
COLUMNS: Final = 60  # in time
WIDTH, LEFT, TOP = 1080, 64, 96
PANEL_WIDTH, PANEL_HEIGHT, PANEL_STEP = 270, 170, 340
ROW: Final = 24  # of the bars

# Told apart in grey and by eyes that mix up red and green: by dashes too, and each line has its name in the legend.
COLOURS: Final = ("#0b62a4", "#c2571a", "#2b7a4b", "#8a3d9c", "#8f6a00", "#1b8a94", "#b0275a", "#5b6470")
DARK: Final = ("#6cb4f0", "#f2a36b", "#7cc492", "#d39be0", "#e0be5a", "#6fd0d9", "#f08bb0", "#b5bdc8")
DASHES: Final = ("none", "8 4", "2 4", "12 4 2 4", "5 3", "10 6", "3 2", "14 4")

STYLE: Final = """
    .page { fill: #ffffff } .axis { fill: none; stroke: #8593a6; stroke-width: 1 }
    .grid { stroke: #dfe5ec; stroke-width: 1 }
    .line { fill: none; stroke-width: 2 } .target { stroke: #1b2430; stroke-width: 2 } .track { fill: #edf1f5 }
    text { fill: #1b2430 } .small { font-size: 12px; fill: #47525f } .head { font-weight: 600 }
    .name { font-size: 17px; font-weight: 600 } .end { text-anchor: end }"""
DARK_STYLE: Final = """
      .page { fill: #11161d } .axis { stroke: #74849a } .grid { stroke: #273140 } .target { stroke: #e8edf3 }
      .track { fill: #1d2733 } text { fill: #e8edf3 } .small { fill: #b3bfcc }"""


@dataclass(frozen=True, slots=True)
class _Line:
    """A band or a tenant, and what it had in each column of time."""

    name: str
    starts: Sequence[float]
    slots: Sequence[float]
    waiting: Sequence[float]


def svg(scenario: Scenario, run: Run) -> str:
    """The picture as text."""
    lines, bars = _lines(run), _bars(run)
    height = TOP + PANEL_HEIGHT + 84 + ROW * len(bars) + 24
    words = "; ".join(f"{bar.tenant or bar.band} {bar.share:.1%} for {bar.target:.1%}" for bar in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="title desc" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"14\">",
        f'<title id="title">{escape(scenario.summary)}</title>',
        f'<desc id="desc">Shares, actual for target: {escape(words)}.</desc>',
        f"<style>{_style()}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="12"/>',
        f'<text class="name" x="{LEFT - 40}" y="34">{escape(scenario.summary)}</text>',
        *_legend(lines),
        *_panel(0, "starts a second", [line.starts for line in lines], run.setup.seconds),
        *_panel(1, "busy slots", [line.slots for line in lines], run.setup.seconds),
        *_panel(2, "waiting jobs", [line.waiting for line in lines], run.setup.seconds),
        *_bar_rows(bars, TOP + PANEL_HEIGHT + 84),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style() -> str:
    light = "".join(
        f"\n    .s{index} {{ stroke: {colour}; stroke-dasharray: {DASHES[index]} }} .f{index} {{ fill: {colour} }}"
        for index, colour in enumerate(COLOURS)
    )
    dark = "".join(
        f"\n      .s{index} {{ stroke: {colour} }} .f{index} {{ fill: {colour} }}"
        for index, colour in enumerate(DARK)
    )
    return f"{STYLE}{light}\n    @media (prefers-color-scheme: dark) {{{DARK_STYLE}{dark}\n    }}\n  "


# What is drawn


def _by_tenant(run: Run) -> bool:
    """Bands are drawn where there are several, else tenants."""
    return len({band for band, _ in run.offered}) == 1


def _bars(run: Run) -> list[Figures]:
    found = of_tenants(run) if _by_tenant(run) else of_bands(run)
    return found[:GROUPS_MAX]


def _lines(run: Run) -> list[_Line]:
    bands = run.setup.policy.bands
    if _by_tenant(run):
        tenants = list(dict.fromkeys(tenant for _, tenant in run.offered))[:GROUPS_MAX]
        return [
            _line(
                run,
                name,
                [one for one in run.starts if one.tenant == name],
                [_waiting(sample, tenant=name) for sample in run.samples[1:]],
            )
            for name in tenants
        ]
    return [
        _line(
            run,
            bands[band].name,
            [one for one in run.starts if one.band == band],
            [_waiting(sample, band=band) for sample in run.samples[1:]],
        )
        for band in sorted({band for band, _ in run.offered})[:GROUPS_MAX]
    ]


def _waiting(sample: Sample, *, band: int | None = None, tenant: str | None = None) -> int:
    return sum(
        jobs
        for (of_band, of_tenant), jobs in sample.waiting.items()
        if of_band == band or of_tenant == tenant
    )


def _line(run: Run, name: str, starts: Sequence[Start], waiting: Sequence[int]) -> _Line:
    column_s = run.setup.seconds / COLUMNS
    rates, slots = [0.0] * COLUMNS, [0.0] * COLUMNS
    for start in starts:
        first = min(COLUMNS - 1, int(start.at_s / column_s))
        rates[first] += 1 / column_s
        end_s = min(run.setup.seconds, start.at_s + start.service_s)
        for column in range(first, min(COLUMNS, math.ceil(end_s / column_s))):
            inside_s = min(end_s, (column + 1) * column_s) - max(start.at_s, column * column_s)
            slots[column] += max(0.0, inside_s) / column_s
    return _Line(name, rates, slots, waiting)


# How it is drawn


def _legend(lines: Sequence[_Line]) -> list[str]:
    parts, x = [], LEFT - 40
    for index, line in enumerate(lines):
        parts.append(f'<path class="line s{index}" d="M{x} 58 h34"/>')
        parts.append(f'<text class="small" x="{x + 40}" y="62">{escape(line.name)}</text>')
        x += 70 + 8 * len(line.name)
    return parts


def _panel(column: int, title: str, values: Sequence[Sequence[float]], seconds: float) -> list[str]:
    x, bottom = LEFT + column * PANEL_STEP, TOP + PANEL_HEIGHT
    top = _ceiling(max((max(line, default=0.0) for line in values), default=0.0))

    def y(value: float) -> float:
        return bottom - PANEL_HEIGHT * value / top

    parts = [f'<text class="small head" x="{x}" y="{TOP - 10}">{title}</text>']
    for part in (0.5, 1.0):
        parts.append(f'<path class="grid" d="M{x} {y(top * part):.1f} h{PANEL_WIDTH}"/>')
    for part in (0.0, 0.5, 1.0):
        parts.append(
            f'<text class="small end" x="{x - 6}" y="{y(top * part) + 4:.1f}">{_brief(top * part)}</text>'
        )
    parts.append(f'<path class="axis" d="M{x} {TOP} V{bottom} H{x + PANEL_WIDTH}"/>')
    parts.append(f'<text class="small" x="{x}" y="{bottom + 18}">0</text>')
    parts.append(f'<text class="small end" x="{x + PANEL_WIDTH}" y="{bottom + 18}">{seconds:g} s</text>')
    parts += [_curve(index, line, x, y) for index, line in enumerate(values)]
    return parts


def _curve(index: int, values: Sequence[float], x: float, y: Callable[[float], float]) -> str:
    step = PANEL_WIDTH / max(1, len(values) - 1)
    points = " ".join(f"{x + step * column:.1f},{y(value):.1f}" for column, value in enumerate(values))
    return f'<polyline class="line s{index}" points="{points}"/>'


def _bar_rows(bars: Sequence[Figures], top: int) -> list[str]:
    of = "its band" if bars and bars[0].tenant else "all starts"
    parts = [
        f'<text class="small head" x="{LEFT - 40}" y="{top - 14}">share of {of}: bar, and its target: stroke</text>'
    ]
    left, width = LEFT + 90, 540
    for index, bar in enumerate(bars):
        y = top + ROW * index
        target = left + width * bar.target
        parts += [
            f'<text class="small" x="{LEFT - 40}" y="{y + 13}">{escape(bar.tenant or bar.band)}</text>',
            f'<rect class="track" x="{left}" y="{y}" width="{width}" height="16"/>',
            f'<rect class="f{index}" x="{left}" y="{y}" width="{width * bar.share:.1f}" height="16"/>',
            f'<path class="target" d="M{target:.1f} {y - 3} v22"/>',
            f'<text class="small" x="{left + width + 16}" y="{y + 13}">{bar.share:.1%} for {bar.target:.1%}'
            f", {bar.starts:,} starts, longest gap {bar.longest_gap_s:.2f} s</text>",
        ]
    return parts


def _ceiling(value: float) -> float:
    """The next round number: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if value <= step * power * (1 + 1e-9))


def _brief(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"
