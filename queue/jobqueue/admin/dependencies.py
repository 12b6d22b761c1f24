"""Dependencies in the admin: where each stands, what it bears, and an operator's hand, by the verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from jobqueue import dependencies
from jobqueue.dependencies import HOLD_SECONDS_MAX, Standing
from jobqueue.ids import format_id
from jobqueue.models import Dependency, DependencyState, PoisonMark
from jobqueue.policy.breaker import BreakerState
from jobsplatform.adminsite import (
    NOTHING,
    ModelForm,
    ReasonForm,
    ShardAdmin,
    VerbAdmin,
    actor,
    ask_and_act,
    badge,
    require,
    until,
)

WORST_FIRST: Final = (BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED)
CHANGE: Final = "queue.change_dependency"  # the permission
MINUTES_MAX: Final = HOLD_SECONDS_MAX // 60


class DependencyForm(ModelForm):
    class Meta:
        model = Dependency
        fields = ("name", *dependencies.SETTINGS)


class HoldForm(ReasonForm):
    """For how long nothing that needs it starts."""

    minutes = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MINUTES_MAX,
        help_text="After so many minutes it closes by itself. Empty: only by hand.",
    )
    field_order = ["minutes", "reason"]


@admin.register(Dependency)
class DependencyAdmin(VerbAdmin):
    form = DependencyForm
    change_form_template = "admin/queue/dependency/change_form.html"
    list_display = ("name", "breaker", "running", "bears", "rate_per_s", "opens_at", "probe_after_s")
    search_fields = ("name",)
    actions = None
    fieldsets = (
        (None, {"fields": ("name",)}),
        ("What it bears (empty: no limit)", {"fields": ("max_running", ("rate_per_s", "rate_burst"))}),
        (
            "Breaker (empty share: off)",
            {"fields": (("breaker_share", "breaker_calls", "breaker_window_s"), "probe_after_s")},
        ),
        ("After an outage (empty: at once)", {"fields": (("ramp_per_s", "ramp_s"),)}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else ("name",)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<int:pk>/open/", wrap(self.open_view), name="queue_dependency_open"),
            path("<int:pk>/close/", wrap(self.close_view), name="queue_dependency_close"),
            *super().get_urls(),
        ]

    def prepare(self, rows: Sequence[Any]) -> None:
        found = dependencies.standings() if rows else []
        for row in rows:
            row.standings = [standing for standing in found if standing.name == row.name]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        wanted = {
            name: form.cleaned_data[name] for name in form.changed_data if name in dependencies.SETTINGS
        }
        stored = dependencies.set_dependency(obj.name, wanted, actor=actor(request))
        obj.pk = stored.pk
        obj.refresh_from_db()

    # Columns

    @admin.display
    def breaker(self, row: Any) -> SafeString | str:
        """The worst over all shards."""
        if row.is_held_open:
            return badge("held open")
        states = {standing.breaker for standing in row.standings}
        found = next((state.value for state in WORST_FIRST if state in states), None)
        return NOTHING if found is None else badge(found.replace("_", " "))

    @admin.display
    def running(self, row: Any) -> int:
        return sum(standing.running for standing in row.standings)

    @admin.display(description="bears now")
    def bears(self, row: Any) -> str:
        """The limit as it has adapted, of what is set."""
        if row.max_running is None:
            return "no limit"
        limits = [standing.limit_now for standing in row.standings if standing.limit_now is not None]
        return f"{sum(limits):,.0f} of {row.max_running:,}" if limits else f"{row.max_running:,}"

    @admin.display(description="opens at")
    def opens_at(self, row: Dependency) -> str:
        if row.breaker_share is None:
            return "never"
        return f"{row.breaker_share:.0%} of {row.breaker_calls} calls in {row.breaker_window_s} s"

    # Pages

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        if obj is not None:
            context |= {
                "may_hold": request.user.has_perm(CHANGE),
                "is_closed": not obj.is_held_open
                and all(standing.breaker == BreakerState.CLOSED for standing in obj.standings),
                "state": self.breaker(obj),
                "held_until": until(obj.held_until),
                "standings": _standings(obj.standings),
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def open_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask why and for how long, then hold the breaker open."""

        def act(row: Dependency, said: Mapping[str, Any]) -> str:
            minutes = said["minutes"]
            dependencies.open_breaker(
                row.name,
                actor=actor(request),
                reason=said["reason"],
                seconds=None if minutes is None else minutes * 60,
            )
            return f"{row.name} is held open."

        intro = "Nothing that needs it starts, and nothing probes it, before it is closed. What runs goes on."
        return self._ask(request, pk, "Open", intro, HoldForm(request.POST or None), act)

    def close_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask why, then let its work go on."""

        def act(row: Dependency, said: Mapping[str, Any]) -> str:
            dependencies.close_breaker(row.name, actor=actor(request), reason=said["reason"])
            return f"{row.name} is closed; its work ramps up."

        intro = "Its work goes on, ramping up; the breaker judges by calls from now on."
        return self._ask(request, pk, "Close", intro, ReasonForm(request.POST or None), act)

    def _ask(
        self,
        request: HttpRequest,
        pk: int,
        verb: str,
        intro: str,
        form: forms.Form,
        act: Callable[[Dependency, Mapping[str, Any]], str],
    ) -> HttpResponse:
        require(request, CHANGE)
        row = Dependency.objects.filter(pk=pk).first()
        if row is None:
            raise Http404
        return ask_and_act(
            request,
            self,
            obj=row,
            title=f"{verb} {row}",
            intro=intro,
            form=form,
            act=lambda said: act(row, said),
            back=reverse("admin:queue_dependency_change", args=[pk]),
            submit=f"{verb} the breaker",
        )


def _standings(found: Sequence[Standing]) -> dict[str, Any]:
    """The table of where it stands on each shard."""
    return {
        "headers": ["Shard", "Breaker", "Running", "Bears now", "Calls, failed", "Probes", "Ramps since"],
        "rows": [
            [
                standing.shard,
                badge(str(standing.breaker).replace("_", " ")),
                standing.running,
                NOTHING if standing.limit_now is None else f"{standing.limit_now:,.0f}",
                f"{standing.calls:,}, {standing.failures:,}",
                until(standing.probe_at),
                until(standing.ramp_from),
            ]
            for standing in found
        ],
    }


@admin.register(DependencyState)
class DependencyStateAdmin(ShardAdmin):
    list_display = ("name", "breaker", "probes", "probe", "limit_now", "is_held_open", "version")

    @admin.display(description="probes at")
    def probes(self, row: DependencyState) -> SafeString | str:
        return until(row.probe_at)

    @admin.display
    def probe(self, row: DependencyState) -> str:
        return NOTHING if row.probe_job_id is None else format_id(row.probe_job_id)


@admin.register(PoisonMark)
class PoisonMarkAdmin(ShardAdmin):
    list_display = ("job", "tenant_id", "kind", "at")

    @admin.display
    def job(self, row: PoisonMark) -> str:
        return format_id(row.job_id)
