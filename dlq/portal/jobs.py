"""A tenant's jobs: the query bar over its own work alone, and one job with all that happened to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpResponse

from dlq.portal.door import Visit, job_number
from jobqueue import desk, leases, reads, retrying, reveal
from jobqueue.desk import JobPage
from jobqueue.ids import format_id
from jobqueue.states import State
from jobsplatform.adminsite import ReasonForm
from tenants.members import Right


def jobs(visit: Visit) -> HttpResponse:
    """A page of the jobs that the query bar asks for, newest first."""
    found = desk.listing(
        visit.request.GET.get("q", ""),
        scope=visit.scope,
        href_of=_href_of(visit),
        before=visit.request.GET.get("before"),
    )
    status = 400 if found.refusal else 200
    return visit.page("portal/jobs.html", {"listing": found}, title="Jobs", status=status)


def job(visit: Visit, job: str) -> HttpResponse:
    """Where a job stands and why, and everything that happened to it."""
    found = desk.job_page(job_number(job), scope=visit.scope, href_of=_href_of(visit))
    context = {
        "job": found,
        "offers": _offers(visit, found),
        "reveal_href": visit.url("payload", job) if visit.may(Right.REVEAL) else None,
    }
    return visit.page("portal/job.html", context, title=f"Job {job}", crumbs=_crumbs(visit))


def _href_of(visit: Visit) -> Callable[[int], str]:
    return lambda job_id: visit.url("job", format_id(job_id))


def _offers(visit: Visit, found: JobPage) -> list[tuple[str, str]]:
    """What may be done with it now, by this member."""
    offers = []
    if visit.may(Right.ACT) and found.can_be_cancelled:
        offers.append(("Cancel…", visit.url("cancel", found.name)))
    if visit.may(Right.ACT) and found.can_be_hastened:
        offers.append(("Retry now…", visit.url("retry", found.name)))
    if found.is_dead:
        offers.append(("As a dead letter", visit.url("letter", found.name)))
    return offers


def payload(visit: Visit, job: str) -> HttpResponse:
    """Ask, then show the payload or the result; that it was shown is in the audit."""
    visit.member.require(Right.REVEAL)
    number = job_number(job)
    reads.job(number, scope=visit.scope)
    what = "result" if visit.request.GET.get("what") == "result" else "payload"
    form = ReasonForm(visit.request.POST or None)
    crumbs = [*_crumbs(visit), (f"Job {job}", visit.url("job", job))]
    title = f"{what.capitalize()} of {job}"
    if visit.is_post and form.is_valid():
        asked = {"scope": visit.scope, "actor": visit.member.actor, "reason": form.cleaned_data["reason"]}
        text, ref = (
            (reveal.result(number, **asked), None) if what == "result" else reveal.payload(number, **asked)
        )
        context = {"text": text, "ref": ref, "back": visit.url("job", job)}
        return visit.page("portal/payload.html", context, title=title, crumbs=crumbs)
    return visit.ask(
        form,
        lambda said: "",
        right=Right.REVEAL,
        title=title,
        intro="That you looked is written to the audit, with your reason.",
        submit="Show it",
        back=visit.url("job", job),
        crumbs=crumbs,
    )


def cancel(visit: Visit, job: str) -> HttpResponse:
    """Ask, then cancel."""
    number = job_number(job)

    def act(said: Mapping[str, Any]) -> str:
        done = leases.cancel(number, actor=visit.member.actor, reason=said["reason"], scope=visit.scope)
        return "The job is cancelled." if done.state == State.CANCELLED else "Its worker is asked to stop."

    intro = "A waiting job ends at once; a running one when its worker next renews the lease."
    return _ask(visit, job, f"Cancel {job}", intro, act, "Cancel the job")


def retry(visit: Visit, job: str) -> HttpResponse:
    """Ask, then let it start without waiting for its instant."""
    number = job_number(job)

    def act(said: Mapping[str, Any]) -> str:
        retrying.retry_now(number, actor=visit.member.actor, reason=said["reason"], scope=visit.scope)
        return "The job is ready."

    intro = "It waits for an instant; it becomes ready now, at the end of its line. Attempts stay counted."
    return _ask(visit, job, f"Retry {job} now", intro, act, "Make it ready")


def _ask(
    visit: Visit, job: str, title: str, intro: str, act: Callable[[Mapping[str, Any]], str], submit: str
) -> HttpResponse:
    reads.job(job_number(job), scope=visit.scope)
    own = visit.url("job", job)
    return visit.ask(
        ReasonForm(visit.request.POST or None),
        act,
        right=Right.ACT,
        title=title,
        intro=intro,
        submit=submit,
        back=own,
        crumbs=[*_crumbs(visit), (f"Job {job}", own)],
    )


def _crumbs(visit: Visit) -> list[tuple[str, str]]:
    return [("Jobs", visit.url("jobs"))]
