"""How the course of what waited is drawn, on operators' and on tenants' pages alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from jobqueue.depths import SPANS, Course, Level
from jobsplatform.frame import Chart, Fragment, Line

LINES_MAX: Final = 6  # that a chart tells apart
EVERY_SECONDS: Final = 30


def fragment(read: Callable[[], Course], *, of_one_queue: bool = False) -> Fragment:
    """Depth and age as a part of a page. `read` gives the course; the page's address names the span."""

    def context() -> Mapping[str, Any]:
        course = read()
        spans = [(span.name, span.words, span is course.span) for span in SPANS.values()]
        return {"charts": charts(course, of_one_queue=of_one_queue), "spans": spans}

    return Fragment("frame/depths.html", context, every_s=EVERY_SECONDS)


def charts(course: Course, *, of_one_queue: bool) -> list[Chart]:
    """Depth and age of the deepest levels, each with its table; where nothing waited, a line at zero."""
    shown = list(course.levels[:LINES_MAX])
    count = len(course.levels)
    left_out = f"the {LINES_MAX} deepest of {count} levels" if count > LINES_MAX else ""
    capped = "counted up to a bound" if course.is_capped else ""
    nothing = [Line("nothing waited", [0.0] * len(course.at))]
    names = [_label(level, of_one_queue) for level in shown]
    ready = [Line(name, level.ready) for name, level in zip(names, shown, strict=True)]
    age = [Line(name, level.age_s) for name, level in zip(names, shown, strict=True)]
    notes = "; ".join(note for note in (left_out, capped) if note)
    return [
        Chart("depth", "Ready", course.at, ready or nothing, unit="jobs", note=notes),
        Chart("age", "Oldest ready", course.at, age or nothing, "s", is_logarithmic=bool(age), note=left_out),
    ]


def _label(level: Level, of_one_queue: bool) -> str:
    return level.band if of_one_queue else f"{level.queue} {level.band}"
