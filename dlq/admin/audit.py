"""The audit: who did what, found by actor, act, target, tenant and time; its export; and checking its chains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from jobsplatform import frame, merging
from jobsplatform.adminsite import actor, streamed
from jobsplatform.errors import Invalid, JobsPlatformError, NotFound
from jobsplatform.wording import describe
from tenants import auditlog
from tenants.auditlog import Entry, Filter
from tenants.models import Tenant

VIEW: Final = "tenants.view_auditentry"
EXPORT: Final = "tenants.export_auditentry"
ROWS: Final = 50
PLATFORM: Final = "-"  # as a tenant: the platform's own chain
FIELDS: Final = ("actor", "action", "target", "tenant", "since", "until")


class FilterForm(forms.Form):
    """What the list is narrowed by. Times are UTC."""

    actor = forms.CharField(
        required=False, max_length=200, widget=forms.TextInput({"placeholder": "user:ops"})
    )
    action = forms.CharField(
        required=False, max_length=64, widget=forms.TextInput({"placeholder": "job.redrive, or job."})
    )
    target = forms.CharField(
        required=False, max_length=200, widget=forms.TextInput({"placeholder": "job:0-42"})
    )
    tenant = forms.CharField(
        required=False, max_length=63, help_text=f"A tenant's name; {PLATFORM} is the platform's own chain."
    )
    since = forms.DateTimeField(required=False, help_text="Such as 2030-01-31 08:00.")
    until = forms.DateTimeField(required=False)

    def clean_tenant(self) -> str:
        slug: str = self.cleaned_data["tenant"].strip()
        if slug not in ("", PLATFORM) and not Tenant.objects.filter(slug=slug).exists():
            raise forms.ValidationError("There is no such tenant.")
        return slug


def _filter(said: Mapping[str, Any]) -> Filter:
    slug = said["tenant"]
    tenant_id = None if slug in ("", PLATFORM) else Tenant.objects.values_list("pk", flat=True).get(slug=slug)
    since: datetime | None = said["since"]
    return Filter(
        tenant_id=tenant_id,
        is_platform=slug == PLATFORM,
        actor=said["actor"].strip() or None,
        action=said["action"].strip() or None,
        target=said["target"].strip() or None,
        since=since,
        until=said["until"],
    )


@frame.screen("audit/", name="audit", title="Audit", permission=VIEW, order=80)
def audit_page(request: HttpRequest) -> HttpResponse:
    """Entries of every database, newest first."""
    asked = {name: request.GET[name] for name in FIELDS if request.GET.get(name)}
    form = FilterForm(asked)
    found, refusal = auditlog.Page([], None), ""
    if form.is_valid():
        try:
            before = request.GET.get("before")
            place = None if before is None else merging.parse_place(before)
            found = auditlog.page(_filter(form.cleaned_data), tenant_id=None, before=place, limit=ROWS)
        except Invalid as error:
            refusal = describe(error)
    slugs = dict(
        Tenant.objects.filter(pk__in={entry.tenant_id for entry in found.rows}).values_list("pk", "slug")
    )
    context = {
        "form": form,
        "refusal": refusal,
        "rows": [_row(entry, slugs) for entry in found.rows],
        "older": None
        if found.following is None
        else urlencode({**asked, "before": merging.place_text(found.following)}),
        "newest": urlencode(asked) if "before" in request.GET else None,
        "searched_back_to": found.searched_back_to,
        "unknown": [auditlog.databases()[number] for number in found.unknown],
        "kept": list(asked.items()),
        "may_export": request.user.has_perm(EXPORT) and form.is_valid(),
        "export_rows": auditlog.ROWS_MAX,
    }
    return frame.page(request, "admin/audit/list.html", context, title="Audit")


def _row(entry: Entry, slugs: Mapping[int, str]) -> dict[str, Any]:
    whose = "–" if entry.tenant_id is None else slugs.get(entry.tenant_id, f"#{entry.tenant_id}")
    return {"entry": entry, "tenant": whose, "href": reverse("admin:audit_entry", args=[entry.name])}


@frame.screen("audit/entry/<str:name>/", name="audit_entry", title="Audit entry", permission=VIEW)
def entry_page(request: HttpRequest, name: str) -> HttpResponse:
    """One entry, whole."""
    try:
        entry = auditlog.entry(name, tenant_id=None)
    except NotFound:
        raise Http404 from None
    slugs = dict(Tenant.objects.filter(pk__in={entry.tenant_id}).values_list("pk", "slug"))
    details = json.dumps(entry.details, ensure_ascii=False, indent=2)
    context = {**_row(entry, slugs), "details": details}
    crumbs = [("Audit", reverse("admin:audit"))]
    return frame.page(request, "admin/audit/entry.html", context, title=f"Entry {name}", crumbs=crumbs)


@frame.screen("audit/export/", name="audit_export", title="Export", permission=EXPORT)
@require_POST
def export_view(request: HttpRequest) -> HttpResponse:
    """The filter's entries as a file, piece by piece."""
    form = FilterForm({name: request.POST.get(name, "") for name in FIELDS})
    back = HttpResponseRedirect(reverse("admin:audit"))
    if not form.is_valid():
        messages.error(request, "The filter cannot be read.")
        return back
    kind = request.POST.get("format", "")
    try:
        pieces = auditlog.export(_filter(form.cleaned_data), tenant_id=None, form=kind, actor=actor(request))
    except JobsPlatformError as error:
        messages.error(request, describe(error))
        return back
    return cast(HttpResponse, streamed(pieces, kind, "audit"))


@frame.screen("audit/verify/", name="audit_verify", title="Check the chains", permission=VIEW)
def verify_page(request: HttpRequest) -> HttpResponse:
    """One step of checking, and where it goes on: a chain of millions is checked in steps that each answer at once."""
    if "go" not in request.GET:
        return _verify(request, {"step": None})
    above = request.GET.get("above", "0")
    try:
        number = int(above) if above.isascii() and above.isdecimal() and len(above) <= 18 else 0
        step = auditlog.check_step(request.GET.get("database"), number)
    except NotFound:
        raise Http404 from None
    seen = request.GET.get("broken", "0")
    broken = (int(seen) if seen.isascii() and seen.isdecimal() and len(seen) < 10 else 0) + len(step.broken)
    following = urlencode({"go": "1", "database": step.alias or "", "above": step.above, "broken": broken})
    return _verify(request, {"step": step, "following": following if step.alias else None, "broken": broken})


def _verify(request: HttpRequest, context: Mapping[str, Any]) -> HttpResponse:
    crumbs = [("Audit", reverse("admin:audit"))]
    return frame.page(request, "admin/audit/verify.html", context, title="Check the chains", crumbs=crumbs)
