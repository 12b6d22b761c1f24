"""The admin's first page: what needs attention, who waits, how shares turn out, what was done. It refreshes itself.

It stands with the highest app, which sees all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse

from dlq import overview
from dlq.overview import Attention, Minute, Overview
from jobqueue import processes
from jobsplatform import frame
from jobsplatform.frame import Chart, Fragment, Line

MAY_LOOK: Final = "queue.view_job"
MAY_AUDIT: Final = "tenants.view_auditentry"
SLOWER_SECONDS: Final = 15  # what changes by the minute
PLACES: Final = (
    ("running", "Running", "queue_lease"),
    ("ready", "Ready", "queue_readyjob"),
    ("scheduled", "Scheduled", "queue_scheduledjob"),
    ("dead", "Dead", "dlq_deadletter"),
)

frame.in_menu("Tenants", "tenants_tenant_changelist", permission="tenants.view_tenant", order=40)
frame.in_menu("Schedules", "queue_schedule_changelist", permission="queue.view_schedule", order=45)
frame.in_menu("Dependencies", "queue_dependency_changelist", permission="queue.view_dependency", order=50)


@frame.home
def home(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Whoever may not look at jobs gets the list of pages alone."""
    fragments: dict[str, Fragment] = {}
    if request.user.has_perm(MAY_LOOK):
        fragments["now"] = Fragment("admin/home/now.html", _now)
        fragments["course"] = Fragment("admin/home/course.html", _course, every_s=SLOWER_SECONDS)
    if request.user.has_perm(MAY_AUDIT):
        fragments["actions"] = Fragment("admin/home/actions.html", _actions, every_s=SLOWER_SECONDS)
    return frame.live_page(request, "admin/index.html", fragments, context, title="Overview")


# Fragments


@dataclass(frozen=True, slots=True)
class Card:
    """How many jobs stand in one place: exact up to a bound."""

    state: str
    title: str
    number: str
    href: str


def _now() -> Mapping[str, Any]:
    seen = overview.present()
    return {
        "as_of": seen.at,
        "attention": [(one, _href(one)) for one in seen.attention],
        "cards": [Card(*_place(seen, state, title), _list(name)) for state, title, name in PLACES],
        "waits": seen.oldest,
        "worst": [wait for wait in seen.waits if not wait.is_held][:5],
        "shares": seen.shares,
        "crews": _crews(seen),
        "unknown": seen.unknown_shards,
        "has_more_lanes": seen.has_more_lanes,
        "lanes_max": overview.LANES_MAX,
        "share_minutes": overview.SHARE_MINUTES,
    }


def _place(seen: Overview, state: str, title: str) -> tuple[str, str, str]:
    more = "+" if seen.is_capped[state] else ""
    return state, title, f"{seen.places[state]:,}{more}"


def _list(name: str) -> str:
    return reverse(f"admin:{name}_changelist")


def _href(one: Attention) -> str | None:
    """Where to look on; a page that is not there yet is left out."""
    if one.page is None:
        return None
    try:
        return reverse(f"admin:{one.page[0]}", args=one.page[1])
    except NoReverseMatch:
        return None


@dataclass(frozen=True, slots=True)
class Crew:
    """The processes of one kind."""

    kind: str
    alive: int
    silent: int
    slots: int
    held: int
    versions: int


def _crews(seen: Overview) -> list[Crew]:
    silent = processes.silent_before(seen.at)
    crews = []
    for kind in dict.fromkeys(one.kind for one in sorted(seen.processes, key=lambda one: one.kind)):
        some = [one for one in seen.processes if one.kind == kind]
        alive = [one for one in some if one.beat_at >= silent]
        slots, held = (sum(getattr(one, name) or 0 for one in alive) for name in ("slots", "held"))
        crews.append(
            Crew(kind, len(alive), len(some) - len(alive), slots, held, len({one.version for one in alive}))
        )
    return crews


def _course() -> Mapping[str, Any]:
    seen = overview.present()
    return {"as_of": seen.at, "throughput": throughput(seen.minutes)}


def throughput(minutes: list[Minute]) -> Chart:
    """Starts and ends a minute."""
    at = [int(minute.at.timestamp()) for minute in minutes]
    lines = [
        Line("Started", [minute.started for minute in minutes]),
        Line("Succeeded", [minute.succeeded for minute in minutes]),
        Line("Failed", [minute.failed for minute in minutes]),
        Line("Lease lost", [minute.lease_lost for minute in minutes]),
    ]
    return Chart(
        "throughput", "Throughput", at, lines, unit="a minute", note="whole minutes, from the ledger"
    )


def _actions() -> Mapping[str, Any]:
    return {"actions": overview.actions()}
