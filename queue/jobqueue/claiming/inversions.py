"""Measures starts that passed over more urgent work on another shard: how long it had been visible by then.

Only starts outside a band's share count, and only work two levels more urgent; at most what one word of a shard is old
is expected, above `ALARM_S` an alarm is told. The reason of each start stands in its lease and attempt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import Final

from prometheus_client import Counter, Histogram

from jobqueue.policies import QueuePolicy
from jobqueue.policy.routing import Inversions, Waiting
from jobqueue.policy.types import Chosen
from jobsplatform import events

ALARM_S: Final = 0.1
METERS_MAX: Final = 1_000  # queues that a process watches

_starts = Counter("jobsplatform_starts", "Starts over several shards, by why each was chosen.", ("reason",))
_passed = Histogram(
    "jobsplatform_inversion_seconds",
    "How long work two levels more urgent had been visible at a start outside a share.",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
)

_meters: dict[int, Inversions] = {}
_lock = threading.Lock()
_worst_s = 0.0


def started(queue: QueuePolicy, band: int, chosen: Chosen, count: int, known: Collection[int]) -> None:
    """So many jobs of a band were started, while the map showed work in the bands `known`."""
    if not count:
        return
    _starts.labels(chosen.value).inc(count)
    with _lock:
        if len(_meters) > METERS_MAX:
            _meters.clear()
        _meters.setdefault(queue.id, Inversions()).started(time.time(), band, chosen, known)


def seen(queue_id: int, bands: Mapping[int, Waiting]) -> None:
    """A shard's newest word on a queue."""
    global _worst_s
    with _lock:
        meter = _meters.get(queue_id)
        waits = [] if meter is None else [waited for _, waited in meter.seen(bands)]
    for waited in waits:
        _passed.observe(waited)
        _worst_s = max(_worst_s, waited)
    if waits and max(waits) > ALARM_S:
        events.emit("inverted", queue_id=queue_id, count=len(waits), seconds=round(max(waits), 3))


def worst_s() -> float:
    """The longest inversion that this process has met."""
    return _worst_s


def forget() -> None:
    """Drop what is remembered."""
    global _worst_s
    with _lock:
        _meters.clear()
    _worst_s = 0.0
