"""Dead letters by error: the matrix of errors × time, and one error with who looks after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse

from dlq import groups, handling, reads, snoozes
from dlq.groups import Group
from dlq.models import Handling
from dlq.reads import DeadFilter
from dlq.snoozes import Quiet
from jobqueue.ids import format_id
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.types import FLEET
from jobsplatform import frame
from jobsplatform.adminsite import actor, require
from jobsplatform.errors import JobsPlatformError, NotFound
from jobsplatform.instants import parse_instant
from jobsplatform.wording import describe, one_line
from tenants.models import Tenant

GROUPS_SHOWN: Final = 25
LETTERS_SHOWN: Final = 20
SAMPLE_CHARS: Final = 140
SPANS: Final = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
}
VIEW: Final = "dlq.view_deadletter"
ASSIGN: Final = "dlq.add_correction"

frame.in_menu("Dead letters", "dlq_deadletter_groups", permission=VIEW, order=30)


@dataclass(frozen=True, slots=True)
class Cell:
    """How many failed in one span: the number, and how dark it stands (0 to 4)."""

    text: str
    shade: int


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the matrix."""

    group: Group
    sample: str
    count: str
    tenants: str
    cells: list[Cell]
    href: str
    handling: Handling | None
    is_snoozed: bool
    has_grown: bool


def groups_page(request: HttpRequest) -> HttpResponse:
    """Every error that has dead letters, latest first, and when they failed."""
    require(request, VIEW)
    word = request.GET.get("span", "day")
    word = word if word in SPANS else "day"
    found, following = groups.page(scope=FLEET, before=_place(request), limit=GROUPS_SHOWN)
    prints = [group.fingerprint for group in found]
    matrix = groups.matrix(prints, scope=FLEET, span=SPANS[word])
    held, quiet = handling.of(prints), snoozes.look()
    slugs = _slugs(found)
    context = {
        "rows": [_row(group, matrix, slugs, held.get(group.fingerprint), quiet) for group in found],
        "starts": matrix.starts,
        "width": matrix.width.total_seconds(),
        "span": word,
        "spans": list(SPANS),
        "growing": [one for one in groups.growth() if one.is_alarming],
        "older": None
        if following is None
        else urlencode({"span": word, "at": following[0].isoformat(), "print": following[1]}),
        "is_first": "at" not in request.GET,
        "may_redrive": request.user.has_perm("dlq.add_redrive"),
    }
    return frame.page(request, "admin/dlq/groups.html", context, title="Dead letters by error")


def _place(request: HttpRequest) -> groups.Place | None:
    """Where the page begins; a place that is none is the beginning."""
    try:
        return parse_instant(request.GET["at"]), request.GET["print"][:16]
    except (KeyError, ValueError):
        return None


def _slugs(found: list[Group]) -> dict[int, str]:
    ids = {tenant_id for group in found for tenant_id in group.tenant_ids}
    return dict(Tenant.objects.filter(pk__in=ids).values_list("pk", "slug"))


def _row(
    group: Group, matrix: groups.Matrix, slugs: Mapping[int, str], held: Handling | None, quiet: Quiet
) -> Row:
    counts = matrix.of(group.fingerprint)
    most = max([*counts, 1])
    return Row(
        group,
        _short(": ".join(filter(None, [group.error_class, one_line(group.sample)])) or "no message"),
        f"{min(group.count, groups.COUNT_CAP):,}" + ("+" if group.is_capped else ""),
        ", ".join(sorted(slugs.get(tenant_id, f"#{tenant_id}") for tenant_id in group.tenant_ids)),
        [
            Cell(
                f"{count:,}{'+' if (group.fingerprint, place) in matrix.cut else ''}",
                0 if not count else 1 + 3 * count // most,
            )
            for place, count in enumerate(counts)
        ],
        _group_url(group.fingerprint),
        held,
        quiet.holds(group.fingerprint),
        quiet.has_grown(group.fingerprint),
    )


def _short(text: str) -> str:
    return text if len(text) <= SAMPLE_CHARS else f"{text[: SAMPLE_CHARS - 1]}…"


def _group_url(fingerprint: str) -> str:
    return reverse("admin:dlq_deadletter_group", args=[fingerprint])


# One error


class HandlingForm(forms.Form):
    """Who looks after an error, and why."""

    assignee = forms.CharField(required=False, max_length=150, help_text="An account's name; empty: nobody.")
    note = forms.CharField(widget=forms.Textarea(attrs={"rows": 2}), max_length=REASON_CHARS_MAX)


