"""The redrive wizard: scope, report, correction, pace, summary. Every step is an address; only the last one acts.

The scope is frozen where it is chosen: what fails afterwards is not part of it. Nothing is kept on the way: the whole
plan stands in the address, so a step can be marked, sent to a colleague, and gone back to.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from dlq import campaigns, differing, patching, report
from dlq.admin.campaigns import FILTER_FIELDS, MAY_REDRIVE, CampaignForm, PlanForm, chosen_by, started
from dlq.campaigns import CampaignFilter, NewCampaign
from dlq.models import Campaign
from jobqueue import reveal
from jobqueue.ids import format_id
from jobqueue.types import Scope
from jobsplatform import frame
from jobsplatform.adminsite import actor
from jobsplatform.errors import JobsPlatformError
from jobsplatform.instants import parse_instant
from jobsplatform.wording import describe
from tenants.models import Tenant

STEPS: Final = ("scope", "report", "correction", "pace", "summary")
PLAN_FIELDS: Final = ("rate_per_s", "canary", "stop_at_failure_share", "note")
PATCH_FIELDS: Final = ("patch",)
PATCH_CHARS_MAX: Final = 1_500  # it stands in the address, as all of the plan
PREVIEWS: Final = 3  # payloads that are shown before and after
TO_PREVIEW: Final = "to preview a correction of many"
MAY_CORRECT: Final = "dlq.add_correction"
SCOPE_FIELDS: Final = (*FILTER_FIELDS, "tenant", "frozen")
PLANNED: Final = (*SCOPE_FIELDS, *PATCH_FIELDS, *PLAN_FIELDS)
AHEAD_MAX: Final = timedelta(minutes=1)  # of a frozen instant before the clock of this machine


class ScopeForm(CampaignForm):
    """Which dead letters: everything that meets all conditions and was dead when the scope was frozen."""

    tenant = forms.ModelChoiceField(
        Tenant.objects.order_by("slug"), to_field_name="slug", required=False, empty_label="every tenant"
    )
    field_order = (*FILTER_FIELDS, "tenant")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in PLAN_FIELDS:
            del self.fields[name]
        self.fields["queue"].to_field_name = "name"  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors and chosen_by(cleaned).is_empty and cleaned.get("tenant") is None:
            raise forms.ValidationError("Choose at least one condition.")
        return cleaned


class PatchForm(forms.Form):
    """One correction for all of the scope."""

    patch = forms.CharField(
        required=False,
        max_length=PATCH_CHARS_MAX,
        label="Merge patch",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "vLargeTextField json"}),
        help_text='JSON that is merged into each payload (RFC 7396): {"to": "a@b", "cc": null} sets one member '
        "and takes another away. Empty: payloads stay as they are.",
    )

    def __init__(self, *args: Any, may_correct: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.may_correct = may_correct

    def clean_patch(self) -> str | None:
        text: str = self.cleaned_data["patch"].strip()
        if not text:
            return None
        if not self.may_correct:
            raise forms.ValidationError("Your account may redrive, but not correct.")
        try:
            return patching.check(text)
        except JobsPlatformError as error:
            raise forms.ValidationError(describe(error)) from None


@frame.screen("dead-letters/redrive/", name="redrive_wizard", title="Redrive", permission=MAY_REDRIVE)
def wizard(request: HttpRequest) -> HttpResponse:
    """One step of the way; a step that lacks what comes before it leads back there."""
    asked = {name: request.GET[name] for name in PLANNED if request.GET.get(name)}
    step = request.GET.get("step", "scope")
    form = ScopeForm(asked or None)
    frozen = _frozen(asked.get("frozen"))
    if step not in STEPS[1:] or not form.is_valid():
        shown = form if "step" in request.GET else ScopeForm(initial=asked)
        return _page(request, "scope", {"form": shown}, asked)
    if frozen is None:  # freeze it now, in the address
        at = campaigns.clock()
        return HttpResponseRedirect(f"?{urlencode({**asked, 'frozen': at.isoformat(), 'step': step})}")
    plan = PlanForm({name: asked.get(name, PlanForm.base_fields[name].initial) for name in PLAN_FIELDS})
    if step == "summary" and not plan.is_valid():
        return _page(request, "pace", {"form": plan, "frozen": frozen}, asked)
    correction = PatchForm(asked, may_correct=request.user.has_perm(MAY_CORRECT))
    patch = correction.cleaned_data["patch"] if correction.is_valid() else None
    if not correction.is_valid() and step != "report":
        step = "correction"  # a patch that is none goes no further
    chosen, scope = _scope(form.cleaned_data, frozen)
    found = report.report(chosen, scope=scope, frozen_at=frozen, patch=patch)
    context: dict[str, Any] = {"report": found, "frozen": frozen, "chosen": _told(form.cleaned_data)}
    context["patch"] = patch
    if step == "summary":
        said = plan.cleaned_data | {"patch": patch}
        return _summary(request, context, asked, (chosen, scope, frozen), said)
    if step == "pace":
        given = any(name in asked for name in PLAN_FIELDS)
        context["form"] = plan if given else PlanForm(initial=asked)
    if step == "correction":
        context |= {"corrections": _corrections(found), "form": correction}
        context["previews"] = _previews(request, found, scope) if patch is not None else []
    return _page(request, step, context, asked)


def _frozen(text: str | None) -> datetime | None:
    """The instant at which the scope was frozen; one that is none, or lies ahead, is not taken."""
    try:
        at = parse_instant(text or "")
    except ValueError:
        return None
    return at if at <= timezone.now() + AHEAD_MAX else None


def _scope(said: Mapping[str, Any], frozen: datetime) -> tuple[CampaignFilter, Scope]:
    tenant: Tenant | None = said.get("tenant")
    chosen = chosen_by(said)
    if chosen.is_empty:  # a tenant's whole desk: all of it that had failed
        chosen = CampaignFilter(failed_before=frozen + timedelta(microseconds=1))
    return chosen, Scope(tenant_id=None if tenant is None else tenant.pk)


def _told(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The conditions in words."""
    return [
        (name.replace("_", " "), str(said[name])) for name in (*FILTER_FIELDS, "tenant") if said.get(name)
    ]


