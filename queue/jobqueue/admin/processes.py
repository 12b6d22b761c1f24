"""The platform's processes: who lives, what it runs, and the button that lets a worker end when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from jobqueue import processes
from jobqueue.models import Process
from jobsplatform import frame
from jobsplatform.adminsite import ReadOnlyAdmin, ReasonForm, actor, ask_and_act
from jobsplatform.frame import Fragment

MAY_LOOK: Final = "queue.view_process"
MAY_DRAIN: Final = "queue.drain_process"


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin):
    """Every process of the last day, also those that ended."""

    list_display = ("name", "kind", "version", "slots", "started_at", "beat_at", "ended_at")
    list_filter = ("kind",)


@dataclass(frozen=True, slots=True)
class Line:
    """A process as the page shows it. `is_old`: another version is the newest that was started."""

    process: Process
    is_silent: bool
    is_old: bool
    may_drain: bool

    @property
    def state(self) -> str:
        if self.is_silent:
            return "silent"
        return "draining" if self.process.drain_asked_at is not None else "active"


@frame.screen("processes/", name="processes", title="Workers", permission=MAY_LOOK, order=60)
def processes_page(request: HttpRequest) -> HttpResponse:
    def read() -> Mapping[str, Any]:
        return _lines(may_drain=request.user.has_perm(MAY_DRAIN))

    fragments = {"processes": Fragment("admin/processes/list.html", read)}
    return frame.live_page(
        request, "admin/processes/processes.html", fragments, {}, title="Workers and processes"
    )


def _lines(*, may_drain: bool) -> Mapping[str, Any]:
    silent = processes.silent_before(timezone.now())
    found = processes.living()
    alive = [one for one in found if one.beat_at >= silent]
    newest = max(alive, key=lambda one: one.started_at).version if alive else ""
    lines = [
        Line(
            one,
            one.beat_at < silent,
            one.beat_at >= silent and one.version != newest,
            may_drain
            and one.kind == Process.Kind.WORKER
            and one.drain_asked_at is None
            and one.beat_at >= silent,
        )
        for one in sorted(found, key=lambda one: (one.beat_at < silent, one.kind, one.name))
    ]
    return {"lines": lines, "versions": sorted({one.version for one in alive}), "newest": newest}


@frame.screen(
    "processes/<str:key>/drain/", name="process_drain", title="Drain a worker", permission=MAY_DRAIN
)
def drain_page(request: HttpRequest, key: str) -> HttpResponse:
    """Asks before it acts."""
    process = Process.objects.filter(key=key, kind=Process.Kind.WORKER).first()
    if process is None:
        raise Http404
    back = reverse("admin:processes")
    if process.drain_asked_at is not None or process.ended_at is not None:
        messages.warning(request, f"{process.name} was asked before, or has ended.")
        return HttpResponseRedirect(back)

    def act(said: Mapping[str, Any]) -> str:
        name = processes.drain(key, actor=actor(request), reason=said["reason"])
        return f"{name} takes no more jobs and ends when it is done."

    return ask_and_act(
        request,
        admin.site.get_model_admin(Process),
        obj=process,
        title=f"Drain {process.name}",
        intro="It takes no more jobs, gives back what it has not begun, and ends when all that it runs has ended. "
        "Whoever supervises it may start another in its place.",
        form=ReasonForm(request.POST or None),
        act=act,
        back=back,
        submit="Drain",
    )
