"""Queues and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from jobqueue import policies
from jobqueue.models import (
    Queue,
)
from jobsplatform.adminsite import (
    ModelForm,
    VerbAdmin,
    actor,
)


def words(name: str) -> str:
    """A setting's name for people: `lease_s` → `Lease (seconds)`."""
    text = name.removesuffix("_s").replace("_", " ").capitalize()
    return f"{text} (seconds)" if name.endswith("_s") else text


def _bounds(field: Any) -> str:
    """What a setting may be."""
    low = [v.limit_value for v in field.validators if isinstance(v, MinValueValidator)]
    high = [v.limit_value for v in field.validators if isinstance(v, MaxValueValidator)]
    if not low or field.get_internal_type() == "JSONField":
        return str(field.help_text)
    text = f"{max(low):,} to {min(high):,}" if high and min(high) < 2**31 - 1 else f"at least {max(low):,}"
    return f"{text}; empty: off" if field.null else text


class QueueForm(ModelForm):
    """A new queue takes its bands from a preset."""

    preset = forms.ChoiceField(
        choices=[
            (name, f"{name}: {', '.join(b.name for b in bands)}")
            for name, (bands, _) in policies.PRESETS.items()
        ],
        help_text="The bands that the queue has; they stay.",
    )

    class Meta:
        model = Queue
        fields = ("name", "preset", *sorted(policies.SETTABLE))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in policies.SETTABLE & self.fields.keys():
            self.fields[name].label = words(name)
            self.fields[name].help_text = _bounds(Queue._meta.get_field(name))
        if self.instance.pk:
            del self.fields["preset"]
        if "age_objective_s" in self.fields:
            self.fields["age_objective_s"].widget.attrs["rows"] = 2


@admin.register(Queue)
class QueueAdmin(VerbAdmin):
    form = QueueForm
    list_display = (
        "name",
        "bands_in_words",
        "is_running",
        "takes_in",
        "lease_s",
        "max_attempts",
        "created_at",
    )
    actions = ("pause", "resume", "pause_intake", "resume_intake")
    fieldsets = (
        (None, {"fields": ("name", "preset")}),
        ("Running", {"fields": ("lease_s", "max_run_s")}),
        (
            "Failing",
            {
                "fields": (
                    ("max_attempts", "max_crashes"),
                    ("max_releases", "max_redrives"),
                    ("backoff_base_s", "backoff_cap_s"),
                    ("retry_budget_share", "retry_budget_window_s", "retry_budget_burst"),
                )
            },
        ),
        (
            "Sharing",
            {
                "fields": (
                    "cost_model",
                    "ageing_s",
                    "reserved_share",
                    "depth_limit",
                    "refuse_infeasible",
                    "age_objective_s",
                )
            },
        ),
        ("Keeping", {"fields": ("key_window_s", "dedup_window_s", "retention_s")}),
    )

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queue.pause_queue")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        known = super().get_fieldsets(request, obj)
        if obj is None:
            return known
        first = ("name", "bands_in_words", "is_running", "takes_in", "version")
        return ((None, {"fields": first}), *known[1:])

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else ("name", "bands_in_words", "is_running", "takes_in", "version")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        wanted = {name: form.cleaned_data[name] for name in form.changed_data if name in policies.SETTABLE}
        if change:
            if wanted:
                policies.change_queue(obj.name, wanted, actor=actor(request))
        else:
            preset = form.cleaned_data["preset"]
            made = policies.create_queue(obj.name, preset=preset, settings=wanted, actor=actor(request))
            obj.pk = made.id
        obj.refresh_from_db()

    @admin.display(description="bands")
    def bands_in_words(self, queue: Queue) -> SafeString:
        return format_html_join(" ", "<span class='band'>{}</span>", ((_band(b),) for b in queue.bands))

    @admin.display(description="starts jobs", boolean=True)
    def is_running(self, queue: Queue) -> bool:
        return not queue.is_dispatch_paused

    @admin.display(description="takes jobs in", boolean=True)
    def takes_in(self, queue: Queue) -> bool:
        return not queue.is_intake_paused

    @admin.action(permissions=["pause"], description="Pause: start no more jobs")
    def pause(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self.each(request, queryset, lambda q: policies.pause(q.name, actor=actor(request)), "Paused")

    @admin.action(permissions=["pause"], description="Resume: start jobs again")
    def resume(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self.each(request, queryset, lambda q: policies.resume(q.name, actor=actor(request)), "Resumed")

    @admin.action(permissions=["pause"], description="Pause intake: refuse new jobs")
    def pause_intake(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        def verb(queue: Queue) -> None:
            policies.pause(queue.name, intake=True, actor=actor(request))

        self.each(request, queryset, verb, "Intake paused")

    @admin.action(permissions=["pause"], description="Resume intake: take new jobs in again")
    def resume_intake(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        def verb(queue: Queue) -> None:
            policies.resume(queue.name, intake=True, actor=actor(request))

        self.each(request, queryset, verb, "Intake resumed")


def _band(band: Mapping[str, Any]) -> str:
    notes = ["strict"] if band.get("strict") else [f"×{band.get('weight', 1)}"]
    return f"{band['name']} {', '.join(notes + (['bulk'] if band.get('bulk') else []))}"
