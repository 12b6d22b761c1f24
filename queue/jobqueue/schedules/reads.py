"""What is known of schedules: the register says what they are, their shards how they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet

from jobqueue.schedule_models import Schedule
from jobqueue.types import Scope
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, NotFound

# What a caller may set of a schedule beside its queue.
SETTABLE: Final = (
    "name",
    "kind",
    "cron",
    "timezone",
    "payload",
    "priority",
    "missed",
    "overlap",
    "is_enabled",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule and how it stands; what its shard alone knows is None while that cannot be reached."""

    id: int
    tenant_id: int
    queue: str
    name: str
    kind: str
    cron: str
    timezone: str
    payload: str
    priority: int
    missed: str
    overlap: str
    is_enabled: bool
    created_at: datetime
    next_at: datetime | None = None
    missed_count: int | None = None
    last_nominal_at: datetime | None = None
    last_fired_at: datetime | None = None
    last_job_id: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What a shard knows of a schedule."""

    version: int
    next_at: datetime | None
    missed_count: int = 0
    last_nominal_at: datetime | None = None
    last_fired_at: datetime | None = None
    last_job_id: int | None = None


def visible(scope: Scope) -> QuerySet[Schedule]:
    """The schedules that a caller may see."""
    found = Schedule.objects.select_related("tenant", "queue")
    if scope.tenant_id is not None:
        found = found.filter(tenant_id=scope.tenant_id)
    return found if scope.queue_ids is None else found.filter(queue_id__in=scope.queue_ids)


def find(schedule_id: int, *, scope: Scope) -> Schedule:
    """Raises NotFound."""
    found = visible(scope).filter(pk=schedule_id).first()
    if found is None:
        raise NotFound
    return found


def page(*, scope: Scope, before: int | None, limit: int) -> tuple[list[ScheduleView], int | None]:
    """Schedules, newest first, and where the next page begins (None: nowhere)."""
    rows = visible(scope).order_by("-pk")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows[: limit + 1])
    last: int | None = found[limit - 1].pk if len(found) > limit else None
    return views(found[:limit]), last


def count(tenant_id: int, *, queue: str = "", band: int | None = None, beside: int | None = None) -> int:
    """How many schedules a tenant has (in one queue, in one band; not counting `beside`)."""
    found = Schedule.objects.filter(tenant_id=tenant_id)
    if beside is not None:
        found = found.exclude(pk=beside)
    if queue:
        found = found.filter(queue__name=queue)
    return (found if band is None else found.filter(priority=band)).count()


def views(rows: Sequence[Schedule]) -> list[ScheduleView]:
    """Schedules with how they stand: one statement a shard."""
    known = standings(rows)
    return [view(row, known.get(row.pk)) for row in rows]


def view(row: Schedule, standing: Standing | None) -> ScheduleView:
    """One schedule, as it stands."""
    held: dict[str, Any] = {} if standing is None else asdict(standing)
    held.pop("version", None)
    if not row.is_enabled:
        held["next_at"] = None
    settings: dict[str, Any] = {name: getattr(row, name) for name in SETTABLE}
    own: dict[str, Any] = {
        "id": row.pk,
        "tenant_id": row.tenant_id,
        "queue": row.queue.name,
        "created_at": row.created_at,
    }
    return ScheduleView(**own, **settings, **held)


def standings(rows: Iterable[Schedule]) -> dict[int, Standing]:
    """How schedules stand on their shards; those of a shard that cannot be reached are missing."""
    by_shard: dict[int, list[int]] = {}
    for row in rows:
        by_shard.setdefault(row.shard, []).append(row.pk)
    found: dict[int, Standing] = {}
    for shard, ids in by_shard.items():
        alias = database.aliases().get(shard)
        try:
            found.update({} if alias is None else on_shard(alias, ids))
        except JobsPlatformError:
            continue
    return found


def on_shard(alias: str, ids: list[int] | None = None) -> dict[int, Standing]:
    """How these schedules (None: all that are there) stand on one shard."""
    rows = sql.rows("jobqueue/schedule_standing", {"schedule_ids": ids}, alias=alias)
    return {schedule_id: Standing(*values) for schedule_id, *values in rows}
