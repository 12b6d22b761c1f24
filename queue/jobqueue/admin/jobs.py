"""Jobs: the list, and one job with what it has been through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from jobqueue import desk, exporting, leases, query, reads, retrying, reveal
from jobqueue.ids import format_id, parse_id
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.models import Attempt, Job, LaneMinute
from jobqueue.types import FLEET
from jobsplatform import database, frame
from jobsplatform.adminsite import (
    NOTHING,
    ReasonForm,
    ShardAdmin,
    actor,
    ago,
    ask_and_act,
    badge,
    require,
    streamed,
    table_page,
)
from jobsplatform.errors import JobsPlatformError, NotFound
from jobsplatform.exporting import visible
from jobsplatform.wording import describe, one_line, span

# Permissions
CANCEL: Final = "queue.change_job"
RETRY: Final = "queue.retry_job"
EXPORT: Final = "queue.export_job"
REVEAL: Final = ("queue.view_payload", "dlq.add_correction")  # who corrects must see what
DEAD_VERBS: Final = {"redrive": "dlq.add_redrive", "correct": "dlq.add_correction"}

frame.in_menu("Jobs", "queue_job_changelist", permission="queue.view_job", order=20)


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
    """The list is a query bar's; a job's page is read-only: what may change it are verbs, each with its own form."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("payload")

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("attempts/", wrap(attempts_page), name="queue_attempt_changelist"),
            path("minutes/", wrap(minutes_page), name="queue_laneminute_changelist"),
            path("export/", wrap(require_POST(export_view)), name="queue_job_export"),
            path("<path:object_id>/cancel/", wrap(self.cancel_view), name="queue_job_cancel"),
            path("<path:object_id>/retry/", wrap(self.retry_view), name="queue_job_retry"),
            path("<path:object_id>/reveal/", wrap(reveal_view), name="queue_job_reveal"),
            *super().get_urls(),
        ]

    # Pages

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Jobs that a query finds, newest first, over every shard."""
        require(request, "queue.view_job")
        found = desk.listing(
            request.GET.get("q", ""), scope=FLEET, href_of=job_url, before=request.GET.get("before")
        )
        context = {
            "listing": found,
            "opts": self.opts,
            "may_export": request.user.has_perm(EXPORT),
            "export_rows": exporting.ROWS_MAX,
        }
        return frame.page(request, "admin/queue/job/list.html", context, title="Jobs")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """One job: where it stands, what it has been through, and what may be done with it now."""
        require(request, "queue.view_job")
        if request.method == "POST":
            raise PermissionDenied
        try:
            job = desk.job_page(parse_id(object_id), scope=FLEET, href_of=job_url)
        except NotFound:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        may_reveal = any(request.user.has_perm(name) for name in REVEAL)
        context = {
            "job": job,
            "opts": self.opts,
            "verbs": _verbs(job, request),
            "reveal_href": _job_url("reveal", job.name) if may_reveal else "",
            "shows_tenant": True,
            "shows_audit": request.user.has_perm("tenants.view_auditentry"),
        }
        crumbs = [("Jobs", reverse("admin:queue_job_changelist"))]
        return frame.page(
            request, "admin/queue/job/page.html", context, title=f"Job {job.name}", crumbs=crumbs
        )

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask, then cancel."""
        require(request, CANCEL)
        job = self._job(request, object_id)
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

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask, then let a job that waits for an instant start at once."""
        require(request, RETRY)
        job = self._job(request, object_id)

        def act(said: Mapping[str, Any]) -> str:
            done = retrying.retry_now(job.pk, actor=actor(request), reason=said["reason"])
            return f"Job {job} is ready; it would have waited until {done.due_at:%Y-%m-%d %H:%M:%S} UTC."

        return ask_and_act(
            request,
            self,
            obj=job,
            title=f"Start {job} now",
            intro="The job becomes ready at once, at the end of its lane; its attempts count as before. A retry does "
            "not wait for its queue's budget then.",
            form=ReasonForm(request.POST or None),
            act=act,
            back=job_url(job.pk),
            submit="Start it now",
        )

    def _job(self, request: HttpRequest, object_id: str) -> Job:
        job = self.get_object(request, object_id)
        if not isinstance(job, Job):
            raise Http404
        return job

    def _cancel(self, job: Job, request: HttpRequest, said: Mapping[str, Any]) -> str:
        done = leases.cancel(job.pk, actor=actor(request), reason=said["reason"])
        return f"Job {job} was asked to stop." if done.cancel_requested else f"Job {job} is cancelled."


def _job_url(page: str, name: str) -> str:
    return reverse(f"admin:queue_job_{page}", args=[name])


def _verbs(job: desk.JobPage, request: HttpRequest) -> list[tuple[str, str]]:
    """What this user may do with the job as it is now: text and address."""
    may = request.user.has_perm
    found = []
    if job.can_be_hastened and may(RETRY):
        found.append(("Retry now…", _job_url("retry", job.name)))
    if job.can_be_cancelled and may(CANCEL):
        found.append(("Cancel…", _job_url("cancel", job.name)))
    for verb, permission in DEAD_VERBS.items():
        if job.is_dead and may(permission):
            address = reverse(f"admin:dlq_deadletter_{verb}", args=[job.name])
            found.append((f"{verb.capitalize()}…", address))
    if job.is_dead and may("dlq.view_deadletter"):
        found.append(("Dead letter", reverse("admin:dlq_deadletter_change", args=[job.name])))
    return found


def export_view(request: HttpRequest) -> HttpResponseBase:
    """The search as a file, piece by piece."""
    require(request, EXPORT)
    form = request.POST.get("format", "")
    try:
        asked = query.parse(request.POST.get("q", ""))
        pieces = exporting.export(asked, scope=FLEET, form=form, actor=actor(request))
    except JobsPlatformError as error:
        messages.error(request, describe(error))
        return HttpResponseRedirect(reverse("admin:queue_job_changelist"))
    return streamed(pieces, form, "jobs")


def reveal_view(request: HttpRequest, object_id: str) -> HttpResponse:
    """Ask why, then show a payload or a result, in this answer alone; audited."""
    if not any(request.user.has_perm(name) for name in REVEAL):
        raise PermissionDenied
    asked = request.POST if request.method == "POST" else request.GET
    what = "result" if asked.get("what") == "result" else "payload"
    reason = request.POST.get("reason", "").strip()[:REASON_CHARS_MAX]
    is_shown = request.method == "POST" and bool(reason)
    text: str | None = None
    reference: str | None = None
    try:
        job_id = parse_id(object_id)
        reads.job(job_id, scope=FLEET)
        if is_shown and what == "payload":
            text, reference = reveal.payload(job_id, scope=FLEET, actor=actor(request), reason=reason)
        elif is_shown:
            text = reveal.result(job_id, scope=FLEET, actor=actor(request), reason=reason)
    except NotFound:
        raise Http404 from None
    context = {
        "what": what,
        "shown": is_shown,
        "text": text,
        "reference": f"It is a reference: {reference}" if reference is not None else "There is none.",
        "name": object_id,
        "back": job_url(job_id),
    }
    crumbs = [("Jobs", reverse("admin:queue_job_changelist")), (f"Job {object_id}", job_url(job_id))]
    title = f"{what.capitalize()} of {object_id}"
    return frame.page(request, "admin/queue/job/reveal.html", context, title=title, crumbs=crumbs)


def first_line(text: str | None) -> str:
    """The first line of a message, cut to what a table bears."""
    return visible(one_line((text or "").strip().split("\n", 1)[0])[:200])


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
        "Worker": lambda row: visible(row.worker) if row.worker else NOTHING,
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