class SnoozeForm(forms.Form):
    """For how long an error is put off, and why."""

    for_s = forms.TypedChoiceField(
        label="For",
        coerce=int,
        choices=[
            (3_600, "an hour"),
            (8 * 3_600, "8 hours"),
            (86_400, "a day"),
            (3 * 86_400, "3 days"),
            (7 * 86_400, "a week"),
            (30 * 86_400, "30 days"),
        ],
        initial=86_400,
    )
    known_issue = forms.CharField(required=False, max_length=handling.ISSUE_CHARS_MAX)
    snooze_note = forms.CharField(widget=forms.Textarea(attrs={"rows": 2}), max_length=REASON_CHARS_MAX)


class WakeForm(forms.Form):
    """Why a snooze ends before its time."""

    wake_note = forms.CharField(widget=forms.Textarea(attrs={"rows": 2}), max_length=REASON_CHARS_MAX)


def group_page(request: HttpRequest, fingerprint: str) -> HttpResponse:
    """One error: what it says, when it came, whom it hit, its newest dead letters, and who looks after it."""
    require(request, VIEW)
    try:
        group = groups.one(fingerprint, scope=FLEET)
    except NotFound:
        raise Http404 from None
    may_assign = request.user.has_perm(ASSIGN)
    held = handling.of([fingerprint]).get(fingerprint)
    offered = _forms(request.POST, held)
    if request.method == "POST":
        require(request, ASSIGN)
        if _acted(request, fingerprint, offered):
            return HttpResponseRedirect(_group_url(fingerprint))
    matrix = groups.matrix([fingerprint], scope=FLEET, span=SPANS["day"])
    letters, _ = reads.page(
        DeadFilter(fingerprint=fingerprint), scope=FLEET, before=None, limit=LETTERS_SHOWN
    )
    slugs = _slugs([group])
    context = {
        "row": _row(group, matrix, slugs, held, snoozes.look()),
        "starts": matrix.starts,
        "letters": [
            {
                "view": view,
                "name": format_id(view.job_id),
                "href": reverse("admin:dlq_deadletter_change", args=[format_id(view.job_id)]),
                "tenant": slugs.get(view.tenant_id, f"#{view.tenant_id}"),
            }
            for view in letters
        ],
        "payloads": len({view.payload_sha256 or view.payload_ref for view in letters}),
        **offered,
        "may_assign": may_assign,
        "may_redrive": request.user.has_perm("dlq.add_redrive"),
        "wizard": f"{reverse('admin:redrive_wizard')}?{urlencode({'fingerprint': fingerprint})}",
        "jobs": f"{reverse('admin:queue_job_changelist')}?{urlencode({'q': f'error:{fingerprint}'})}",
    }
    crumbs = [("Dead letters", reverse("admin:dlq_deadletter_groups"))]
    return frame.page(request, "admin/dlq/group.html", context, title=f"Error {fingerprint}", crumbs=crumbs)


def _forms(sent: QueryDict, held: Handling | None) -> dict[str, forms.Form]:
    """What one may do with an error; a form is bound where it is the one that was sent."""
    verb = sent.get("verb", "form") if sent else ""
    initial = {"assignee": "" if held is None else held.assignee}
    issue = {"known_issue": "" if held is None else held.known_issue}
    return {
        "form": HandlingForm(sent if verb == "form" else None, initial=initial),
        "snooze": SnoozeForm(sent if verb == "snooze" else None, initial=issue),
        "wake": WakeForm(sent if verb == "wake" else None),
    }


def _acted(request: HttpRequest, fingerprint: str, offered: Mapping[str, forms.Form]) -> bool:
    """Do what the form that was sent says. False: it is shown again, with what is wrong."""
    form = next((form for form in offered.values() if form.is_bound), None)
    if form is None or not form.is_valid():
        return False
    said: dict[str, Any] = form.cleaned_data
    who = actor(request)
    try:
        if form is offered["snooze"]:
            held = handling.snooze(
                fingerprint,
                for_s=said["for_s"],
                note=said["snooze_note"],
                known_issue=said["known_issue"],
                actor=who,
            )
            until = f"{held.snoozed_until:%Y-%m-%d %H:%M} UTC"
            done = f"It calls for no attention until {until}, or until {held.wakes_after:,} more came."
        elif form is offered["wake"]:
            handling.wake(fingerprint, note=said["wake_note"], actor=who)
            done = "It calls for attention again."
        else:
            handling.assign(fingerprint, assignee=said["assignee"], note=said["note"], actor=who)
            done = f"{said['assignee'] or 'Nobody'} looks after this error."
    except JobsPlatformError as error:
        form.add_error(None, describe(error))
        return False
    messages.success(request, done)
    return True
