"""Schedules for the tests: made by the verbs, and looked at by dispatchers at chosen instants."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jobqueue.schedules import firing, reads, register
from jobqueue.schedules.reads import ScheduleView
from jobqueue.types import FLEET
from tests import cast


def utc(text: str) -> datetime:
    """`2035-05-04 12:00` as an instant."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def made(**changes: Any) -> ScheduleView:
    """A schedule of acme: every hour, unless `changes` say otherwise; `next_at` is where it stands on its shard."""
    next_at = changes.pop("next_at", None)
    values: dict[str, Any] = {"name": "hourly", "kind": "report", "cron": "0 * * * *", **changes}
    values.setdefault("queue", None)
    values["queue"] = values["queue"] or cast.queue()
    values.setdefault("tenant_id", cast.acme().pk)
    values.setdefault("priority", values["queue"].default_priority)
    key = values.pop("key", None)
    view = register.create(register.NewSchedule(**values), actor=cast.OPS, key=key)
    if next_at is not None:
        stand(view.id, next_at)
    return view


def stand(schedule_id: int, next_at: datetime) -> None:
    """Let a schedule stand before a chosen instant, as if it had been made long ago."""
    cast.read(
        "UPDATE queue_schedulerow SET next_at = %s, due_at = %s WHERE schedule_id = %s RETURNING 1",
        [next_at, next_at, schedule_id],
    )


def standing(schedule_id: int) -> dict[str, Any]:
    """The schedule's row on its shard."""
    columns = "next_at, due_at, missed_count, last_nominal_at, last_job_id, runs, version, is_enabled"
    (row,) = cast.read(f"SELECT {columns} FROM queue_schedulerow WHERE schedule_id = %s", [schedule_id])
    return dict(zip(columns.split(", "), row, strict=True))


def fires(schedule_id: int) -> list[datetime]:
    """The instants that became jobs, in the order in which their jobs were made."""
    rows = cast.read(
        "SELECT nominal_at FROM queue_schedulefire WHERE schedule_id = %s AND outcome = 'fired' ORDER BY job_id",
        [schedule_id],
    )
    return [at for (at,) in rows]


def jobs(schedule_id: int) -> list[int]:
    rows = cast.read(
        "SELECT job_id FROM queue_schedulefire WHERE schedule_id = %s AND job_id IS NOT NULL ORDER BY id",
        [schedule_id],
    )
    return [job_id for (job_id,) in rows]


def count_jobs() -> int:
    return int(cast.read("SELECT count(*) FROM queue_job")[0][0])


def tick(at: datetime, limit: int = 1_000) -> int:
    """One look of a dispatcher."""
    return firing.fire(limit, at)


def shown(schedule_id: int) -> ScheduleView:
    return reads.views([reads.find(schedule_id, scope=FLEET)])[0]
