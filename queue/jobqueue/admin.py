"""The queue in the admin: jobs wherever they stand (read-only), queues and quotas (edited by verbs)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import admin
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobqueue import kinds, leases, policies, reads
from jobqueue.ids import format_id, parse_id
from jobqueue.models import (
    Attempt,
    Horizon,
    IdSpace,
    Job,
    JobKind,
    KindRow,
    Lane,
    LaneDelta,
    LaneMinute,
    Lease,
    PolicyRow,
    Queue,
    ReadyJob,
    RequestKey,
    Result,
    ScheduledJob,
    SchedulerState,
)
from jobqueue.reads import JobView
from jobqueue.states import State
from jobqueue.types import FLEET
from jobsplatform import database
from jobsplatform.adminsite import (
    NOTHING,
    ModelForm,
    ReadOnlyAdmin,
    ReasonForm,
    ShardAdmin,
    ShardFilter,
    VerbAdmin,
    actor,
    ago,
    ask_and_act,
    badge,
    masked,
    require,
    table_page,
    until,
)
from jobsplatform.errors import NotFound
from jobsplatform.wording import one_line, span
from tenants import registry
from tenants.models import Quota, Tenant

TENANTS_SHOWN_MAX: Final = 100  # in a filter
ATTEMPTS_SHOWN_MAX: Final = 50
CANCEL: Final = "queue.change_job"  # the permission


# Names: what control knows by number


@dataclass(frozen=True, slots=True)
class Place:
    """Whose a job is and where: names for its numbers, looked up for a whole page at once."""

    tenant: str
    queue: str
    band: str
    kind: str


class Names:
    """The names of some tenants and queues."""

    def __init__(self, tenant_ids: Iterable[int], queue_ids: Iterable[int]) -> None:
        self._tenants = dict(Tenant.objects.filter(pk__in=set(tenant_ids)).values_list("pk", "slug"))
        rows = Queue.objects.filter(pk__in=set(queue_ids)).values_list("pk", "name", "bands")
        self._queues = {pk: (name, [band["name"] for band in bands]) for pk, name, bands in rows}

    def tenant(self, tenant_id: int | None) -> str:
        return NOTHING if tenant_id is None else self._tenants.get(tenant_id, f"#{tenant_id}")

    def queue(self, queue_id: int) -> str:
        return self._queues.get(queue_id, (f"#{queue_id}", []))[0]

    def band(self, queue_id: int, index: int) -> str:
        bands = self._queues.get(queue_id, ("", []))[1]
        return bands[index] if 0 <= index < len(bands) else str(index)

    def place(self, job: Any) -> Place:
        """Of a job, or of what has a job's columns."""
        band = self.band(job.queue_id, job.priority)
        return Place(self.tenant(job.tenant_id), self.queue(job.queue_id), band, job.kind)


def places_of_jobs(job_ids: Sequence[int]) -> dict[int, Place]:
    """Job id → its place, for jobs of any shard: one query a shard and two to control."""
    found: list[Job] = []
    for alias in {database.alias_of(job_id) for job_id in job_ids} - {None}:
        ids = [job_id for job_id in job_ids if database.alias_of(job_id) == alias]
        jobs = Job.objects.using(alias).filter(pk__in=ids)
        found += jobs.only("tenant_id", "queue_id", "priority", "kind")
    known = Names((job.tenant_id for job in found), (job.queue_id for job in found))
    return {job.pk: known.place(job) for job in found}


# Filters, each along an index


