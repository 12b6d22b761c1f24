"""Dead letters and their ways back on `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import prometheus_client
from prometheus_client.metrics_core import Metric

from jobqueue.states import DeadReason
from jobsplatform import events, metrics
from jobsplatform.metrics import Ask, counter, gauge

LETTERS_MAX: Final = 10_000  # of a reason and shard that are counted

_OUTCOMES: Final = ("redriven", "succeeded", "failed", "ended")


@metrics.add_source
def of_dead_letters() -> Iterator[Metric]:
    """How many for each reason, the oldest of each, and what campaigns have done."""
    letters, oldest, done = Counter[str](), dict[str, float](), Counter[str]()
    for alias in metrics.shards():
        rows, campaigns = metrics.asked(alias, _read) or ([], ())
        for reason, count, seconds in rows:
            letters[reason] += count
            oldest[reason] = max(seconds or 0.0, oldest.get(reason, 0.0))
        done.update(dict(zip(_OUTCOMES, campaigns, strict=False)))
    text = f"Dead letters, counted up to {LETTERS_MAX:,} a reason and shard."
    yield gauge("dead_letters", text, ("reason",), {(r,): float(letters[r]) for r in DeadReason.values})
    yield gauge(
        "oldest_dead_letter_seconds",
        "For how long the oldest dead letter lies (0: there is none).",
        ("reason",),
        {(r,): oldest.get(r, 0.0) for r in DeadReason.values},
    )
    yield counter(
        "campaign_redrives",
        "Jobs that campaigns redrove, and what became of them.",
        ("outcome",),
        {(word,): float(done[word]) for word in _OUTCOMES},
    )


def _read(ask: Ask) -> tuple[list[tuple[Any, ...]], tuple[int, ...]]:
    params = {"reasons": DeadReason.values, "bound": LETTERS_MAX, "now": None}
    return ask("dlq/metrics_letters", params), ask("dlq/metrics_campaigns", {})[0]


# Counters of processes

_redrives = prometheus_client.Counter(
    "jobsplatform_redrives",
    "Redrives that were asked for one by one, by what came of them: where the job went, or the refusal.",
    ("outcome",),
)


def count(name: str, fields: dict[str, Any]) -> None:
    """A subscriber of events."""
    if name == "redrive":
        _redrives.labels(fields["outcome"]).inc()


events.subscribe(count)
