"""A tenant's dead letters: by the error that they share, one by one, corrected and sent back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpResponse, HttpResponseRedirect
from django.utils.dateparse import parse_datetime

from dlq import campaigns, corrections, groups, reads
from dlq import redrive as redriving
from dlq.campaigns import CampaignFilter, NewCampaign
from dlq.forms import CorrectionForm, RedriveForm
from dlq.portal.door import Visit, job_number
from dlq.portal.forms import CampaignForm
from dlq.reads import DeadFilter, DeadLetterView
from jobqueue import policies, reveal
from jobqueue.ids import format_id, parse_id
from jobsplatform.errors import JobsPlatformError, NotFound
from jobsplatform.wording import describe
from tenants.members import Right

SHOWN: Final = 50
GROUPS_SHOWN: Final = 20
FINGERPRINT_CHARS_MAX: Final = 16


def letters(visit: Visit) -> HttpResponse:
    """The errors that letters share, and a page of letters, newest first."""
    error = visit.request.GET.get("error", "")[:FINGERPRINT_CHARS_MAX].replace("\0", "") or None
    before = _place(visit.request.GET.get("before", ""))
    found, following = reads.page(
        DeadFilter(fingerprint=error), scope=visit.scope, before=before, limit=SHOWN
    )
    shared, _ = groups.page(scope=visit.scope, before=None, limit=GROUPS_SHOWN)
    queues = policies.names({view.queue_id for view in found})
    context = {
        "error": error,
        "groups": [(group, "?" + urlencode({"error": group.fingerprint})) for group in shared],
        "rows": [
            (
                view,
                format_id(view.job_id),
                visit.url("letter", format_id(view.job_id)),
                queues.get(view.queue_id),
            )
            for view in found
        ],
        "older": None if following is None else _older(error, following),
        "campaign": f"{visit.url('campaign')}?{urlencode({'error': error})}" if error else None,
    }
    return visit.page("portal/letters.html", context, title="Dead letters")


def _place(text: str) -> reads.Place | None:
    """Where a page begins; a text that is no place begins with the newest."""
    at, _, name = text.partition("~")
    try:
        instant = parse_datetime(at)
        return (instant, parse_id(name)) if instant is not None and instant.tzinfo is not None else None
    except (ValueError, NotFound):
        return None


def _older(error: str | None, place: tuple[datetime, int]) -> str:
    before = f"{place[0].isoformat()}~{format_id(place[1])}"
    return "?" + urlencode({"before": before} | ({"error": error} if error else {}))


def letter(visit: Visit, job: str) -> HttpResponse:
    """One dead letter; its payload stays masked."""
    view = _view(visit, job)
    context = {
        "view": view,
        "name": job,
        "queue": policies.names({view.queue_id}).get(view.queue_id, ""),
        "corrections": reads.corrections([view.job_id])[view.job_id],
        "urls": {verb: visit.url(verb, job) for verb in ("correct", "redrive", "job")},
        "alike": visit.url("letters") + "?" + urlencode({"error": view.fingerprint}),
    }
    return visit.page("portal/letter.html", context, title=f"Dead letter {job}", crumbs=_crumbs(visit))


def correct(visit: Visit, job: str) -> HttpResponse:
    """Ask for a new payload, then keep it beside the old one."""
    visit.member.require(Right.ACT)
    view = _view(visit, job)
    shows_present = visit.request.method == "GET" and "present" in visit.request.GET
    initial = {}
    if shows_present:
        text, _ = reveal.payload(view.job_id, scope=visit.scope, actor=visit.member.actor)
        initial = {"payload": text or ""}

    def act(said: Mapping[str, Any]) -> str:
        checked = said["checked"]
        new = corrections.NewCorrection(
            note=checked["note"],
            actor=visit.member.actor,
            payload=checked["payload"],
            payload_ref=checked["payload_ref"],
        )
        done = corrections.correct(view.job_id, new, scope=visit.scope)
        return f"Version {done.version} of the payload is stored. Redrive the job to use it."

    return visit.ask(
        CorrectionForm(visit.request.POST or None, initial=initial),
        act,
        right=Right.ACT,
        title=f"Correct {job}",
        intro="The original stays; attempts after a redrive get the new version. "
        "That the present payload was shown is written to the audit.",
        submit="Store the correction",
        back=visit.url("letter", job),
        crumbs=[*_crumbs(visit), (f"Dead letter {job}", visit.url("letter", job))],
        context={"link": None if shows_present else ("?present", "Start from the present payload")},
    )


def redrive(visit: Visit, job: str) -> HttpResponse:
    """Ask, then send it back."""
    view = _view(visit, job)

    def act(said: Mapping[str, Any]) -> str:
        new = redriving.NewRedrive(
            note=said["note"],
            actor=visit.member.actor,
            redrive_key=said["redrive_key"],
            not_before=said["not_before"],
            deadline=said["deadline"],
        )
        done = redriving.redrive(view.job_id, new, scope=visit.scope)
        return f"Job {job} is {done.state} again, for the {_nth(done.redrive_generation)} time."

    return visit.ask(
        RedriveForm(visit.request.POST or None, initial={"redrive_key": f"page:{token_urlsafe(12)}"}),
        act,
        right=Right.ACT,
        title=f"Redrive {job}",
        intro="The job goes back into its queue under the same id; attempts and crashes count from 0 again.",
        submit="Redrive the job",
        back=visit.url("job", job),
        crumbs=[*_crumbs(visit), (f"Dead letter {job}", visit.url("letter", job))],
    )


def _nth(number: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{suffix}"


# All of one error


def campaign(visit: Visit) -> HttpResponse:
    """Ask for note and pace, then send back all letters of one error, little by little."""
    visit.member.require(Right.ACT)
    error = visit.request.GET.get("error", "")[:FINGERPRINT_CHARS_MAX].replace("\0", "")
    if not error:
        raise NotFound
    chosen = CampaignFilter(fingerprint=error)
    found = campaigns.preview(chosen, scope=visit.scope)
    form = CampaignForm(visit.request.POST or None)
    if visit.is_post and form.is_valid():
        try:
            made = campaigns.create(
                NewCampaign(
                    chosen=chosen,
                    note=form.cleaned_data["note"],
                    actor=visit.member.actor,
                    rate_per_s=form.cleaned_data["rate_per_s"],
                ),
                scope=visit.scope,
            )
            return HttpResponseRedirect(visit.url("progress", made.pk))
        except NotFound:
            raise
        except JobsPlatformError as error_:
            form.add_error(None, describe(error_))
    skips = [
        f"{count:,} would stay ({reason.replace('_', ' ')})" for reason, count in found.would_skip.items()
    ]
    intro = ", ".join([f"{found.matches:,} dead letters have this error", *skips]) + "."
    context = {"form": form, "intro": intro, "submit": "Send them back", "back": visit.url("letters")}
    return visit.page("portal/ask.html", context, title="Redrive all of one error", crumbs=_crumbs(visit))


def progress(visit: Visit, campaign: int) -> HttpResponse:
    """How far it has come; paused, resumed or ended for good here."""
    view = campaigns.get(campaign, scope=visit.scope)
    if visit.is_post:
        visit.member.require(Right.ACT)
        change = {"pause": campaigns.pause, "resume": campaigns.resume, "abort": campaigns.abort}.get(
            visit.request.POST.get("verb", "")
        )
        if change is None:
            raise NotFound
        change(campaign, scope=visit.scope, actor=visit.member.actor)
        return HttpResponseRedirect(visit.url("progress", campaign))
    treated = view.redriven + sum(view.skipped.values())
    context = {
        "view": view,
        "treated": treated,
        "share": treated / view.matches if view.matches else 1.0,
        "verbs": campaigns.verbs_of(view.campaign.state) if visit.may(Right.ACT) else [],
        "skipped": [(reason.replace("_", " "), count) for reason, count in view.skipped.items()],
    }
    return visit.page("portal/progress.html", context, title="Redrive under way", crumbs=_crumbs(visit))


def _view(visit: Visit, job: str) -> DeadLetterView:
    return reads.dead_letter(job_number(job), scope=visit.scope)


def _crumbs(visit: Visit) -> list[tuple[str, str]]:
    return [("Dead letters", visit.url("letters"))]
