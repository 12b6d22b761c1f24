"""A tenant's schedules: in words, with what comes next and where clocks change; paused, resumed, run by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.http import HttpResponse

from dlq.portal.door import Visit
from jobqueue.ids import format_id
from jobqueue.schedules import expressions, preview, reads, register, runs
from jobqueue.schedules.reads import ScheduleView
from jobqueue.schedules.words import words
from jobsplatform.adminsite import ReasonForm
from jobsplatform.errors import Invalid, JobsPlatformError
from tenants.members import Right

SHOWN: Final = 50
NEXT_SHOWN: Final = 5


def schedules(visit: Visit) -> HttpResponse:
    """A page of schedules, newest first."""
    before = visit.request.GET.get("before", "")
    place = int(before) if before.isdecimal() and len(before) < 19 else None
    found, following = reads.page(scope=visit.scope, before=place, limit=SHOWN)
    context = {
        "rows": [(view, words(view.cron), visit.url("schedule", view.id)) for view in found],
        "following": following,
    }
    return visit.page("portal/schedules.html", context, title="Schedules")


def schedule(visit: Visit, schedule: int) -> HttpResponse:
    """One schedule and its next fires."""
    view = _view(visit, schedule)
    last_job = view.last_job_id
    context = {
        "view": view,
        "in_words": words(view.cron),
        "fires": [(fire, preview.offset_words(fire)) for fire in _next(view)],
        "last_job": None
        if last_job is None
        else (format_id(last_job), visit.url("job", format_id(last_job))),
        "urls": {verb: visit.url(verb, schedule) for verb in ("run", "pause", "resume")},
    }
    return visit.page("portal/schedule.html", context, title=view.name, crumbs=_crumbs(visit))


def run(visit: Visit, schedule: int) -> HttpResponse:
    """Ask, then make its job now."""

    def act(said: Mapping[str, Any]) -> str:
        made = runs.run_now(schedule, scope=visit.scope, actor=visit.member.actor, reason=said["reason"])
        return f"Job {format_id(made.job_id)} was made."

    intro = "Its job is made now, beside its fires, also while it is paused."
    return _ask(visit, schedule, "Run", intro, act, "Run it now")


def pause(visit: Visit, schedule: int) -> HttpResponse:
    """Ask, then fire no more."""

    def act(said: Mapping[str, Any]) -> str:
        register.pause(schedule, scope=visit.scope, actor=visit.member.actor, reason=said["reason"])
        return "The schedule is paused."

    return _ask(visit, schedule, "Pause", "It fires no more until it is resumed.", act, "Pause it")


def resume(visit: Visit, schedule: int) -> HttpResponse:
    """Ask, then go on with the next instant."""

    def act(said: Mapping[str, Any]) -> str:
        register.resume(schedule, scope=visit.scope, actor=visit.member.actor, reason=said["reason"])
        return "The schedule goes on."

    return _ask(visit, schedule, "Resume", "It goes on with its next instant.", act, "Resume it")


def _ask(
    visit: Visit, schedule: int, verb: str, intro: str, act: Callable[[Mapping[str, Any]], str], submit: str
) -> HttpResponse:
    view = _view(visit, schedule)
    own = visit.url("schedule", schedule)
    return visit.ask(
        ReasonForm(visit.request.POST or None),
        act,
        right=Right.ACT,
        title=f"{verb} {view.name}",
        intro=intro,
        submit=submit,
        back=own,
        crumbs=[*_crumbs(visit), (view.name, own)],
    )


def _view(visit: Visit, schedule: int) -> ScheduleView:
    return reads.views([reads.find(schedule, scope=visit.scope)])[0]


def _crumbs(visit: Visit) -> list[tuple[str, str]]:
    return [("Schedules", visit.url("schedules"))]


def _next(view: ScheduleView) -> list[preview.Upcoming]:
    """The next fires; without a shard to ask for the time there are none to show."""
    try:
        return preview.upcoming(expressions.rule(view.cron, view.timezone), register.clock(), NEXT_SHOWN)
    except (JobsPlatformError, Invalid):
        return []
