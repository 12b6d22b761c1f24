"""What may be asked of a schedule, whoever asks: the members of a body, and what they mean for the register."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobqueue import policies
from jobqueue.limits import PAYLOAD_BYTES_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.schedules import expressions
from jobqueue.schedules.register import NewSchedule
from jobqueue.states import MissedPolicy, OverlapPolicy
from jobsplatform.errors import Invalid, NotFound
from jobsplatform.fields import Boolean, Choice, Field, IndexOrName, Json, Name, Text
from jobsplatform.shapes import Shape

NAME_CHARS_MAX: Final = 200
ZONE_CHARS_MAX: Final = 64
QUEUE_CHARS_MAX: Final = 64
BAND_MAX: Final = 99
DEFAULT_QUEUE: Final = "default"


def _fields(*, is_new: bool) -> list[Field]:
    """The members of a schedule; in a change all are optional, and an absent one stays as it is."""

    def default(value: Any) -> Any:
        return value if is_new else None

    return [
        Text(name="name", required=is_new, not_blank=True, chars_min=1, chars_max=NAME_CHARS_MAX),
        Name(name="kind", required=is_new, doc="The handler that its jobs need."),
        Text(
            name="cron",
            required=is_new,
            chars_min=1,
            chars_max=expressions.CHARS_MAX,
            doc="Five fields: minute, hour, day of the month, month, day of the week.",
        ),
        Text(name="queue", chars_min=1, chars_max=QUEUE_CHARS_MAX, default=default(DEFAULT_QUEUE)),
        Json(name="payload", bytes_max=PAYLOAD_BYTES_MAX, default=default("null")),
        IndexOrName(name="priority", high=BAND_MAX, doc="Default: the queue's."),
        Text(
            name="timezone",
            chars_min=1,
            chars_max=ZONE_CHARS_MAX,
            default=default("UTC"),
            doc="Exactly a name of the tz database.",
        ),
        Choice(name="missed", choices=MissedPolicy.values, default=default(MissedPolicy.ONE.value)),
        Choice(name="overlap", choices=OverlapPolicy.values, default=default(OverlapPolicy.ALLOW.value)),
        Boolean(name="enabled", default=default(True)),
    ]


NEW_SCHEDULE: Final = Shape("NewSchedule", *_fields(is_new=True))
CHANGED_SCHEDULE: Final = Shape("ScheduleChange", *_fields(is_new=False))


def new_schedule(values: Mapping[str, Any], tenant_id: int) -> NewSchedule:
    """The schedule that a checked body asks for. Raises Invalid for an expression, zone, queue or band that is none."""
    expressions.rule(values["cron"], values["timezone"])
    queue = queue_named(values["queue"])
    return NewSchedule(
        tenant_id=tenant_id,
        queue=queue,
        name=values["name"],
        kind=values["kind"],
        cron=values["cron"],
        timezone=values["timezone"],
        payload=values["payload"],
        priority=queue.priority(values["priority"]),
        missed=values["missed"],
        overlap=values["overlap"],
        is_enabled=values["enabled"],
    )


def check_change(values: Mapping[str, Any]) -> QueuePolicy | None:
    """The queue that a change names, if it names one. Raises Invalid for an expression, zone or queue that is none."""
    if values["cron"] is not None:
        expressions.fields(values["cron"])
    if values["timezone"] is not None:
        expressions.zone(values["timezone"])
    return None if values["queue"] is None else queue_named(values["queue"])


def changes(values: Mapping[str, Any], queue: QueuePolicy) -> dict[str, Any]:
    """What a change gives, in the register's words. Raises Invalid for a band that the queue does not have."""
    given = {name: value for name, value in values.items() if value is not None and name != "queue"}
    if "enabled" in given:
        given["is_enabled"] = given.pop("enabled")
    if "priority" in given:
        given["priority"] = queue.priority(given["priority"])
    return given


def queue_named(name: str) -> QueuePolicy:
    """Raises Invalid at /queue."""
    try:
        return policies.by_name(name)
    except NotFound:
        raise Invalid.at("/queue", "There is no such queue.", "unknown_queue") from None
