"""What browsers report: something that our Content-Security-Policy kept a page from doing.

No page of ours does such a thing: each report is a defect or an attack. Anyone may send one, so nothing of it is
stored; it is counted (`jobsplatform_events_total{event="csp_violation"}`), and at most one a second is logged.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.views.decorators.csrf import csrf_exempt

from jobsplatform import events

BYTES_MAX: Final = 16 * 1024
TEXT_MAX: Final = 200
LOG_SECONDS: Final = 1.0
_FIELDS: Final = ("document-uri", "effective-directive", "violated-directive", "blocked-uri")

_told_at = float("-inf")


@csrf_exempt  # a browser sends it by itself, without a cookie that would mean anything here
def take_report(request: HttpRequest) -> HttpResponse:
    """Count one report. Answers 204 whatever the body is: a browser does nothing with a refusal."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    global _told_at
    now = time.monotonic()
    if now - _told_at >= LOG_SECONDS:
        _told_at = now
        events.emit("csp_violation", **_fields(request))
    else:
        events.measure("csp_violation", {})
    return HttpResponse(status=204)


def _fields(request: HttpRequest) -> dict[str, str]:
    """What the report says, cut short; nothing for a body that is none."""
    try:
        said: Any = json.loads(request.read(BYTES_MAX))
        report = said["csp-report"]
        return {name.replace("-", "_"): str(report[name])[:TEXT_MAX] for name in _FIELDS if name in report}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def forget() -> None:
    """Log the next report, however soon."""
    global _told_at
    _told_at = float("-inf")