def _corrections(found: report.Report) -> list[tuple[str, str]]:
    """Dead letters to correct: name and address."""
    ids = dict.fromkeys([*found.need_correction, *(one.job_id for one in found.failing)])
    return [
        (format_id(job_id), reverse("admin:dlq_deadletter_correct", args=[format_id(job_id)]))
        for job_id in ids
    ]


def _previews(request: HttpRequest, found: report.Report, scope: Scope) -> list[dict[str, Any]]:
    """Some payloads before and after, the refused ones first; that they were shown is audited."""
    changed = [one for one in found.patched if one.outcome.payload is not None]
    changed.sort(key=lambda one: one.outcome.verdict is None)
    return [
        {
            "name": format_id(one.row.job_id),
            "kind": one.row.kind,
            "verdict": one.outcome.verdict,
            "faults": one.outcome.faults,
            "lines": differing.diff(
                reveal.payload(one.row.job_id, scope=scope, actor=actor(request), reason=TO_PREVIEW)[0] or "",
                one.outcome.payload or "",
            ),
        }
        for one in changed[:PREVIEWS]
    ]


def _summary(
    request: HttpRequest,
    context: dict[str, Any],
    asked: Mapping[str, str],
    scope: tuple[CampaignFilter, Scope, datetime],
    plan: Mapping[str, Any],
) -> HttpResponse:
    """Say it all once more; begin when the words are typed."""
    words = f"redrive {context['report'].preview.matches}"
    context |= {"plan": plan, "words": words, "key": f"wizard:{token_urlsafe(12)}", "refusal": ""}
    if request.method == "POST":
        if request.POST.get("confirm", "").strip().lower() == words:
            try:
                made = _start(request, scope, plan)
            except JobsPlatformError as error:
                context["refusal"] = describe(error)
            else:
                messages.success(request, started(made))
                return HttpResponseRedirect(reverse("admin:dlq_campaign_change", args=[made.pk]))
        else:
            context["refusal"] = f"Type “{words}” to begin."
    return _page(request, "summary", context, asked)


def _start(
    request: HttpRequest, scope: tuple[CampaignFilter, Scope, datetime], plan: Mapping[str, Any]
) -> Campaign:
    """Begin the campaign; a form that is sent twice begins one."""
    chosen, whose, frozen = scope
    key = request.POST.get("key", "")[:255] or None
    new = NewCampaign(
        chosen=chosen,
        note=plan["note"],
        actor=actor(request),
        rate_per_s=plan["rate_per_s"],
        canary=plan["canary"],
        stop_at_failure_share=plan["stop_at_failure_share"],
        patch=plan["patch"],
        idempotency_key=key,
    )
    made = campaigns.create(new, scope=whose, frozen_at=frozen)
    admin.site.get_model_admin(Campaign).log_addition(request, made, f"Started: {made.note}")
    return made


def _page(
    request: HttpRequest, step: str, context: Mapping[str, Any], asked: Mapping[str, str]
) -> HttpResponse:
    place = STEPS.index(step)
    own = {"scope": SCOPE_FIELDS, "correction": PATCH_FIELDS, "pace": PLAN_FIELDS}.get(step, ())
    steps = [
        (number, name, f"?{urlencode({**asked, 'step': name})}" if number - 1 <= place else "", name == step)
        for number, name in enumerate(STEPS, 1)
    ]
    whole = {
        "step": step,
        "steps": steps,
        "kept": [(name, value) for name, value in asked.items() if name not in own],
        "following": STEPS[place + 1] if place + 1 < len(STEPS) else "",
        "back": f"?{urlencode({**asked, 'step': STEPS[place - 1]})}" if place else "",
        **context,
    }
    crumbs = [("Dead letters", reverse("admin:dlq_deadletter_groups"))]
    title = f"Redrive, step {place + 1} of {len(STEPS)}: {step}"
    return frame.page(request, "admin/dlq/wizard.html", whole, title=title, crumbs=crumbs)