class TenantFilter(admin.SimpleListFilter):
    """One tenant's rows."""

    title = parameter_name = "tenant"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        tenants = Tenant.objects.order_by("slug").values_list("pk", "slug")
        return [(str(pk), slug) for pk, slug in tenants[:TENANTS_SHOWN_MAX]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(tenant_id=int(value)) if value and value.isdecimal() else queryset


def since_filter(field: str, label: str) -> type[admin.SimpleListFilter]:
    """Rows whose instant lies in the last hour, day or week."""

    class Since(admin.SimpleListFilter):
        title = label
        parameter_name = "since"
        hours: ClassVar = {"hour": 1, "day": 24, "week": 168}

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(word, f"in the last {word}") for word in self.hours]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            hours = self.hours.get(self.value() or "")
            if hours is None:
                return queryset
            return queryset.filter(**{f"{field}__gte": timezone.now() - timedelta(hours=hours)})

    return Since


def due_filter(field: str, label: str, past: str, future: str) -> type[admin.SimpleListFilter]:
    """Rows whose instant has passed, or has not."""

    class Due(admin.SimpleListFilter):
        title = label
        parameter_name = "due"

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [("past", past), ("future", future)]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            lookup = {"past": "lte", "future": "gt"}.get(self.value() or "")
            return queryset.filter(**{f"{field}__{lookup}": timezone.now()}) if lookup else queryset

    return Due


# Jobs


def job_url(job_id: int) -> str:
    """The page of a job."""
    return reverse("admin:queue_job_change", args=[format_id(job_id)])


def job_link(job_id: int) -> SafeString:
    return format_html('<a href="{}">{}</a>', job_url(job_id), format_id(job_id))


class JobKeyedAdmin(ShardAdmin):
    """Rows whose key is a job's id: pages are named by the id that the world knows, on the job's own shard."""

    search_help_text = "A job's id, such as 0-42"
    search_fields: ClassVar[Any] = ("job_id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term.strip():
            return queryset, False
        try:
            job_id = parse_id(search_term.strip())
        except NotFound:
            return queryset.none(), False
        alias = database.alias_of(job_id)
        return (queryset.using(alias).filter(pk=job_id) if alias else queryset.none()), False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        try:
            job_id = parse_id(object_id)
        except NotFound:
            return None
        alias = database.alias_of(job_id)
        found = None if alias is None else self.model._default_manager.using(alias).filter(pk=job_id).first()
        if found is not None:
            self.prepare([found])
        return found

    def url_of(self, row: Any) -> str | None:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[format_id(row.pk)])


