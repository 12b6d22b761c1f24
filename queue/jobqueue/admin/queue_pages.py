"""Queues as operators see them: what waits at each level and since when, who paused what and until when, how bands
share, and the defaults of leases and retries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from jobqueue import depth_charts, depths, policies, stats
from jobqueue.admin.queues import words
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.models import PolicyVersion, Queue, QueuePause
from jobqueue.policies import Band, QueuePolicy
from jobqueue.policy.preview import Preview, preview
from jobqueue.types import FLEET
from jobsplatform import frame
from jobsplatform.adminsite import actor, ask_and_act
from jobsplatform.errors import JobsPlatformError, NotFound
from jobsplatform.frame import Fragment

MAY_LOOK: Final = "queue.view_queue"
MAY_PAUSE: Final = "queue.pause_queue"
MAY_CHANGE: Final = "queue.change_queue"
QUEUES_MAX: Final = 50  # of one page: each is one bounded read a shard
VERSIONS_MAX: Final = 10
MINUTES_MAX: Final = 366 * 24 * 60
DEFAULTS: Final = (
    "lease_s",
    "max_run_s",
    "max_attempts",
    "max_crashes",
    "max_releases",
    "backoff_base_s",
    "backoff_cap_s",
    "retry_budget_share",
    "retry_budget_window_s",
    "retry_budget_burst",
    "max_redrives",
    "depth_limit",
    "retention_s",
)


@dataclass(frozen=True, slots=True)
class Level:
    """A band now. `share`: of its objective that the oldest ready job has used up; None: there is none."""

    name: str
    rule: str
    waiting: str
    age_s: float | None
    objective_s: float | None

    @property
    def share(self) -> float | None:
        return None if not self.objective_s or self.age_s is None else self.age_s / self.objective_s

    @property
    def state(self) -> str:
        share = self.share or 0.0
        return "bad" if share > 1 else "warning" if share > 0.5 else "ok"


@dataclass(frozen=True, slots=True)
class Card:
    """A queue in the list, or the head of its page. `levels` empty: no shard answers."""

    queue: Queue
    levels: Sequence[Level]
    pauses: Sequence[QueuePause]
    found: stats.Stats | None

    @property
    def unknown(self) -> list[int]:
        return [] if self.found is None else [number for number, ok in self.found.shards.items() if not ok]


# Pages


@frame.screen("queues/", name="queues", title="Queues", permission=MAY_LOOK, order=10)
def queues_page(request: HttpRequest) -> HttpResponse:
    """Every queue, by name, a page of them at a time."""
    after = request.GET.get("after", "")

    def read() -> Mapping[str, Any]:
        found = list(Queue.objects.filter(name__gt=after).order_by("name")[: QUEUES_MAX + 1])
        shown = found[:QUEUES_MAX]
        return {
            "cards": list(_cards(shown)),
            "after": shown[-1].name if len(found) > QUEUES_MAX else None,
        }

    fragments = {"queues": Fragment("admin/queues/list.html", read)}
    context = {"may_add": request.user.has_perm("queue.add_queue"), "is_first": not after}
    return frame.live_page(request, "admin/queues/queues.html", fragments, context, title="Queues")


@frame.screen("queues/<str:name>/", name="queue", title="Queue", permission=MAY_LOOK)
def queue_page(request: HttpRequest, name: str) -> HttpResponse:
    queue = _asked(name)

    def read() -> Mapping[str, Any]:
        (card,) = _cards([_asked(name)])
        return {"card": card, "queue": card.queue, "may_pause": request.user.has_perm(MAY_PAUSE)}

    versions = list(PolicyVersion.objects.filter(queue=queue).order_by("-number")[: VERSIONS_MAX + 1])
    context = {
        "queue": queue,
        "bands": [Band(**band) for band in queue.bands],
        "preview": preview(policies.by_name(name).scheduling),
        "versions": versions[:VERSIONS_MAX],
        "has_more_versions": len(versions) > VERSIONS_MAX,
        "defaults": [(words(key), getattr(queue, key)) for key in DEFAULTS],
        "may_change": request.user.has_perm(MAY_CHANGE),
    }
    span = depths.span_of(request.GET.get("span"))
    fragments = {
        "now": Fragment("admin/queues/now.html", read),
        "depths": depth_charts.fragment(lambda: depths.of_queue(queue.pk, span), of_one_queue=True),
    }
    crumbs = [("Queues", reverse("admin:queues"))]
    return frame.live_page(
        request, "admin/queues/queue.html", fragments, context, title=f"Queue {name}", crumbs=crumbs
    )


def _asked(name: str) -> Queue:
    queue = Queue.objects.filter(name=name).first()
    if queue is None:
        raise Http404
    return queue


def _cards(queues: Sequence[Queue]) -> Iterator[Card]:
    paused: dict[int, list[QueuePause]] = {}
    for pause in policies.pauses(queue.pk for queue in queues):
        paused.setdefault(pause.queue_id, []).append(pause)
    for queue in queues:
        yield _card(queue, paused.get(queue.pk, []))


def _card(queue: Queue, paused: Sequence[QueuePause]) -> Card:
    try:
        policy = policies.by_name(queue.name)
        found = stats.of(policy, FLEET)
    except (JobsPlatformError, NotFound):
        return Card(queue, [], _known(queue, paused), None)
    return Card(queue, list(_levels(policy, queue, found)), _known(queue, paused), found)


def _known(queue: Queue, paused: Sequence[QueuePause]) -> list[QueuePause]:
    """The pauses that hold; one of an earlier release has no row, and nobody knows who made it."""
    rows = {pause.what: pause for pause in paused}
    holds = {
        QueuePause.What.DISPATCH: queue.is_dispatch_paused,
        QueuePause.What.INTAKE: queue.is_intake_paused,
    }
    return [rows.get(what) or QueuePause(queue=queue, what=what) for what, is_on in holds.items() if is_on]


def _levels(policy: QueuePolicy, queue: Queue, found: stats.Stats) -> Iterator[Level]:
    objectives = queue.age_objective_s or {}
    for index, band in enumerate(policy.bands):
        count = found.visible[index]
        yield Level(
            band.name,
            rule(band),
            f"{count:,}{'+' if count >= stats.COUNT_MAX else ''}",
            found.oldest_age_s[index],
            objectives.get(band.name),
        )


def rule(band: Band) -> str:
    """How a band is served."""
    return ("strict" if band.strict else f"weight {band.weight:,}") + (", bulk" if band.bulk else "")


# Pausing


class PauseForm(forms.Form):
    """What is paused, why, and for how long."""

    what = forms.ChoiceField(
        choices=[
            (QueuePause.What.DISPATCH, "Starts: running jobs end, all others wait"),
            (QueuePause.What.INTAKE, "Intake (drain): new jobs are refused, what is there is worked off"),
        ],
        widget=forms.RadioSelect,
    )
    minutes = forms.IntegerField(
        min_value=1,
        max_value=MINUTES_MAX,
        required=False,
        label="For how long (minutes)",
        help_text="Then it goes on by itself. Empty: until somebody resumes it.",
    )
    reason = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3}),
        max_length=REASON_CHARS_MAX,
        label="Why",
        help_text="Others read it.",
    )


class ResumeForm(forms.Form):
    """What goes on, and why."""

    what = forms.ChoiceField(choices=QueuePause.What, widget=forms.RadioSelect)
    reason = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3}), max_length=REASON_CHARS_MAX, label="Why", required=False
    )


@frame.screen("queues/<str:name>/pause/", name="queue_pause", title="Pause", permission=MAY_PAUSE)
def pause_page(request: HttpRequest, name: str) -> HttpResponse:
    def act(said: Mapping[str, Any]) -> str:
        until = None if said["minutes"] is None else policies.after(60 * said["minutes"])
        is_intake = said["what"] == QueuePause.What.INTAKE
        policies.pause(name, intake=is_intake, actor=actor(request), reason=said["reason"], until=until)
        return f"{'Intake' if is_intake else 'Starts'} of queue {name} paused{_until(until)}."

    intro = "Holds on every shard within a second. It can be resumed at any time."
    asked = {"what": request.GET.get("what", QueuePause.What.DISPATCH)}
    form = PauseForm(request.POST or None, initial=asked)
    return _ask(request, name, "Pause", intro, form, act, "Pause")


@frame.screen("queues/<str:name>/resume/", name="queue_resume", title="Resume", permission=MAY_PAUSE)
def resume_page(request: HttpRequest, name: str) -> HttpResponse:
    def act(said: Mapping[str, Any]) -> str:
        is_intake = said["what"] == QueuePause.What.INTAKE
        policies.resume(name, intake=is_intake, actor=actor(request), reason=said["reason"])
        return f"{'Intake' if is_intake else 'Starts'} of queue {name} resumed."

    asked = {"what": request.GET.get("what", QueuePause.What.DISPATCH)}
    form = ResumeForm(request.POST or None, initial=asked)
    return _ask(request, name, "Resume", "Goes on at once.", form, act, "Resume")


def _until(instant: datetime | None) -> str:
    return "" if instant is None else f" until {instant:%Y-%m-%d %H:%M} UTC"


def _ask(
    request: HttpRequest, name: str, title: str, intro: str, form: forms.Form, act: Any, submit: str
) -> HttpResponse:
    queue = _asked(name)
    return ask_and_act(
        request,
        admin.site.get_model_admin(Queue),
        obj=queue,
        title=f"{title}: {name}",
        intro=intro,
        form=form,
        act=act,
        back=reverse("admin:queue", args=[name]),
        submit=submit,
    )


def shown(policy: QueuePolicy, weights: Mapping[int, int]) -> Preview:
    """The preview of a queue's policy with other weights, by the band's index."""
    bands = [
        Band(band.name, weights.get(index, band.weight), band.strict, band.bulk)
        for index, band in enumerate(policy.bands)
    ]
    return preview(policies.scheduling_of(policy, bands))
