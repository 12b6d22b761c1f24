"""Named events of the domain: whoever acts emits, subscribers decide what becomes a log line or a metric.

Names are the verbs of the glossary (`claimed`, `reaped`, …); fields are numbers, ids and short names, never
payloads. Emit once a batch, with a `count`, not once a job.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Final

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

Subscriber = Callable[[str, dict[str, Any]], None]

_log = structlog.stdlib.get_logger("jobsplatform.events")
_fallback = logging.getLogger("jobsplatform.events")
_subscribers: list[Subscriber] = []

# What happens all the time is told at DEBUG; what an operator should look at, as a warning.
ROUTINE: Final = frozenset(
    {
        "enqueued",
        "promoted",
        "fired",
        "aged",
        "claimed",
        "renewed",
        "completed",
        "released",
        "folded",
        "swept",
        "purged",
        "expired",
        "refused",
        "campaign_advanced",
        "given_back",
        "redrive",
    }
)
WORRYING: Final = frozenset(
    {
        "quarantined",
        "breaker_open",
        "lane_gated",
        "inverted",
        "lease_lost",
        "pass_failed",
        "database_down",
        "database_lost",
        "slots_waiting",
        "executor_ended",
        "executor_hung",
        "executor_overrun",
        "executor_stuck",
        "settle_failed",
        "settle_refused",
        "settle_rejected",
        "worker_loop_failed",
        "quota_warning",
        "fires_missed",
        "schedule_unreadable",
        "campaign_stopped",
        "dead_letters_growing",
        "listener_lost",
        "listener_pooled",
        "notify_failed",
        "hub_failed",
        "csp_violation",
        "beat_failed",
        "login_refused",
        "code_refused",
    }
)
# Fields of these names are counts of their own: `reaped ready=3 dead=1`.
OUTCOMES: Final[tuple[str, ...]] = ("ready", "scheduled", "succeeded", "dead", "cancelled", "expired")

QUEUES_MAX: Final = 200  # that a process counts by name; the rest are `other`
_queues: set[str] = set()

_counter = Counter(
    "jobsplatform_events",
    "What the platform did, by event, queue and outcome.",
    ("event", "queue", "outcome"),
)

_aged = Counter(
    "jobsplatform_aged", "Jobs started in a more urgent band than their own, having waited.", ("queue",)
)


def emit(name: str, **fields: Any) -> None:
    """Tell all subscribers; a subscriber that fails is logged and never disturbs the caller."""
    for subscriber in tuple(_subscribers):
        try:
            subscriber(name, fields)
        except Exception:
            _fallback.exception("subscriber failed on %s", name)


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Add a subscriber; the returned function takes it away again."""
    _subscribers.append(subscriber)
    return lambda: _subscribers.remove(subscriber)


def log(name: str, fields: dict[str, Any]) -> None:
    """One log line an event."""
    level = logging.DEBUG if name in ROUTINE else logging.WARNING if name in WORRYING else logging.INFO
    _log.log(level, name, **fields)


def measure(name: str, fields: dict[str, Any]) -> None:
    """Count the event, by outcome where it tells several. Labels are names of ours: few, for ever."""
    queue = bounded_queue(str(fields.get("queue", "")))
    led: dict[str, Any] = {outcome: fields[outcome] for outcome in OUTCOMES if outcome in fields}
    for outcome, count in (led or {str(fields.get("outcome", "")): fields.get("count", 1)}).items():
        _counter.labels(name, queue, outcome).inc(count)
    if name == "aged":
        _aged.labels(queue).inc(fields["count"])


def bounded_queue(name: str) -> str:
    """The name as a label: those that a process met first, and `other` once there are too many."""
    if name not in _queues:
        if len(_queues) >= QUEUES_MAX:
            return "other"
        _queues.add(name)
    return name


def exposition() -> bytes:
    """The counters of this process, or of all processes of the machine where they share a folder."""
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


subscribe(log)
subscribe(measure)
