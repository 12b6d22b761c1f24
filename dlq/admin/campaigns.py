"""Campaigns and groups in the admin: the same verbs as the API's, with a page that asks before it acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from dlq import campaigns
from dlq.campaigns import CampaignFilter, CampaignView, NewCampaign, Preview
from dlq.models import Campaign, CampaignPart, DeadLetter, Fork
from jobqueue import policies
from jobqueue.admin.jobs import first_line, job_link
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.models import Queue
from jobqueue.states import DeadReason
from jobqueue.types import FLEET
from jobsplatform import frame
from jobsplatform.adminsite import (
    ReadOnlyAdmin,
    ReasonForm,
    ShardAdmin,
    actor,
    ago,
    ask_and_act,
    badge,
    require,
)
from jobsplatform.errors import Invalid

MAY_REDRIVE: Final = "dlq.add_redrive"
EVERY_SECONDS: Final = 2

frame.in_menu("Campaigns", "dlq_campaign_changelist", permission="dlq.view_campaign", order=35)

VERBS: Final[Mapping[str, tuple[Callable[..., CampaignView], str]]] = {
    "pause": (campaigns.pause, "Nothing more is redriven until it is resumed."),
    "resume": (campaigns.resume, "It goes on where it was. After a stop its failures are judged anew."),
    "abort": (campaigns.abort, "It is over for good. What it redrove already goes on."),
}
FILTER_FIELDS: Final = ("queue", "reason", "kind", "fingerprint", "failed_before")


class PlanForm(forms.Form):
    """How a campaign goes about it, and why."""

    note = forms.CharField(widget=forms.Textarea(attrs={"rows": 3}), max_length=REASON_CHARS_MAX)
    rate_per_s = forms.IntegerField(
        label="Redrives a second",
        min_value=1,
        max_value=campaigns.RATE_MAX,
        initial=campaigns.RATE_DEFAULT,
    )
    canary = forms.IntegerField(
        min_value=0,
        max_value=campaigns.CANARY_MAX,
        initial=campaigns.CANARY_DEFAULT,
        help_text="So many go first; the rest follows when it is known how they went.",
    )
    stop_at_failure_share = forms.FloatField(
        label="Stop at a failure share of",
        min_value=campaigns.STOP_SHARE_MIN,
        max_value=1,
        initial=campaigns.STOP_SHARE_DEFAULT,
    )


class CampaignForm(PlanForm):
    """What to redrive: everything that meets all conditions given here and is dead now."""

    queue = forms.ModelChoiceField(Queue.objects.order_by("name"), required=False)
    reason = forms.ChoiceField(choices=[("", "any"), *DeadReason.choices], required=False)
    kind = forms.CharField(required=False, max_length=64)
    fingerprint = forms.CharField(required=False, max_length=16)
    failed_before = forms.DateTimeField(required=False, help_text="UTC, such as 2030-01-31 08:00.")
    field_order = (*FILTER_FIELDS, "note")


def start(request: HttpRequest, chosen: CampaignFilter, said: Mapping[str, Any]) -> Campaign:
    """Begin a campaign as a form says."""
    new = NewCampaign(
        chosen=chosen,
        note=said["note"],
        actor=actor(request),
        rate_per_s=said["rate_per_s"],
        canary=said["canary"],
        stop_at_failure_share=said["stop_at_failure_share"],
    )
    campaign = campaigns.create(new, scope=FLEET)
    admin.site.get_model_admin(Campaign).log_addition(request, campaign, f"Started: {campaign.note}")
    return campaign


def started(campaign: Campaign) -> str:
    """The message about a campaign that began."""
    more = "+" if campaign.is_capped else ""
    return (
        f"Campaign {campaign.pk} redrives {campaign.first_matches:,}{more} dead letters; see how far it is."
    )


def told(found: Preview) -> str:
    """What a preview found, in a sentence."""
    more = " or more" if found.is_capped else ""
    skips = "".join(f", {count:,} stay ({reason})" for reason, count in sorted(found.would_skip.items()))
    return f"{found.matches:,}{more} dead letters match{skips}."


def chosen_by(said: Mapping[str, Any]) -> CampaignFilter:
    """The filter of a form's fields."""
    queue: Queue | None = said.get("queue")
    return CampaignFilter(
        queue_id=None if queue is None else queue.pk,
        reason=said.get("reason") or None,
        kind=said.get("kind") or None,
        fingerprint=said.get("fingerprint") or None,
        failed_before=said.get("failed_before"),
    )


