"""Queues as policies: presets, changes, pauses, and their push to the shards.

The control database owns a `Queue`; each shard has the newest version that it was told (`PolicyRow`), which the
statements read. So a change holds on a shard from the moment its push commits there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction
from django.db.models import F

from jobqueue.models import PolicyRow, Queue
from jobqueue.types import Scope
from jobsplatform import database
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, NotFound, Unavailable
from tenants import audit

CACHE_SECONDS: Final = 5.0  # the contract's bound for changes; absent names are never remembered


@dataclass(frozen=True, slots=True)
class Band:
    """A priority class of a queue. Weight counts opportunities a cycle; a strict band is served first."""

    name: str
    weight: int = 1
    strict: bool = False
    bulk: bool = False


PRESETS: Final[Mapping[str, tuple[tuple[Band, ...], int]]] = {
    "five": (
        (
            Band("P0", strict=True),
            Band("P1", weight=25),
            Band("P2", weight=13),
            Band("P3", weight=7, bulk=True),
            Band("P4", weight=5, bulk=True),
        ),
        2,
    ),
    "hnl": ((Band("H", weight=3), Band("N", weight=2), Band("L", weight=1)), 1),
    "high-normal": ((Band("high", weight=7), Band("normal", weight=3)), 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """A queue as the verbs use it. Times in seconds."""

    id: int
    name: str
    version: int
    bands: tuple[Band, ...]
    default_priority: int
    lease_s: int
    max_run_s: int
    max_attempts: int
    max_crashes: int
    max_releases: int | None
    backoff_base_s: float
    backoff_cap_s: float
    max_redrives: int
    depth_limit: int | None
    key_window_s: int
    dedup_window_s: int
    retention_s: int
    is_intake_paused: bool
    is_dispatch_paused: bool

    def priority(self, asked: int | str | None) -> int:
        """The index of a band asked for by index or name. Raises Invalid at /priority for one it does not have."""
        if asked is None:
            return self.default_priority
        if isinstance(asked, str):
            for index, band in enumerate(self.bands):
                if band.name == asked:
                    return index
        elif not isinstance(asked, bool) and 0 <= asked < len(self.bands):
            return asked
        names = ", ".join(band.name for band in self.bands)
        raise Invalid.at(
            "/priority", f"Queue {self.name} has the bands 0 to {len(self.bands) - 1} ({names})."
        )


_POLICY_FIELDS = [field.name for field in fields(QueuePolicy) if field.name not in ("id", "bands")]
_PUSHED_FIELDS = [field.name for field in PolicyRow._meta.concrete_fields if field.name != "queue_id"]
SETTABLE = frozenset(
    field.name
    for field in Queue._meta.concrete_fields
    if field.name not in ("id", "name", "preset", "bands", "version", "created_at", "default_priority")
    and not field.name.startswith("is_")
)

_cache: dict[str, tuple[float, QueuePolicy]] = {}
_names: dict[int, str] = {}


def _policy(queue: Queue) -> QueuePolicy:
    values = {name: getattr(queue, name) for name in _POLICY_FIELDS}
    return QueuePolicy(id=queue.pk, bands=tuple(Band(**band) for band in queue.bands), **values)


# Reading


def by_name(name: str) -> QueuePolicy:
    """The queue of that name, at most five seconds old. Raises NotFound."""
    held = _cache.get(name)
    if held is not None and held[0] > time.monotonic():
        return held[1]
    try:
        queue = Queue.objects.get(name=name)
    except Queue.DoesNotExist:
        _cache.pop(name, None)
        raise NotFound from None
    return _remember(queue)


def _remember(queue: Queue) -> QueuePolicy:
    policy = _policy(queue)
    _cache[queue.name] = (time.monotonic() + CACHE_SECONDS, policy)
    return policy


def visible(scope: Scope) -> tuple[QueuePolicy, ...]:
    """Every queue that a caller may use, by id."""
    queues = Queue.objects.order_by("pk")
    if scope.queue_ids is not None:
        queues = queues.filter(pk__in=scope.queue_ids)
    return tuple(_policy(queue) for queue in queues)


def names(queue_ids: set[int]) -> dict[int, str]:
    """Queue id → name, for those that exist. A queue keeps its name, so each process asks once."""
    missing = queue_ids - _names.keys()
    if missing:
        _names.update(Queue.objects.filter(pk__in=missing).values_list("pk", "name"))
    return {queue_id: _names[queue_id] for queue_id in queue_ids if queue_id in _names}


def forget() -> None:
    """Drop what is remembered."""
    _cache.clear()
    _names.clear()


# Changing


def create_queue(
    name: str, *, preset: str = "five", settings: Mapping[str, Any] | None = None, actor: str
) -> QueuePolicy:
    """Make a queue and tell every shard. Raises Invalid naming each bad value; a taken name is one of them."""
    if preset not in PRESETS:
        raise Invalid.at("/preset", f"There is no preset {preset!r}; there are {', '.join(PRESETS)}.")
    bands, default_priority = PRESETS[preset]
    described = [{"name": b.name, "weight": b.weight, "strict": b.strict, "bulk": b.bulk} for b in bands]
    queue = Queue(name=name, preset=preset, bands=described, default_priority=default_priority)
    _assign(queue, settings or {})
    with transaction.atomic():
        queue.save(force_insert=True)
        audit.record(
            "queue.create", f"queue:{name}", actor=actor, details={"preset": preset, **(settings or {})}
        )
    _require_reached(push(queue))
    return _remember(queue)


def change_queue(name: str, settings: Mapping[str, Any], *, actor: str, reason: str = "") -> QueuePolicy:
    """Change settings of a queue; from then on each shard that was reached uses them. Raises NotFound, Invalid."""
    with transaction.atomic():
        queue = _locked(name)
        before = {key: getattr(queue, key, None) for key in settings}
        _assign(queue, settings)
        _save(queue)
        details = {"before": before, "after": dict(settings)}
        audit.record("queue.change", f"queue:{name}", actor=actor, reason=reason, details=details)
    _require_reached(push(queue))
    return _remember(queue)


def pause(name: str, *, intake: bool = False, actor: str, reason: str = "") -> None:
    """Stop starting a queue's jobs (or, with `intake`, accepting them) until `resume`."""
    _switch(name, intake=intake, paused=True, actor=actor, reason=reason)


