"""Schedules in the admin: edited by verbs, with what comes next and where clocks change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobqueue import policies
from jobqueue.ids import format_id
from jobqueue.models import Queue
from jobqueue.schedule_models import Schedule, ScheduleAnswer, ScheduleFire, ScheduleRow
from jobqueue.schedules import expressions, preview, reads, register, runs
from jobqueue.schedules.reads import SETTABLE
from jobqueue.schedules.words import words
from jobqueue.types import FLEET
from jobsplatform import strictjson
from jobsplatform.adminsite import (
    NOTHING,
    ModelForm,
    ReadOnlyAdmin,
    ReasonForm,
    ShardAdmin,
    VerbAdmin,
    actor,
    ago,
    ask_and_act,
    badge,
    require,
    until,
)
from jobsplatform.errors import Invalid, JobsPlatformError
from jobsplatform.wording import describe

NEXT_SHOWN: Final = 5
CHANGE: Final = "queue.change_schedule"  # the permission to switch and to run
DELETE: Final = "queue.delete_schedule"


def job_link(job_id: int | None) -> SafeString | str:
    """A link to the page of a job."""
    if job_id is None:
        return NOTHING
    address = reverse("admin:queue_job_change", args=[format_id(job_id)])
    return format_html('<a href="{}">{}</a>', address, format_id(job_id))


class ScheduleForm(ModelForm):
    """A schedule; its expression, zone, band and payload are checked as the API checks them."""

    class Meta:
        model = Schedule
        fields = ("tenant", "queue", *SETTABLE)
        widgets: ClassVar = {"payload": forms.Textarea(attrs={"rows": 3})}
        help_texts: ClassVar = {
            "cron": "Minute, hour, day of the month, month, day of the week.",
            "timezone": "Exactly a name of the tz database, such as Europe/Berlin.",
            "priority": "A band's index; 0 is the most urgent. Empty: the queue's.",
            "payload": "JSON.",
            "missed": "Fires that nobody made in time: none, the latest, or the newest ten.",
            "overlap": "Whether to fire while an earlier job is not done.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "priority" in self.fields:
            self.fields["priority"].required = False

    def clean_cron(self) -> str:
        return self._checked(
            lambda: (expressions.fields(self.cleaned_data["cron"]), self.cleaned_data["cron"])[1]
        )

    def clean_timezone(self) -> str:
        return self._checked(lambda: str(expressions.zone(self.cleaned_data["timezone"])))

    def clean_payload(self) -> str:
        return self._checked(
            lambda: (strictjson.raw(self.cleaned_data["payload"]), self.cleaned_data["payload"])[1]
        )

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        queue = self.cleaned_data.get("queue") or getattr(self.instance, "queue", None)
        if isinstance(queue, Queue):
            try:
                asked = self.cleaned_data.get("priority")
                self.cleaned_data["priority"] = policies.by_name(queue.name).priority(asked)
            except Invalid as error:
                self.add_error("priority", describe(error))
        return cleaned

    @staticmethod
    def _checked(read: Any) -> str:
        try:
            return str(read())
        except JobsPlatformError as error:
            raise forms.ValidationError(describe(error)) from error


@admin.register(Schedule)
class ScheduleAdmin(VerbAdmin):
    form = ScheduleForm
    list_display = (
        "name",
        "tenant",
        "queue",
        "kind",
        "in_words",
        "timezone",
        "is_enabled",
        "comes",
        "missed_fires",
    )
    list_select_related = ("tenant", "queue")
    autocomplete_fields = ("tenant",)
    actions = ("pause", "resume")
    change_form_template = "admin/queue/schedule/change_form.html"
    fieldsets = (
        (None, {"fields": ("name", ("tenant", "queue"), ("kind", "priority"), "payload")}),
        ("When", {"fields": (("cron", "timezone"), ("missed", "overlap"), "is_enabled")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else ("tenant",)

    def prepare(self, rows: Sequence[Any]) -> None:
        known = {view.id: view for view in reads.views(rows)}
        for row in rows:
            row.view = known[row.pk]

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<int:pk>/pause/", wrap(self.pause_view), name="queue_schedule_pause"),
            path("<int:pk>/resume/", wrap(self.resume_view), name="queue_schedule_resume"),
            path("<int:pk>/run/", wrap(self.run_view), name="queue_schedule_run"),
            path("<int:pk>/remove/", wrap(self.remove_view), name="queue_schedule_remove"),
            *super().get_urls(),
        ]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        values = {name: form.cleaned_data[name] for name in SETTABLE}
        queue = policies.by_name(form.cleaned_data["queue"].name)
        if change:
            register.change(obj.pk, values, queue=queue, scope=FLEET, actor=actor(request))
        else:
            tenant_id = form.cleaned_data["tenant"].pk
            new = register.NewSchedule(tenant_id=tenant_id, queue=queue, **values)
            obj.pk = register.create(new, actor=actor(request)).id
        obj.refresh_from_db()

    # Columns

    @admin.display(description="fires")
    def in_words(self, row: Schedule) -> SafeString:
        return format_html('{} <span class="quiet">{}</span>', words(row.cron), row.cron)

    @admin.display(description="next")
    def comes(self, row: Any) -> SafeString | str:
        return until(row.view.next_at)

    @admin.display(description="missed")
    def missed_fires(self, row: Any) -> str:
        return NOTHING if row.view.missed_count is None else str(row.view.missed_count)

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
                "fires": _next_fires(obj),
                "in_words": words(obj.cron),
                "zone": obj.timezone,
                "last_job": job_link(obj.view.last_job_id),
                "may_run": request.user.has_perm(CHANGE),
                "may_remove": request.user.has_perm(DELETE),
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def run_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask, then make a job."""
        require(request, CHANGE)

        def act(said: Mapping[str, Any]) -> str:
            run = runs.run_now(pk, scope=FLEET, actor=actor(request), reason=said["reason"])
            return f"Job {format_id(run.job_id)} was made."

        intro = "Its job is made now, beside its fires, also while it is paused."
        return self._ask(request, pk, "Run", intro, act, submit="Run it now")

    def pause_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask why, then fire no more."""
        require(request, CHANGE)

        def act(said: Mapping[str, Any]) -> str:
            register.pause(pk, scope=FLEET, actor=actor(request), reason=said["reason"])
            return "The schedule is paused."

        return self._ask(
            request, pk, "Pause", "It fires no more until it is resumed.", act, submit="Pause it"
        )

    def resume_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask why, then go on."""
        require(request, CHANGE)

        def act(said: Mapping[str, Any]) -> str:
            register.resume(pk, scope=FLEET, actor=actor(request), reason=said["reason"])
            return "The schedule goes on."

        return self._ask(request, pk, "Resume", "It goes on with its next instant.", act, submit="Resume it")

    def remove_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask, then remove the schedule."""
        require(request, DELETE)

        def act(said: Mapping[str, Any]) -> str:
            register.remove(pk, scope=FLEET, actor=actor(request), reason=said["reason"])
            return "The schedule is removed."

        intro = "It fires no more. Jobs that it made stay."
        return self._ask(request, pk, "Remove", intro, act, submit="Remove it", is_last=True)

    def _ask(
        self,
        request: HttpRequest,
        pk: int,
        verb: str,
        intro: str,
        act: Any,
        *,
        submit: str,
        is_last: bool = False,
    ) -> HttpResponse:
        row = Schedule.objects.filter(pk=pk).first()
        if row is None:
            raise Http404
        own = reverse("admin:queue_schedule_change", args=[pk])
        all_of_them = reverse("admin:queue_schedule_changelist")
        answer = ask_and_act(
            request,
            self,
            obj=row,
            title=f"{verb} {row}",
            intro=intro,
            form=ReasonForm(request.POST or None),
            act=act,
            back=own,
            submit=submit,
        )
        gone = is_last and isinstance(answer, HttpResponseRedirect)
        return HttpResponseRedirect(all_of_them) if gone else answer

    # Actions

    @admin.action(permissions=["change"], description="Pause: fire no more")
    def pause(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        def verb(row: Schedule) -> None:
            register.pause(row.pk, scope=FLEET, actor=actor(request))

        self.each(request, queryset, verb, "Paused")

    @admin.action(permissions=["change"], description="Resume: go on with the next instant")
    def resume(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        def verb(row: Schedule) -> None:
            register.resume(row.pk, scope=FLEET, actor=actor(request))

        self.each(request, queryset, verb, "Resumed")


def _next_fires(row: Schedule) -> dict[str, Any]:
    """The table of the next fires; without a shard to ask for the time it is empty."""
    try:
        found = preview.upcoming(expressions.rule(row.cron, row.timezone), register.clock(), NEXT_SHOWN)
    except JobsPlatformError:
        found = []
    return {
        "headers": ["UTC", f"In {row.timezone}", "Note"],
        "rows": [
            [
                f"{fire.at:%a %Y-%m-%d %H:%M}",
                f"{fire.wall:%a %Y-%m-%d %H:%M} {preview.offset_words(fire)}",
                fire.note or NOTHING,
            ]
            for fire in found
        ],
    }


# What the platform keeps for itself


@admin.register(ScheduleFire)
class ScheduleFireAdmin(ShardAdmin):
    list_display = ("schedule_id", "nominal_at", "is_manual", "came", "job", "fired")
    fields = readonly_fields = ("schedule_id", "nominal_at", "is_manual", "came", "job", "fired_at")

    @admin.display(description="outcome")
    def came(self, row: ScheduleFire) -> SafeString:
        return badge(row.outcome)

    @admin.display
    def job(self, row: ScheduleFire) -> SafeString | str:
        return job_link(row.job_id)

    @admin.display
    def fired(self, row: ScheduleFire) -> SafeString | str:
        return ago(row.fired_at)


@admin.register(ScheduleRow)
class ScheduleRowAdmin(ShardAdmin):
    list_display = (
        "schedule_id",
        "version",
        "cron",
        "timezone",
        "is_enabled",
        "next_at",
        "due_at",
        "missed_count",
    )
    exclude = ("payload",)


@admin.register(ScheduleAnswer)
class ScheduleAnswerAdmin(ReadOnlyAdmin):
    list_display = ("key", "tenant_id", "answered_at")
    fields = readonly_fields = ("key", "tenant_id", "answered_at")
