"""Calls about schedules: make, list, change, remove; run one now; see when one fires next."""

from __future__ import annotations

import re
from typing import Final

from jobqueue import policies
from jobqueue.api import names
from jobqueue.api.calls import require_queue, scope_of
from jobqueue.ids import format_id
from jobqueue.schedules import asking, expressions, preview, reads, register, runs
from jobqueue.schedules.reads import ScheduleView
from jobqueue.schedules.words import words as in_words
from jobqueue.states import MissedPolicy, OverlapPolicy
from jobsplatform import cursors
from jobsplatform.errors import NotFound
from jobsplatform.fields import (
    Instant,
    Integer,
    Schema,
)
from jobsplatform.http import Call, Endpoint, Reply, listing, splice
from jobsplatform.instants import format_instant, format_optional
from jobsplatform.schemas import (
    ANY,
    INSTANT,
    INSTANT_OR_NULL,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    described,
    page_of,
    words,
)
from jobsplatform.shapes import Shape

NEXT_MAX: Final = 100
NEXT_DEFAULT: Final = 5
_ID: Final = re.compile("[1-9][0-9]{0,17}").fullmatch


RUN_NOW: Final = Shape("RunNow")
NEXT: Final = Shape(
    "NextFires",
    Integer(name="count", low=1, high=NEXT_MAX, default=NEXT_DEFAULT),
    Instant(name="after", doc="Default: now."),
)

SCHEDULE: Final[Schema] = described(
    "Schedule",
    {
        "id": TEXT,
        "tenant": TEXT,
        "name": TEXT,
        "kind": TEXT,
        "cron": TEXT,
        "in_words": TEXT,
        "queue": TEXT,
        "priority": NUMBER,
        "timezone": TEXT,
        "missed": words(MissedPolicy.values),
        "overlap": words(OverlapPolicy.values),
        "enabled": TRUTH,
        "created_at": INSTANT,
        "next_at": INSTANT_OR_NULL,
        "last_fired_at": INSTANT_OR_NULL,
        "last_job_id": TEXT_OR_NULL,
        "missed_count": NUMBER_OR_NULL,
        "payload": ANY,
    },
)
RUN: Final[Schema] = described("ScheduleRun", {"job_id": TEXT, "replayed": TRUTH})
INSTANTS: Final[Schema] = described("Instants", {"items": {"type": "array", "items": INSTANT}})


class ScheduleEndpoint(Endpoint):
    """Every call about schedules is a tenant's: a fleet token names the tenant."""

    needs_tenant = True


class CreateSchedule(ScheduleEndpoint):
    """Make a schedule. 201: it is durable, and fires from its next instant on."""

    body = asking.NEW_SCHEDULE
    takes_idempotency_key = True
    replies = {201: SCHEDULE}

    def check(self, call: Call) -> None:
        assert call.tenant is not None, "the endpoint needs a tenant"
        self.new = asking.new_schedule(call.body, call.tenant.id)

    def act(self, call: Call) -> Reply:
        require_queue(call, self.new.queue)
        made = register.create(self.new, actor=call.known.actor, key=call.idempotency_key)
        return Reply(201, shown(made), {"Location": f"/v1/schedules/{made.id}"})


class ListSchedules(ScheduleEndpoint):
    """Schedules, newest first."""

    query = cursors.listing_query("SchedulePage")
    replies = {200: page_of(SCHEDULE)}

    def check(self, call: Call) -> None:
        self.before = cursors.read(call)

    def act(self, call: Call) -> Reply:
        before = None if self.before is None else self.before[0]
        views, last = reads.page(scope=scope_of(call), before=before, limit=call.query["limit"])
        following = cursors.write(call, None if last is None else (last,))
        return Reply(200, listing("items", map(shown, views), {"next": following}))


class ShowSchedule(ScheduleEndpoint):
    """One schedule, and how it stands."""

    replies = {200: SCHEDULE}

    def act(self, call: Call) -> Reply:
        row = reads.find(asked_for(call), scope=scope_of(call))
        return Reply(200, shown(reads.views([row])[0]))


class ChangeSchedule(ScheduleEndpoint):
    """Change what is given. Another expression or zone, or an end of a pause, begins with the next instant from now."""

    body = asking.CHANGED_SCHEDULE
    replies = {200: SCHEDULE}

    def check(self, call: Call) -> None:
        self.queue = asking.check_change(call.body)

    def act(self, call: Call) -> Reply:
        scope = scope_of(call)
        if self.queue is not None:
            require_queue(call, self.queue)
        row = reads.find(asked_for(call), scope=scope)
        changes = asking.changes(call.body, self.queue or policies.by_name(row.queue.name))
        changed = register.change(row.pk, changes, queue=self.queue, scope=scope, actor=call.known.actor)
        return Reply(200, shown(changed))


class DeleteSchedule(ScheduleEndpoint):
    """Remove a schedule; the jobs that it made stay."""

    replies = {204: {}}

    def act(self, call: Call) -> Reply:
        register.remove(asked_for(call), scope=scope_of(call), actor=call.known.actor)
        return Reply(204)


class RunNow(ScheduleEndpoint):
    """Make a job of the schedule now, also while it is paused. 201: the job is durable."""

    body = RUN_NOW
    takes_idempotency_key = True
    replies = {201: RUN, 200: RUN}

    def act(self, call: Call) -> Reply:
        run = runs.run_now(
            asked_for(call), scope=scope_of(call), actor=call.known.actor, key=call.idempotency_key
        )
        job_id = format_id(run.job_id)
        members = {"job_id": job_id, "replayed": run.replayed}
        return Reply(200 if run.replayed else 201, members, {"Location": f"/v1/jobs/{job_id}"})


class ShowNext(ScheduleEndpoint):
    """The next instants after one (without: after now), whether the schedule is enabled or not."""

    query = NEXT
    replies = {200: INSTANTS}

    def act(self, call: Call) -> Reply:
        row = reads.find(asked_for(call), scope=scope_of(call))
        after = call.query["after"] or register.clock()
        rule = expressions.rule(row.cron, row.timezone)
        found = preview.upcoming(rule, after, call.query["count"])
        return Reply(200, {"items": [format_instant(fire.at) for fire in found]})


def asked_for(call: Call) -> int:
    """The schedule that the path names. Raises NotFound for what no schedule is called."""
    text = call.path["schedule_id"]
    if _ID(text) is None:
        raise NotFound
    return int(text)


def shown(view: ScheduleView) -> str:
    """A schedule as JSON text; its payload comes back digit for digit."""
    members = {
        "id": str(view.id),
        "tenant": names.slugs([view.tenant_id]).get(view.tenant_id, ""),
        "name": view.name,
        "kind": view.kind,
        "cron": view.cron,
        "in_words": in_words(view.cron),
        "queue": view.queue,
        "priority": view.priority,
        "timezone": view.timezone,
        "missed": view.missed,
        "overlap": view.overlap,
        "enabled": view.is_enabled,
        "created_at": format_instant(view.created_at),
        "next_at": format_optional(view.next_at),
        "last_fired_at": format_optional(view.last_fired_at),
        "last_job_id": None if view.last_job_id is None else format_id(view.last_job_id),
        "missed_count": view.missed_count,
    }
    return splice(members, {"payload": view.payload})