def resume(name: str, *, intake: bool = False, actor: str, reason: str = "") -> None:
    """Undo `pause`."""
    _switch(name, intake=intake, paused=False, actor=actor, reason=reason)


def _switch(name: str, *, intake: bool, paused: bool, actor: str, reason: str) -> None:
    field = "is_intake_paused" if intake else "is_dispatch_paused"
    with transaction.atomic():
        queue = _locked(name)
        setattr(queue, field, paused)
        _save(queue)
        verb = ("pause" if paused else "resume") + ("_intake" if intake else "")
        audit.record(f"queue.{verb}", f"queue:{name}", actor=actor, reason=reason)
    _require_reached(push(queue))
    _remember(queue)


def _locked(name: str) -> Queue:
    try:
        return Queue.objects.select_for_update().get(name=name)
    except Queue.DoesNotExist:
        raise NotFound(f"There is no queue {name!r}.") from None


def _save(queue: Queue) -> None:
    queue.version = F("version") + 1
    queue.save()
    queue.refresh_from_db()


def _assign(queue: Queue, settings: Mapping[str, Any]) -> None:
    unknown = [key for key in settings if key not in SETTABLE]
    if unknown:
        raise Invalid.at(
            f"/{unknown[0]}", f"{unknown[0]} is not a setting; there are {', '.join(sorted(SETTABLE))}."
        )
    for key, value in settings.items():
        setattr(queue, key, value)
    try:
        queue.full_clean()
    except ValidationError as error:
        raise Invalid(
            errors=[
                FieldError(f"/{key}", "invalid", f"{key}: {texts[0]}")
                for key, texts in error.message_dict.items()
            ]
        ) from error


# Telling the shards


def push(queue: Queue) -> list[int]:
    """Write the queue's policy to every shard, never an older version over a newer. Returns shards not reached."""
    values = {name: getattr(queue, name) for name in _PUSHED_FIELDS}
    unreached = []
    for number, alias in database.aliases().items():
        try:
            with transaction.atomic(using=alias):
                rows = PolicyRow.objects.using(alias)
                if not rows.filter(queue_id=queue.pk, version__lte=queue.version).update(**values):
                    rows.bulk_create([PolicyRow(queue_id=queue.pk, **values)], ignore_conflicts=True)
        except (DatabaseError, JobsPlatformError):
            unreached.append(number)
    return unreached


def push_by_name(name: str) -> None:
    """Push a queue's policy again, for a shard that does not have it."""
    queue = Queue.objects.filter(name=name).first()
    if queue is not None:
        push(queue)


def _require_reached(unreached: list[int]) -> None:
    if unreached:
        shards = ", ".join(map(str, unreached))
        raise Unavailable(f"The change is stored, but these shards were not reached: {shards}. Repeat it.")