def ask_for_campaign(
    request: HttpRequest,
    form: forms.Form,
    choose: Callable[[Mapping[str, Any]], CampaignFilter],
    *,
    intro: str,
    back: str,
    context: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """A page that asks for the plan of a campaign, starts it, and leads to its own page."""
    made: list[Campaign] = []

    def act(said: Mapping[str, Any]) -> str:
        made.append(start(request, choose(said), said))
        return started(made[0])

    return ask_and_act(
        request,
        admin.site.get_model_admin(DeadLetter),
        obj=Campaign(),
        title="Redrive in a campaign",
        intro=intro,
        form=form,
        act=act,
        back=lambda: _url(made[0]) if made else back,
        submit="Start the campaign",
        context={"original": "Dead letters", **(context or {})},
    )


def start_page(request: HttpRequest) -> HttpResponse:
    """Ask for filter and plan, beginning with what the list was narrowed to; then start."""
    require(request, MAY_REDRIVE)
    narrowed = {name.removesuffix("__exact"): value for name, value in request.GET.items()}
    initial: dict[str, Any] = {name: narrowed[name] for name in FILTER_FIELDS if name in narrowed}
    form = CampaignForm(request.POST or None, initial=initial)
    intro = "Every dead letter that meets all conditions goes back into its queue, paced, with an audit entry each."
    if request.method == "GET" and initial:
        given = CampaignForm(
            {**initial, "note": "-", "rate_per_s": 1, "canary": 0, "stop_at_failure_share": 1}
        )
        if given.is_valid() and not (chosen := chosen_by(given.cleaned_data)).is_empty:
            intro = f"{told(campaigns.preview(chosen, scope=FLEET))} {intro}"
    back = reverse("admin:dlq_deadletter_changelist")
    return ask_for_campaign(request, form, chosen_by, intro=intro, back=back)


def _url(campaign: Campaign) -> str:
    return reverse("admin:dlq_campaign_change", args=[campaign.pk])


@admin.register(Campaign)
class CampaignAdmin(ReadOnlyAdmin):
    list_display = ("name", "status", "chooses", "came", "note_line", "actor", "made")

    def prepare(self, rows: Sequence[Any]) -> None:
        for row, view in zip(rows, campaigns.seen_together(rows), strict=True):
            row.view = view

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(f"<int:campaign_id>/{verb}/", wrap(self._verb_view(verb)), name=f"dlq_campaign_{verb}")
            for verb in VERBS
        ]
        return [*own, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """How far a campaign is, read anew every two seconds while somebody looks."""
        require(request, "dlq.view_campaign")
        if request.method == "POST":
            raise PermissionDenied
        campaign = Campaign.objects.filter(pk=object_id).first() if object_id.isdecimal() else None
        if campaign is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        held = campaign
        may = request.user.has_perm(MAY_REDRIVE)

        def read() -> dict[str, Any]:
            return _progress(campaigns.get(held.pk, scope=FLEET), may)

        context = {"campaign": campaign, "chooses": self.chooses(campaign), "opts": self.opts}
        context["may_see_patch"] = may or request.user.has_perm("queue.view_payload")
        crumbs = [("Campaigns", reverse("admin:dlq_campaign_changelist"))]
        parts = {"progress": frame.Fragment("admin/dlq/campaign_progress.html", read, every_s=EVERY_SECONDS)}
        return frame.live_page(
            request, "admin/dlq/campaign.html", parts, context, title=f"Campaign {campaign.pk}", crumbs=crumbs
        )

    def _verb_view(self, verb: str) -> Callable[..., HttpResponse]:
        act, intro = VERBS[verb]

        def view(request: HttpRequest, campaign_id: int) -> HttpResponse:
            require(request, MAY_REDRIVE)
            campaign = Campaign.objects.filter(pk=campaign_id).first()
            if campaign is None:
                raise Http404

            def change(said: Mapping[str, Any]) -> str:
                done = act(campaign_id, scope=FLEET, actor=actor(request), reason=said["reason"])
                return f"Campaign {campaign_id} is {done.campaign.state}."

            return ask_and_act(
                request,
                self,
                obj=campaign,
                title=f"{verb.title()} campaign {campaign_id}",
                intro=intro,
                form=ReasonForm(request.POST or None),
                act=change,
                back=_url(campaign),
                submit=verb.title(),
            )

        return view

    @admin.display(description="campaign")
    def name(self, row: Campaign) -> str:
        return str(row.pk)

    @admin.display(description="state")
    def status(self, row: Campaign) -> SafeString:
        return badge(row.state)

    @admin.display(description="chooses")
    def chooses(self, row: Campaign) -> str:
        queue = None if row.queue_id is None else policies.names({row.queue_id}).get(row.queue_id)
        ticked = None if row.job_ids is None else f"{len(row.job_ids)} that were ticked"
        parts = (queue, row.reason, row.kind, row.fingerprint, ticked)
        said = [part for part in parts if part is not None]
        if row.failed_before is not None:
            said.append(f"dead before {row.failed_before:%Y-%m-%d %H:%M:%S}")
        return ", ".join(said)

    @admin.display(description="redriven")
    def came(self, row: Campaign) -> str:
        view = _view(row)
        return f"{view.redriven:,} of {view.matches:,}{'+' if view.is_capped else ''}"

    @admin.display(description="note")
    def note_line(self, row: Campaign) -> str:
        return first_line(row.note)

    @admin.display(description="made")
    def made(self, row: Campaign) -> SafeString | str:
        return ago(row.created_at)


def _progress(view: CampaignView, may_change: bool) -> dict[str, Any]:
    """What the live part of a campaign's page shows."""
    treated = view.redriven + sum(view.skipped.values())
    verbs = campaigns.verbs_of(view.campaign.state) if may_change else []
    outcomes = view.succeeded + view.failed + view.ended
    return {
        "view": view,
        "campaign": view.campaign,
        "treated": treated,
        "share": treated / view.matches if view.matches else 1.0,
        "pending": view.redriven - outcomes,
        "failure_share": view.failed / (view.failed + view.succeeded)
        if view.failed + view.succeeded
        else None,
        "skips": sorted(view.skipped.items()),
        "verbs": [
            (verb.title(), reverse(f"admin:dlq_campaign_{verb}", args=[view.campaign.pk])) for verb in verbs
        ],
    }


def _view(row: Any) -> CampaignView:
    """What `prepare` fetched."""
    view: CampaignView = row.view
    return view


@admin.register(CampaignPart)
class CampaignPartAdmin(ShardAdmin):
    list_display = ("campaign_id", "is_open", "matches", "redriven", "succeeded", "failed", "is_exhausted")


@admin.register(Fork)
class ForkAdmin(ShardAdmin):
    list_display = ("job", "origin", "note", "actor", "at")

    @admin.display
    def job(self, row: Fork) -> SafeString:
        return job_link(row.job_id)

    @admin.display
    def origin(self, row: Fork) -> SafeString:
        return job_link(row.origin_job_id)


KNOWN_NARROWING: Final = frozenset({"reason", "reason__exact", "fingerprint", "since", "shard", "before"})


def selection(request: HttpRequest, job_ids: list[int]) -> CampaignFilter:
    """What an action was asked to redrive: the ticked, or all that the list was narrowed to and is dead now.

    Raises Invalid when the list was narrowed by what a campaign's filter cannot say.
    """
    if request.POST.get("select_across", "0") == "0":
        return CampaignFilter(job_ids=tuple(job_ids))
    unknown = request.GET.keys() - KNOWN_NARROWING
    if unknown:
        raise Invalid(f"A campaign cannot choose by {', '.join(sorted(unknown))}; tick the rows instead.")
    hours = {"hour": 1, "day": 24, "week": 168}.get(request.GET.get("since", ""))
    now = timezone.now()
    return CampaignFilter(
        reason=request.GET.get("reason") or request.GET.get("reason__exact") or None,
        fingerprint=request.GET.get("fingerprint") or None,
        failed_before=now,
        failed_since=None if hours is None else now - timedelta(hours=hours),
    )