@admin.register(Job)
class JobAdmin(JobKeyedAdmin):
    list_display = ("job", "state", "kind", "tenant", "queue", "band", "created", "tries", "last_error")
    list_filter = (ShardFilter, TenantFilter)
    search_fields = ("id",)
    change_form_template = "admin/queue/job/change_form.html"
    fieldsets = (
        (
            None,
            {"fields": (("state", "kind"), ("tenant", "queue"), ("band", "dependency"), "request_key")},
        ),
        ("Time", {"fields": (("created_at", "not_before"), ("due", "deadline"), ("running", "finished"))}),
        (
            "Tries",
            {"fields": (("tries", "generation"), ("crashes", "redrives"), "dead_reason", "last_error")},
        ),
        ("Content", {"fields": ("content", "payload_ref", "traceparent")}),
    )
    readonly_fields = (
        "state",
        "tenant",
        "queue",
        "band",
        "due",
        "running",
        "finished",
        "tries",
        "generation",
        "crashes",
        "redrives",
        "dead_reason",
        "last_error",
        "content",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("payload")

    def prepare(self, rows: Sequence[Any]) -> None:
        views = reads.jobs([row.pk for row in rows], scope=FLEET)
        known = Names((row.tenant_id for row in rows), (row.queue_id for row in rows))
        for row in rows:
            row.view, row.place = views.get(row.pk), known.place(row)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("attempts/", wrap(attempts_page), name="queue_attempt_changelist"),
            path("minutes/", wrap(minutes_page), name="queue_laneminute_changelist"),
            path("<path:object_id>/cancel/", wrap(self.cancel_view), name="queue_job_cancel"),
            *super().get_urls(),
        ]

    # Columns

    @admin.display(description="job")
    def job(self, row: Any) -> str:
        return format_id(row.pk)

    @admin.display
    def state(self, row: Any) -> SafeString:
        return badge(_of(row, "state"))

    @admin.display
    def tenant(self, row: Any) -> str:
        return str(row.place.tenant)

    @admin.display
    def queue(self, row: Any) -> str:
        return str(row.place.queue)

    @admin.display
    def band(self, row: Any) -> str:
        return str(row.place.band)

    @admin.display(description="age")
    def created(self, row: Any) -> SafeString | str:
        return ago(row.created_at)

    @admin.display(description="attempts")
    def tries(self, row: Any) -> str:
        used = _of(row, "attempts_used")
        return NOTHING if used is None else f"{used} of {_of(row, 'max_attempts')}"

    @admin.display(description="last error")
    def last_error(self, row: Any) -> str:
        error_class = _of(row, "error_class")
        return f"{error_class}: {first_line(_of(row, 'error_message'))}" if error_class else NOTHING

    @admin.display
    def due(self, row: Any) -> SafeString | str:
        return until(_of(row, "due_at"))

    @admin.display(description="running since")
    def running(self, row: Any) -> SafeString | str:
        claimed_at = _of(row, "claimed_at")
        if claimed_at is None:
            return NOTHING
        asked = " · cancel requested" if _of(row, "cancel_requested") else ""
        return format_html("{} · lease ends {}{}", ago(claimed_at), until(_of(row, "expires_at")), asked)

    @admin.display
    def finished(self, row: Any) -> SafeString | str:
        return until(_of(row, "finished_at"))

    @admin.display
    def generation(self, row: Any) -> object:
        return _of(row, "generation")

    @admin.display
    def crashes(self, row: Any) -> object:
        return _of(row, "crashes")

    @admin.display
    def redrives(self, row: Any) -> object:
        return _of(row, "redrive_generation")

    @admin.display(description="dead because")
    def dead_reason(self, row: Any) -> str:
        return _of(row, "dead_reason") or NOTHING

    @admin.display(description="payload")
    def content(self, row: Any) -> SafeString | str:
        return masked(_of(row, "payload_bytes"), _of(row, "payload_sha256"))

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
        if obj is not None and obj.view is not None:
            context |= {
                "attempts": _attempts(obj.pk),
                "result": _result(obj.view),
                "name": format_id(obj.pk),
                "is_dead": obj.view.state == State.DEAD,
                "can_cancel": obj.view.state in (State.SCHEDULED, State.READY, State.RUNNING)
                and request.user.has_perm(CANCEL),
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask, then cancel."""
        require(request, CANCEL)
        job = self.get_object(request, object_id)
        if job is None:
            raise Http404
        return ask_and_act(
            request,
            self,
            obj=job,
            title=f"Cancel {job}",
            intro="A waiting job ends at once. A running one is asked to stop at its next heartbeat; "
            "if it completes first, that counts.",
            form=ReasonForm(request.POST or None),
            act=lambda said: self._cancel(job, request, said),
            back=job_url(job.pk),
            submit="Cancel the job",
        )

    def _cancel(self, job: Job, request: HttpRequest, said: Mapping[str, Any]) -> str:
        done = leases.cancel(job.pk, actor=actor(request), reason=said["reason"])
        return f"Job {job} was asked to stop." if done.cancel_requested else f"Job {job} is cancelled."


def _of(row: Any, member: str) -> Any:
    """What the row's view says; None while the job is between two places."""
    view: JobView | None = row.view
    return None if view is None else getattr(view, member)


def first_line(text: str | None) -> str:
    """The first line of a message, cut to what a table bears."""
    return one_line((text or "").strip().split("\n", 1)[0])[:200]


def _attempts(job_id: int) -> dict[str, Any]:
    """The table of a job's attempts."""
    views, more = reads.attempts(job_id, scope=FLEET, before=None, limit=ATTEMPTS_SHOWN_MAX)
    return {
        "headers": ["Generation", "Attempt", "Outcome", "Error", "Worker", "Began", "Took"],
        "rows": [
            [
                view.generation,
                view.attempt,
                badge(view.outcome or "running"),
                f"{view.error_class}: {first_line(view.message)}" if view.error_class else NOTHING,
                view.worker or NOTHING,
                ago(view.claimed_at),
                NOTHING if view.service_ms is None else span(view.service_ms / 1_000),
            ]
            for view in views
        ],
        "more": more is not None,
    }


def _result(view: JobView) -> SafeString | str:
    """The result by size and hash."""
    if view.state != State.SUCCEEDED:
        return ""
    try:
        result = reads.result(view.job_id, scope=FLEET)
    except NotFound:
        return ""
    return masked(len((result.body or "").encode()), result.payload_hash)


# Where jobs stand


class PlaceAdmin(JobKeyedAdmin):
    """Jobs in one place. A row leads to the job."""

    def prepare(self, rows: Sequence[Any]) -> None:
        places = places_of_jobs([row.pk for row in rows])
        for row in rows:
            row.place = places.get(row.pk)

    def url_of(self, row: Any) -> str | None:
        return job_url(row.pk)

    @admin.display
    def job(self, row: Any) -> SafeString | str:
        return format_id(row.pk)

    @admin.display
    def kind(self, row: Any) -> str:
        return row.place.kind if row.place else NOTHING

    @admin.display
    def tenant(self, row: Any) -> str:
        return row.place.tenant if row.place else NOTHING

    @admin.display
    def queue(self, row: Any) -> str:
        return row.place.queue if row.place else NOTHING

    @admin.display
    def band(self, row: Any) -> str:
        return row.place.band if row.place else NOTHING

    @admin.display(description="attempts")
    def tries(self, row: Any) -> str:
        return f"{row.attempt} of {row.max_attempts}"

    @admin.display(description="waits since")
    def waits_since(self, row: Any) -> SafeString | str:
        return ago(row.first_ready_at)

    @admin.display(description="checkpoint")
    def checkpoint_size(self, row: Any) -> str:
        return NOTHING if row.checkpoint is None else f"{len(row.checkpoint.encode()):,} bytes"


PLACE: Final = ("job", "kind", "tenant", "queue", "band")
TICKET: Final = (
    "deadline",
    "generation",
    "releases",
    "crashes",
    "lapses",
    "payload_version",
    "redrive_generation",
    "reconcile",
)


@admin.register(ReadyJob)
class ReadyJobAdmin(PlaceAdmin):
    list_display = (*PLACE, "waits_since", "tries", "is_fresh")
    fields = readonly_fields = (
        *PLACE,
        "waits_since",
        "position",
        "is_fresh",
        "tries",
        *TICKET,
        "checkpoint_size",
    )

    @admin.display(description="fresh", boolean=True)
    def is_fresh(self, row: ReadyJob) -> bool:
        return row.fresh


@admin.register(ScheduledJob)
class ScheduledJobAdmin(PlaceAdmin):
    list_display = (*PLACE, "reason", "due", "tries")
    list_filter = (ShardFilter, due_filter("due_at", "due", "now", "later"))
    fields = readonly_fields = (*PLACE, "reason", "due_at", "tries", *TICKET, "checkpoint_size")

    @admin.display
    def due(self, row: ScheduledJob) -> SafeString | str:
        return until(row.due_at)


@admin.register(Lease)
class LeaseAdmin(PlaceAdmin):
    list_display = (*PLACE, "held_by", "since", "ends", "tries", "is_asked_to_stop")
    list_filter = (ShardFilter, due_filter("expires_at", "lease", "has lapsed", "holds"))
    fields = readonly_fields = (
        *PLACE,
        "held_by",
        "claimed_at",
        "expires_at",
        "max_run_at",
        "is_started",
        "cancel_requested",
        "tries",
        *TICKET,
        "checkpoint_size",
    )

    @admin.display(description="worker")
    def held_by(self, row: Lease) -> str:
        return row.worker or NOTHING

    @admin.display(description="runs since")
    def since(self, row: Lease) -> SafeString | str:
        return ago(row.claimed_at)

    @admin.display(description="lease ends")
    def ends(self, row: Lease) -> SafeString | str:
        return until(row.expires_at)

    @admin.display(description="to stop", boolean=True)
    def is_asked_to_stop(self, row: Lease) -> bool:
        return row.cancel_requested


@admin.register(Result)
class ResultAdmin(PlaceAdmin):
    list_display = (*PLACE, "state", "ended", "attempt", "late")
    list_filter = (ShardFilter, since_filter("finished_at", "finished"))
    fields = readonly_fields = (
        *PLACE,
        "state",
        "finished_at",
        "generation",
        "attempt",
        "crashes",
        "redrive_generation",
        "late",
        "content",
    )

    @admin.display(description="outcome")
    def state(self, row: Result) -> SafeString:
        return badge(row.outcome)

    @admin.display(description="ended")
    def ended(self, row: Result) -> SafeString | str:
        return ago(row.finished_at)

    @admin.display(description="result")
    def content(self, row: Result) -> SafeString | str:
        if row.body is None or row.payload_hash is None:
            return NOTHING
        return masked(len(row.body.encode()), bytes(row.payload_hash).hex())


# Queues and quotas


def _words(name: str) -> str:
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
            self.fields[name].label = _words(name)
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

    @admin.action(permissions=["change"], description="Pause: start no more jobs")
    def pause(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self.each(request, queryset, lambda q: policies.pause(q.name, actor=actor(request)), "Paused")

    @admin.action(permissions=["change"], description="Resume: start jobs again")
    def resume(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self.each(request, queryset, lambda q: policies.resume(q.name, actor=actor(request)), "Resumed")

    @admin.action(permissions=["change"], description="Pause intake: refuse new jobs")
    def pause_intake(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        def verb(queue: Queue) -> None:
            policies.pause(queue.name, intake=True, actor=actor(request))

        self.each(request, queryset, verb, "Intake paused")

    @admin.action(permissions=["change"], description="Resume intake: take new jobs in again")
    def resume_intake(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        def verb(queue: Queue) -> None:
            policies.resume(queue.name, intake=True, actor=actor(request))

        self.each(request, queryset, verb, "Intake resumed")


def _band(band: Mapping[str, Any]) -> str:
    notes = ["strict"] if band.get("strict") else [f"×{band.get('weight', 1)}"]
    return f"{band['name']} {', '.join(notes + (['bulk'] if band.get('bulk') else []))}"


class QuotaForm(ModelForm):
    """Limits of a tenant; the queue and its band must exist."""

    queue = forms.ChoiceField(required=False, help_text="Empty: over all queues.")

    class Meta:
        model = Quota
        fields = ("tenant", "queue", "band", *registry.LIMITS)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "queue" in self.fields:
            names = Queue.objects.order_by("name").values_list("name", flat=True)
            self.fields["queue"].choices = [("", "all queues"), *((name, name) for name in names)]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        queue, band = self.cleaned_data.get("queue"), self.cleaned_data.get("band")
        if band is not None and not self.instance.pk:
            if not queue:
                self.add_error("band", "A band needs its queue.")
            elif not 0 <= band < len(policies.by_name(queue).bands):
                self.add_error(
                    "band", f"Queue {queue} has the bands 0 to {len(policies.by_name(queue).bands) - 1}."
                )
        return cleaned


@admin.register(Quota)
class QuotaAdmin(VerbAdmin):
    """Stands here and not with the tenants because it must know queues and bands."""

    form = QuotaForm
    list_display = ("tenant", "scope", *registry.LIMITS)
    list_filter = (TenantFilter,)
    list_select_related = ("tenant",)
    autocomplete_fields = ("tenant",)
    fieldsets = (
        (None, {"fields": ("tenant", "queue", "band")}),
        ("Limits (empty: none)", {"fields": registry.LIMITS}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else ("tenant", "queue", "band")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        quota = registry.set_quota(
            obj.tenant.slug,
            {name: form.cleaned_data[name] for name in registry.LIMITS},
            queue=obj.queue,
            band=obj.band,
            actor=actor(request),
        )
        obj.pk = quota.pk
        obj.refresh_from_db()

    @admin.display(description="where")
    def scope(self, quota: Quota) -> str:
        return " / ".join(
            [quota.queue or "all queues", "all bands" if quota.band is None else str(quota.band)]
        )


# What the platform keeps for itself


class NamedRowsAdmin(ShardAdmin):
    """Rows that carry numbers of tenants and queues."""

    def prepare(self, rows: Sequence[Any]) -> None:
        tenant_ids = [row.tenant_id for row in rows if getattr(row, "tenant_id", None) is not None]
        known = Names(tenant_ids, [row.queue_id for row in rows])
        for row in rows:
            row.names = known

    @admin.display
    def tenant(self, row: Any) -> str:
        return str(row.names.tenant(row.tenant_id))

    @admin.display
    def queue(self, row: Any) -> str:
        return str(row.names.queue(row.queue_id))


@admin.register(Lane)
class LaneAdmin(NamedRowsAdmin):
    list_display = (
        "id",
        "queue",
        "band",
        "tenant",
        "kind",
        "dependency",
        "is_active",
        "gated_until",
        "bound",
        "used_at",
    )
    fields = readonly_fields = (
        "queue",
        "band",
        "tenant",
        "kind",
        "dependency",
        "is_active",
        "gated_until",
        "bound",
        "used_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The bound may be minus infinity, which Python's instants do not know: as text."""
        rows = super().get_queryset(request).defer("low")
        shown: QuerySet[Any] = rows.annotate(low_text=Cast("low", TextField()))
        return shown

    @admin.display
    def band(self, row: Any) -> str:
        return str(row.names.band(row.queue_id, row.priority))

    @admin.display(description="low")
    def bound(self, row: Any) -> str:
        return str(row.low_text)


@admin.register(RequestKey)
class RequestKeyAdmin(NamedRowsAdmin):
    list_display = ("key", "tenant", "queue", "job", "accepted", "is_purged")
    fields = readonly_fields = ("key", "tenant", "queue", "job", "accepted_at", "job_purged_at")

    @admin.display
    def job(self, row: RequestKey) -> SafeString:
        return job_link(row.job_id)

    @admin.display
    def accepted(self, row: RequestKey) -> SafeString | str:
        return ago(row.accepted_at)

    @admin.display(description="job purged", boolean=True)
    def is_purged(self, row: RequestKey) -> bool:
        return row.job_purged_at is not None


@admin.register(SchedulerState)
class SchedulerStateAdmin(NamedRowsAdmin):
    list_display = ("id", "queue", "part", "policy_version", "at")
    fields = readonly_fields = ("queue", "part", "policy_version", "state", "at")


class JobKindForm(ModelForm):
    """Settings that stand in the code's stead; each says what the code has."""

    class Meta:
        model = JobKind
        fields = ("name", *kinds.SETTINGS)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in kinds.SETTINGS:
            if name in self.fields:
                declared = self.instance.declared.get(name)
                known = "as its code has it" if declared is None else f"as its code has it: {declared}"
                self.fields[name].label = _words(name)
                self.fields[name].help_text = f"{self.fields[name].help_text} Empty: {known}."


@admin.register(JobKind)
class JobKindAdmin(VerbAdmin):
    form = JobKindForm
    list_display = ("name", "has_schema", "acts_outside", "tries", "code")
    fieldsets = (
        (None, {"fields": ("name",)}),
        ("Payloads", {"fields": ("payload_schema", "external_effects")}),
        ("Failing", {"fields": ("max_attempts", ("backoff_base_s", "backoff_cap_s"))}),
        ("Where", {"fields": ("queue", "dependency", "cost_hint_s")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else ("name",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # jobs of the kind may wait: emptying its settings is enough

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        wanted = {name: form.cleaned_data[name] for name in form.changed_data if name in kinds.SETTINGS}
        obj.pk = kinds.change(obj.name, wanted, actor=actor(request)).pk
        obj.refresh_from_db()

    @admin.display(description="has a schema", boolean=True)
    def has_schema(self, kind: JobKind) -> bool:
        return bool(kinds.effective(kind)["payload_schema"])

    @admin.display(description="acts outside", boolean=True)
    def acts_outside(self, kind: JobKind) -> bool:
        return bool(kinds.effective(kind)["external_effects"])

    @admin.display(description="max attempts")
    def tries(self, kind: JobKind) -> int | None:
        attempts: int | None = kinds.effective(kind)["max_attempts"]
        return attempts

    @admin.display(description="handler")
    def code(self, kind: JobKind) -> str:
        return kind.declared_by or NOTHING


@admin.register(KindRow)
class KindRowAdmin(ShardAdmin):
    list_display = ("kind", "version", "external_effects", "max_attempts", "dependency")


@admin.register(PolicyRow)
class PolicyRowAdmin(ShardAdmin):
    list_display = ("name", "version", "lease_s", "max_attempts", "is_dispatch_paused", "is_intake_paused")


@admin.register(LaneDelta)
class LaneDeltaAdmin(ShardAdmin):
    list_display = ("id", "lane_id", "at", "started", "succeeded", "failed", "retried", "lease_lost", "dead")


@admin.register(Horizon)
class HorizonAdmin(ShardAdmin):
    list_display = ("at", "next_xid")


@admin.register(IdSpace)
class IdSpaceAdmin(ReadOnlyAdmin):
    list_display = ("space", "shard", "reason", "created_at")


# Models that Django cannot register: their keys have two columns


def attempts_page(request: HttpRequest) -> HttpResponse:
    """Every attempt that has ended, by job."""
    columns: dict[str, Callable[[Attempt], object]] = {
        "Job": lambda row: job_link(row.job_id),
        "Generation": lambda row: row.generation,
        "Attempt": lambda row: row.attempt,
        "Outcome": lambda row: badge(row.outcome),
        "Led to": lambda row: row.led_to,
        "Error": lambda row: f"{row.error_class}: {first_line(row.message)}" if row.error_class else NOTHING,
        "Worker": lambda row: row.worker or NOTHING,
        "Ended": lambda row: ago(row.ended_at),
        "Took": lambda row: span(row.service_ms / 1_000),
    }
    return table_page(request, _page_admin(), Attempt, ("job_id", "generation"), columns)


def minutes_page(request: HttpRequest) -> HttpResponse:
    """The ledger by lane and minute."""
    counts = ("started", "succeeded", "failed", "retried", "lease_lost", "dead", "service_ms")
    columns: dict[str, Callable[[LaneMinute], object]] = {
        "Lane": lambda row: row.lane_id,
        "Minute": lambda row: row.minute,
    }
    for name in counts:
        columns[name.replace("_", " ").capitalize()] = lambda row, name=name: getattr(row, name)  # type: ignore[misc]
    return table_page(request, _page_admin(), LaneMinute, ("lane_id", "minute"), columns)


def _page_admin() -> admin.ModelAdmin[Any]:
    return admin.site.get_model_admin(Job)


# Their screens are in modules of their own; Django finds them through this one.
from jobqueue import admin_dependencies, admin_policies, admin_schedules  # noqa: E402, F401
