"""Dependencies in the admin: settings and an operator's hand, by the verbs; where each stands on a shard, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from jobqueue import dependencies
from jobqueue.ids import format_id
from jobqueue.models import Dependency, DependencyState, PoisonMark
from jobqueue.policy.breaker import BreakerState
from jobsplatform.adminsite import NOTHING, ModelForm, ShardAdmin, VerbAdmin, actor, until

WORST_FIRST = (BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED)


class DependencyForm(ModelForm):
    class Meta:
        model = Dependency
        fields = ("name", *dependencies.SETTINGS)


@admin.register(Dependency)
class DependencyAdmin(VerbAdmin):
    form = DependencyForm
    list_display = (
        "name",
        "breaker",
        "running",
        "max_running",
        "rate_per_s",
        "breaker_share",
        "probe_after_s",
    )
    search_fields = ("name",)
    actions = ("open_breakers", "close_breakers")
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

    @admin.display
    def breaker(self, row: Any) -> str:
        """The worst over all shards."""
        if row.is_held_open:
            return "held open"
        states = {standing.breaker for standing in row.standings}
        return next((state.value.replace("_", " ") for state in WORST_FIRST if state in states), NOTHING)

    @admin.display
    def running(self, row: Any) -> int:
        return sum(standing.running for standing in row.standings)

    @admin.action(permissions=["change"], description="Open: start nothing that needs it, until closed")
    def open_breakers(self, request: HttpRequest, queryset: QuerySet[Dependency]) -> None:
        def verb(row: Dependency) -> None:
            dependencies.open_breaker(row.name, actor=actor(request))

        self.each(request, queryset, verb, "Opened")

    @admin.action(permissions=["change"], description="Close: let its work go on, ramping up")
    def close_breakers(self, request: HttpRequest, queryset: QuerySet[Dependency]) -> None:
        def verb(row: Dependency) -> None:
            dependencies.close_breaker(row.name, actor=actor(request))

        self.each(request, queryset, verb, "Closed")


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
