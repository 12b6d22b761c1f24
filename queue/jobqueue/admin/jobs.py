"""Jobs: the list, and one job with what it has been through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobqueue import leases, reads
from jobqueue.admin.filters import TenantFilter
from jobqueue.admin.names import Names
from jobqueue.ids import format_id, parse_id
from jobqueue.models import Attempt, Job, LaneMinute
from jobqueue.reads import JobView
from jobqueue.states import State
from jobqueue.types import FLEET
from jobsplatform import database
from jobsplatform.adminsite import (
    NOTHING,
    ReasonForm,
    ShardAdmin,
    ShardFilter,
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

ATTEMPTS_SHOWN_MAX: Final = 50
CANCEL: Final = "queue.change_job"  # the permission


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
