"""The dead-letter desk in the admin: look, correct, redrive. Payloads are masked until someone corrects one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import token_urlsafe
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dlq import campaigns, reads, redrive
from dlq.admin.campaigns import (
    MAY_REDRIVE,
    PlanForm,
    ask_for_campaign,
    selection,
    start_page,
    told,
)
from dlq.admin.comparing import compared
from dlq.admin.correcting import correction_page
from dlq.admin.groups import group_page, groups_page
from dlq.forms import RedriveForm
from dlq.models import Correction, DeadLetter, Redrive
from dlq.reads import DeadLetterView
from jobqueue.admin.filters import since_filter
from jobqueue.admin.jobs import first_line, job_link
from jobqueue.admin.places import PLACE, TICKET, PlaceAdmin
from jobqueue.ids import format_id
from jobqueue.types import FLEET
from jobsplatform import database
from jobsplatform.adminsite import (
    NOTHING,
    ShardAdmin,
    ShardFilter,
    actor,
    ago,
    ask_and_act,
    badge,
    masked,
    require,
    table_page,
)
from jobsplatform.errors import JobsPlatformError, NotFound
from jobsplatform.exporting import visible
from jobsplatform.wording import describe

MAY_CORRECT: Final = "dlq.add_correction"
REDRIVES_SHOWN_MAX: Final = 50
TRIES: Final = (
    ("tries", "generation"),
    ("crashes", "lapses"),
    ("releases", "redrive_generation"),
    ("payload_version", "reconcile"),
    "deadline",
)


class FullRedriveForm(RedriveForm):
    """How a dead letter goes back, and how often it may try."""

    max_attempts = forms.IntegerField(
        required=False, min_value=1, max_value=100, help_text="Empty: as many as before; they count from 0."
    )


@admin.register(DeadLetter)
class DeadLetterAdmin(PlaceAdmin):
    list_display = (*PLACE, "why", "error", "failed", "redrives")
    list_filter = (ShardFilter, "reason", since_filter("failed_at", "failed"))
    actions = ("redrive_selected",)
    change_list_template = "admin/dlq/deadletter/change_list.html"
    keyset = ("failed_at", "job_id")
    change_form_template = "admin/dlq/deadletter/change_form.html"
    readonly_fields = (*PLACE, "why", "failed_at", "error_class", "said", "fingerprint", "tries", *TICKET)
    fieldsets = (
        (None, {"fields": (("job", "kind"), ("tenant", "queue"), ("band", "why"), "failed_at")}),
        ("Last error", {"fields": (("error_class", "fingerprint"), "said")}),
        ("Content", {"fields": ("content", "payload_ref", "needs_correction", "checkpoint_size")}),
        ("Tries", {"fields": TRIES}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*self.readonly_fields, "content", "payload_ref", "needs_correction", "checkpoint_size")

    def url_of(self, row: Any) -> str | None:
        return _url("change", row.pk)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("campaign/", wrap(start_page), name="dlq_deadletter_campaign"),
            path("groups/", wrap(groups_page), name="dlq_deadletter_groups"),
            path("groups/<slug:fingerprint>/", wrap(group_page), name="dlq_deadletter_group"),
            path("redrives/", wrap(redrives_page), name="dlq_redrive_changelist"),
            path("<path:object_id>/redrive/", wrap(self.redrive_view), name="dlq_deadletter_redrive"),
            path("<path:object_id>/correct/", wrap(self.correct_view), name="dlq_deadletter_correct"),
            *super().get_urls(),
        ]

    @admin.action(permissions=["redrive"], description="Redrive in a campaign…")
    def redrive_selected(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        """Ask for the plan, then start a campaign over the ticked, or over all that the list was narrowed to."""
        try:
            chosen = selection(request, [int(pk) for pk in request.POST.getlist("_selected_action")])
        except JobsPlatformError as error:
            messages.error(request, describe(error))
            return HttpResponseRedirect(request.get_full_path())
        return ask_for_campaign(
            request,
            PlanForm(request.POST if "apply" in request.POST else None),
            lambda said: chosen,
            intro=f"{told(campaigns.preview(chosen, scope=FLEET))} They go back into their queues, paced; the note is "
            "kept in an audit entry each.",
            back=request.get_full_path(),
            context={"hidden": _asked_again(request)},
        )

    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(MAY_REDRIVE)

    # Columns

    @admin.display(description="reason")
    def why(self, row: DeadLetter) -> SafeString:
        return badge(row.reason)

    @admin.display(description="last error")
    def error(self, row: DeadLetter) -> str:
        return ": ".join(filter(None, [row.error_class, first_line(row.message)])) or NOTHING

    @admin.display(description="message")
    def said(self, row: DeadLetter) -> SafeString | str:
        return format_html('<pre class="text">{}</pre>', visible(row.message)) if row.message else NOTHING

    @admin.display(description="failed")
    def failed(self, row: DeadLetter) -> SafeString | str:
        return ago(row.failed_at)

    @admin.display
    def redrives(self, row: DeadLetter) -> int:
        return row.redrive_generation

    @admin.display(description="payload")
    def content(self, row: DeadLetter) -> SafeString | str:
        view = _view(row)
        return NOTHING if view is None else masked(view.payload_bytes, view.payload_sha256)

    @admin.display(description="payload reference")
    def payload_ref(self, row: DeadLetter) -> str:
        view = _view(row)
        return visible((view and view.payload_ref) or NOTHING)

    @admin.display(description="must be corrected first", boolean=True)
    def needs_correction(self, row: DeadLetter) -> bool:
        view = _view(row)
        return view is not None and view.correction_required

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
                "name": format_id(obj.pk),
                "can_correct": request.user.has_perm(MAY_CORRECT),
                "can_redrive": request.user.has_perm(MAY_REDRIVE),
                "tables": [_corrections(obj), _redrives(obj)],
                "compared": compared(obj.pk, request.GET),
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def redrive_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask, then redrive."""
        require(request, MAY_REDRIVE)
        letter = self._letter(request, object_id)
        return ask_and_act(
            request,
            self,
            obj=letter,
            title=f"Redrive {letter}",
            intro="The job goes back into its queue under the same id; attempts and crashes count from 0 again. "
            "The note is kept in the audit.",
            form=FullRedriveForm(request.POST or None, initial={"redrive_key": f"admin:{token_urlsafe(12)}"}),
            act=lambda said: _redrive(letter, request, said),
            back=_url("change", letter.pk),
            submit="Redrive the job",
        )

    def correct_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a new payload, compare it, then store it beside the old one."""
        require(request, MAY_CORRECT)
        letter = self._letter(request, object_id)
        view = _view(letter)
        if view is None:
            raise Http404

        def done(message: str) -> None:
            messages.success(request, message)
            self.log_change(request, letter, message)

        return correction_page(request, letter, view, done=done)

    def _letter(self, request: HttpRequest, object_id: str) -> DeadLetter:
        found = self.get_object(request, object_id)
        if not isinstance(found, DeadLetter):
            raise Http404
        return found


def _asked_again(request: HttpRequest) -> list[tuple[str, str]]:
    """What the page must send again so that the action is this one."""
    kept = [
        (name, value)
        for name in ("action", "select_across", "index", "_selected_action")
        for value in request.POST.getlist(name)
    ]
    return [*kept, ("apply", "1")]


def _url(page: str, job_id: int) -> str:
    return reverse(f"admin:dlq_deadletter_{page}", args=[format_id(job_id)])


def _view(letter: DeadLetter) -> DeadLetterView | None:
    """What the desk shows of it; read once a row."""
    kept: dict[str, Any] = letter.__dict__
    if "view" not in kept:
        try:
            kept["view"] = reads.dead_letter(letter.pk, scope=FLEET)
        except NotFound:
            kept["view"] = None
    view: DeadLetterView | None = kept["view"]
    return view


def _redrive(letter: DeadLetter, request: HttpRequest, said: Mapping[str, Any]) -> str:
    new = redrive.NewRedrive(
        note=said["note"],
        actor=actor(request),
        redrive_key=said["redrive_key"],
        not_before=said["not_before"],
        deadline=said["deadline"],
        max_attempts=said["max_attempts"],
    )
    done = redrive.redrive(letter.pk, new, scope=FLEET)
    return f"Job {letter} is {done.state} again (redrive {done.redrive_generation}, audit {done.audit_id})."


def _corrections(letter: DeadLetter) -> dict[str, Any]:
    return {
        "title": "Corrections",
        "none": "Nobody has corrected the payload.",
        "headers": ["Version", "Note", "Author", "When", "Old hash", "New hash"],
        "rows": [
            [v.version, visible(v.note), v.author, ago(v.at), _hash(v.old_sha256), _hash(v.new_sha256)]
            for v in reads.corrections([letter.pk])[letter.pk]
        ],
    }


def _redrives(letter: DeadLetter) -> dict[str, Any]:
    rows = Redrive.objects.using(database.alias_of(letter.pk)).filter(job_id=letter.pk)
    return {
        "title": "Redrives",
        "none": "It was never redriven.",
        "headers": ["Redrive", "Was dead as", "Note", "Who", "When"],
        "rows": [
            [row.redrive_generation, badge(row.reason), visible(row.note), row.actor, ago(row.at)]
            for row in rows.order_by("-redrive_generation")[:REDRIVES_SHOWN_MAX]
        ],
    }


def _hash(sha256: str | None) -> SafeString | str:
    return NOTHING if sha256 is None else format_html('<code class="hash">{}</code>', sha256[:16])


@admin.register(Correction)
class CorrectionAdmin(ShardAdmin):
    list_display = ("job", "version", "note", "author", "at", "payload_bytes")
    fields = readonly_fields = (
        "job",
        "version",
        "redrive_generation",
        "note",
        "author",
        "at",
        "content",
        "payload_ref",
    )

    @admin.display
    def job(self, row: Correction) -> SafeString:
        return job_link(row.job_id)

    @admin.display(description="payload")
    def content(self, row: Correction) -> SafeString | str:
        return NOTHING if row.new_sha256 is None else masked(row.payload_bytes, bytes(row.new_sha256).hex())


def redrives_page(request: HttpRequest) -> HttpResponse:
    """Every redrive, by job."""
    columns: dict[str, Callable[[Redrive], object]] = {
        "Job": lambda row: job_link(row.job_id),
        "Redrive": lambda row: row.redrive_generation,
        "Was dead as": lambda row: badge(row.reason),
        "Led to": lambda row: badge(row.led_to),
        "Note": lambda row: row.note,
        "Who": lambda row: row.actor,
        "When": lambda row: ago(row.at),
    }
    return table_page(
        request, admin.site.get_model_admin(DeadLetter), Redrive, ("job_id", "redrive_generation"), columns
    )
