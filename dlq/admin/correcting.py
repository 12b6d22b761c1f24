"""The correction form: the payload as text, what its kind's schema says of it, and what differs from before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dlq import corrections, differing
from dlq.forms import CorrectionForm
from dlq.models import DeadLetter
from dlq.reads import DeadLetterView
from jobqueue import kinds, reveal
from jobqueue.types import FLEET
from jobsplatform import database, frame
from jobsplatform.adminsite import actor
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError
from jobsplatform.wording import describe

TO_COMPARE = "to compare it with a correction"


def correction_page(
    request: HttpRequest, letter: DeadLetter, view: DeadLetterView, *, done: Any
) -> HttpResponse:
    """Look at the present payload if asked, check a new one, store it. `done(message)` says and logs it."""
    shows_present = request.method == "GET" and "present" in request.GET
    initial = {"payload": _present(letter, request) or ""} if shows_present else {}
    form = CorrectionForm(request.POST or None, initial=initial)
    context: dict[str, Any] = {"faults": [], "lines": None, "is_checked": False}
    if request.method == "POST" and form.is_valid():
        checked = form.cleaned_data["checked"]
        context["faults"] = _faults(view.kind, checked["payload"], letter.pk)
        if request.POST.get("action") == "check":
            context |= _compared(request, letter, checked["payload"])
        elif not context["faults"]:
            try:
                done(_store(letter, request, checked))
                return HttpResponseRedirect(_url("change", str(letter)))
            except JobsPlatformError as error:
                form.add_error(None, describe(error))
        else:
            form.add_error(None, "The payload does not satisfy the schema of its kind.")
    context |= {
        "form": form,
        "view": view,
        "name": str(letter),
        "back": _url("change", str(letter)),
        "shows_present": shows_present,
    }
    crumbs = [
        ("Dead letters", reverse("admin:dlq_deadletter_groups")),
        (f"Dead letter {letter}", _url("change", str(letter))),
    ]
    return frame.page(request, "admin/dlq/correct.html", context, title=f"Correct {letter}", crumbs=crumbs)


def _url(page: str, name: str) -> str:
    return reverse(f"admin:dlq_deadletter_{page}", args=[name])


def _present(letter: DeadLetter, request: HttpRequest, reason: str = "") -> str | None:
    """The payload that a redrive would run with; that it was shown is audited."""
    return reveal.payload(letter.pk, scope=FLEET, actor=actor(request), reason=reason)[0]


def _faults(kind: str, payload: str | None, job_id: int) -> list[FieldError]:
    """What the kind's schema says against a payload."""
    if payload is None:
        return []
    try:
        corrections.validate(kind, payload)
        kinds.check_payload(kind, payload, alias=database.alias_of(job_id))
    except Invalid as refusal:
        return refusal.errors
    return []


def _compared(request: HttpRequest, letter: DeadLetter, payload: str | None) -> dict[str, Any]:
    """The new payload beside the present one, which is shown by that."""
    old = _present(letter, request, TO_COMPARE)
    lines = None if old is None or payload is None else differing.diff(old, payload)
    return {"lines": lines, "is_checked": True, "is_comparable": old is not None and payload is not None}


def _store(letter: DeadLetter, request: HttpRequest, checked: Mapping[str, Any]) -> str:
    new = corrections.NewCorrection(
        note=checked["note"],
        actor=actor(request),
        payload=checked["payload"],
        payload_ref=checked["payload_ref"],
    )
    made = corrections.correct(letter.pk, new, scope=FLEET)
    return f"Version {made.version} of the payload of {letter} is stored. Redrive the job to use it."
