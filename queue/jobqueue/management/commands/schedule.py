"""`manage.py schedule list|create|next|pause|resume|run-now|delete`: the schedules of a tenant."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from django.core.management.base import CommandParser

from jobqueue.ids import format_id
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.schedule_models import Schedule
from jobqueue.schedules import asking, expressions, preview, reads, register, runs
from jobqueue.schedules.reads import ScheduleView
from jobqueue.schedules.words import words
from jobqueue.states import MissedPolicy, OverlapPolicy
from jobqueue.types import Scope
from jobsplatform.commands import VerbCommand, actor, checked, key
from jobsplatform.errors import Invalid, NotFound
from jobsplatform.instants import format_instant, parse_instant
from jobsplatform.strictjson import raw
from tenants import registry

LIST_MAX: Final = 200  # the newest; more are named by a line
NEXT_MAX: Final = 100
MEMBERS: Final = ("name", "kind", "cron", "queue", "priority", "timezone", "missed", "overlap")


class Command(VerbCommand):
    help = "Schedules of a tenant. SCHEDULE is an id, or a name that only one of the tenant's schedules has."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, text, takes_one in (
            ("list", "the newest schedules, how they stand, and their expressions in words", False),
            ("create", "make one", False),
            ("next", "its next fires, with a note where clocks change", True),
            ("pause", "fire no more until resume; nothing is made up", True),
            ("resume", "go on with the next instant", True),
            ("run-now", "make its job now, also while it is paused", True),
            ("delete", "remove it; jobs that it made stay", True),
        ):
            action = actions.add_parser(name, help=text, allow_abbrev=False)
            action.error = lambda message: parser.error(message)  # type: ignore[method-assign]  # in one line
            action.add_argument("--tenant", required=True, metavar="SLUG")
            if takes_one:
                action.add_argument("schedule", metavar="SCHEDULE", help="its id or its name")
            if name in ("pause", "resume", "run-now", "delete"):
                action.add_argument("--reason", default="", help="for the audit")
            _add_own(name, action)

    def act(self, options: dict[str, Any]) -> None:
        if len(options.get("reason") or "") > REASON_CHARS_MAX:
            raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
        scope = Scope(tenant_id=registry.get(options["tenant"]).pk)
        verbs: dict[str, Callable[[Scope, dict[str, Any]], None]] = {
            "list": self._list,
            "create": self._create,
            "next": self._next,
            "run-now": self._run_now,
            "delete": self._delete,
        }
        verbs.get(options["action"], self._switch)(scope, options)

    def _list(self, scope: Scope, options: dict[str, Any]) -> None:
        views, more = reads.page(scope=scope, before=None, limit=LIST_MAX)
        for view in views:
            self.stdout.write(_line(view))
        if more is not None:
            self.stdout.write(f"Older ones than {more} are not shown.")

    def _create(self, scope: Scope, options: dict[str, Any]) -> None:
        members = {name: options[name] for name in MEMBERS if options[name] is not None}
        if members.get("priority", "").isdecimal():
            members["priority"] = int(members["priority"])
        if options["paused"]:
            members["enabled"] = False
        text = json.dumps(members)
        if options["payload"] is not None:
            raw(options["payload"])
            text = f'{text[:-1]}, "payload": {options["payload"]}}}'
        assert scope.tenant_id is not None
        new = asking.new_schedule(checked(asking.NEW_SCHEDULE, text), scope.tenant_id)
        self.stdout.write(_line(register.create(new, actor=actor())))

    def _next(self, scope: Scope, options: dict[str, Any]) -> None:
        row = _found(options["schedule"], scope)
        rule = expressions.rule(row.cron, row.timezone)
        after = options["after"] or register.clock()
        self.stdout.write(f"{words(row.cron)} ({row.cron}), {row.timezone}")
        for fire in preview.upcoming(rule, after, options["count"]):
            wall = f"{fire.wall:%a %Y-%m-%d %H:%M} {preview.offset_words(fire)}"
            note = f"  {fire.note}" if fire.note else ""
            self.stdout.write(f"{fire.at:%Y-%m-%dT%H:%MZ}  {wall}{note}")

    def _switch(self, scope: Scope, options: dict[str, Any]) -> None:
        verb = register.pause if options["action"] == "pause" else register.resume
        row = _found(options["schedule"], scope)
        self.stdout.write(_line(verb(row.pk, scope=scope, actor=actor(), reason=options["reason"])))

    def _run_now(self, scope: Scope, options: dict[str, Any]) -> None:
        row = _found(options["schedule"], scope)
        run = runs.run_now(
            row.pk, scope=scope, actor=actor(), key=options["request_key"], reason=options["reason"]
        )
        self.stdout.write(f"{format_id(run.job_id)}{' (made before)' if run.replayed else ''}")

    def _delete(self, scope: Scope, options: dict[str, Any]) -> None:
        row = _found(options["schedule"], scope)
        register.remove(row.pk, scope=scope, actor=actor(), reason=options["reason"])
        self.stdout.write(f"Schedule {row.pk} ({row.name}) is removed.")


def _add_own(name: str, action: CommandParser) -> None:
    """The arguments of one action alone."""
    add = action.add_argument
    if name == "create":
        add("--name", required=True)
        add("--kind", required=True, help="the handler that its jobs need")
        add("--cron", required=True, metavar="'M H D M W'", help="five fields")
        add("--queue", help="(default)")
        add("--priority", metavar="BAND", help="a band's index or name (the queue's default)")
        add("--payload", metavar="JSON", help="(null)")
        add("--timezone", metavar="ZONE", help="(UTC)")
        add("--missed", choices=MissedPolicy.values, help="fires that nobody made in time (one)")
        add("--overlap", choices=OverlapPolicy.values, help="while an earlier job is not done (allow)")
        add("--paused", action="store_true", help="do not fire before resume")
    if name == "next":
        add("--count", type=_count, default=5, metavar="N", help=f"1 to {NEXT_MAX} (5)")
        add("--after", type=_instant, metavar="INSTANT", help="RFC 3339 with an offset (now)")
    if name == "run-now":
        add("--request-key", type=key, metavar="KEY", help="a repeat with the same key makes nothing new")


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= NEXT_MAX:
        raise ValueError
    return number


_count.__name__ = "count"  # what argparse calls it when it refuses a text


def _instant(text: str) -> Any:
    return parse_instant(text)


_instant.__name__ = "instant"


def _found(text: str, scope: Scope) -> Schedule:
    """The schedule of that id or name. Raises NotFound, and Invalid for a name that several have."""
    visible = reads.visible(scope)
    if text.isascii() and text.isdecimal() and len(text) < 19:
        named = list(visible.filter(pk=int(text)))
        if named:
            return named[0]
    named = list(visible.filter(name=text).order_by("pk")[:10])
    if not named:
        raise NotFound(f"There is no schedule {text!r}.")
    if len(named) > 1:
        ids = ", ".join(str(row.pk) for row in named)
        raise Invalid.at("/schedule", f"Several schedules are called {text!r}: {ids}. Name one by its id.")
    return named[0]


def _line(view: ScheduleView) -> str:
    when = "paused" if not view.is_enabled else "never again"
    if view.is_enabled and view.next_at is not None:
        when = f"next {format_instant(view.next_at)}"
    missed = f", {view.missed_count} missed" if view.missed_count else ""
    return (
        f"{view.id}  {view.name}  {view.kind} in {view.queue}  {view.cron} {view.timezone}"
        f" ({words(view.cron)})  {when}{missed}"
    )
