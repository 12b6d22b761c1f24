"""A run over many shards as an SVG picture: inversions, waits by band, and starts by shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Final

from jobqueue.policy.shard_simulation import Run, quantile
from jobqueue.simulating.picture import DARK_STYLE, STYLE

BINS_MS: Final = (1, 2, 5, 10, 20, 50, 100)
WIDTH, LEFT, TOP, HEIGHT, STEP, PANEL = 1080, 64, 96, 170, 340, 270
_COLOURS: Final = """
    .b { fill: #0b62a4 } .c { fill: #c2571a }
    @media (prefers-color-scheme: dark) { .b { fill: #6cb4f0 } .c { fill: #f2a36b } }"""


def svg(run: Run, summary: str) -> str:
    """The picture as text."""
    inversions = run.inversions()
    bins = [sum(_is_in(value * 1_000, place) for value in inversions) for place in range(len(BINS_MS) + 1)]
    names = [f"≤{edge}" for edge in BINS_MS] + [f">{BINS_MS[-1]}"]
    waits = [run.waits(band) for band in range(len(run.setup.mix))]
    middle = [quantile(wait, 0.5) * 1_000 for wait in waits]
    high = [quantile(wait, 0.99) * 1_000 for wait in waits]
    counts = Counter(start.shard for start in run.starts)
    by_shard = [float(counts[number]) for number in range(run.setup.shards)]
    worst = quantile(inversions, 1.0) * 1_000
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 330" role="img" aria-labelledby="title desc" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"14\">",
        f'<title id="title">{escape(summary)}</title>',
        f'<desc id="desc">Longest inversion {worst:.0f} ms; P0 waits {high[0]:.0f} ms at the 99th percentile; the '
        f"busiest shard has {run.skew():.2f} times the mean.</desc>",
        f"<style>{STYLE}{_COLOURS}\n    @media (prefers-color-scheme: dark) {{{DARK_STYLE}\n    }}\n  </style>",
        f'<rect class="page" width="{WIDTH}" height="330" rx="12"/>',
        f'<text class="name" x="{LEFT - 40}" y="34">{escape(summary)}</text>',
        *_panel(0, "inversions (starts, by ms)", [float(count) for count in bins], names),
        *_panel(1, "wait in ms: median, 99th", high, [f"P{band}" for band in range(len(high))], middle),
        *_panel(2, "starts by shard", by_shard, ["" for _ in by_shard]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _is_in(milliseconds: float, place: int) -> bool:
    low = 0.0 if place == 0 else BINS_MS[place - 1]
    return low < milliseconds and (place == len(BINS_MS) or milliseconds <= BINS_MS[place])


def _panel(
    place: int, title: str, bars: Sequence[float], names: Sequence[str], inner: Sequence[float] = ()
) -> list[str]:
    x0, most, width = LEFT + place * STEP, max([*bars, 1e-9]), PANEL / max(1, len(bars))
    base = TOP + HEIGHT
    parts = [
        f'<text class="head" x="{x0}" y="{TOP - 24}">{escape(title)}</text>',
        f'<text class="small" x="{x0}" y="{TOP - 6}">highest {most:,.0f}</text>',
        f'<path class="axis" d="M{x0} {TOP} V{base} H{x0 + PANEL}"/>',
    ]
    for index, (value, name) in enumerate(zip(bars, names, strict=True)):
        x = x0 + index * width + width * 0.1
        parts.append(_bar("b", x, base, width * 0.8, HEIGHT * value / most))
        if inner:
            parts.append(_bar("c", x + width * 0.25, base, width * 0.3, HEIGHT * inner[index] / most))
        if name:
            parts.append(f'<text class="small" x="{x:.1f}" y="{base + 18}">{escape(name)}</text>')
    return parts


def _bar(kind: str, x: float, base: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{base - height:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
