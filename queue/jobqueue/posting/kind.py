"""The handler of `http.post`: sign, send, and say what the answer means for the job.

The receiver dedupes on `Idempotency-Key`, the job's operation id: it is the same through every retry and redrive, so
that a call whose answer was lost may be sent again.
"""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import Final

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from jobqueue.posting import exchange, payload, target
from jobqueue.posting.exchange import Answer
from jobqueue.worker.context import JobContext
from jobqueue.worker.outcomes import Overload, Permanent, Transient, Uncertain
from jobsplatform import tracing
from jobsplatform.errors import JobsPlatformError
from jobsplatform.wording import describe
from tenants import signing

PERMANENT: Final = frozenset({400, 404, 410, 422})
OVERLOAD: Final = frozenset({429, 503})
LOST: Final = frozenset({502, 504})  # a gateway's word: whether the receiver acted is not known
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
CONTENT_TYPE_CHARS_MAX: Final = (
    200  # a header may have 64 KiB; the result must be storable whatever was answered
)

_SECONDS = re.compile(r"[0-9]{1,9}").fullmatch


def post(job: JobContext) -> dict[str, object]:
    """Send the payload's `body` to its `url`; the result tells the status and the start of the answer."""
    call = _call(job)
    try:
        addresses = target.resolve(call.target, allow_loopback=settings.JOBS_POST_LOOPBACK)
    except target.Refused as refused:
        raise Permanent(f"the call is not sent: {refused}") from None
    except target.Unresolved as failure:
        raise Transient(f"the call was not sent: {failure}") from None
    body = call.body.encode()
    try:
        headers = _headers(job, call, body)
    except (DatabaseError, InterfaceError) as failure:
        raise Transient(f"the call was not sent: no secret to sign with ({failure})") from None
    began = time.monotonic()
    try:
        answer = exchange.post(call.target, addresses, body, headers, timeout_s=_bounded(job, call.timeout_s))
    except exchange.NotSent as failure:
        raise Transient(str(failure)) from None
    except exchange.NoAnswer as failure:
        raise Uncertain(str(failure)) from None
    judge(answer, job.operation_id)
    return {
        "status": answer.status,
        "content_type": _content_type(answer),
        "body": _storable(answer.body.decode("utf-8", "replace")),
        "is_cut": answer.is_cut,
        "took_ms": round((time.monotonic() - began) * 1_000),
    }


def _content_type(answer: Answer) -> str | None:
    told = answer.headers.get("content-type")
    return None if told is None else _storable(told[:CONTENT_TYPE_CHARS_MAX])


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd")


def _call(job: JobContext) -> payload.Call:
    try:
        return payload.read(job.payload_text)
    except JobsPlatformError as refusal:
        raise Permanent(f"the payload cannot be sent: {describe(refusal)}") from None


def _bounded(job: JobContext, timeout_s: float) -> float:
    """The call ends while its outcome can still be told."""
    return max(0.1, min(timeout_s, job.remaining_s - 1))


def _headers(job: JobContext, call: payload.Call, body: bytes) -> dict[str, str]:
    secrets = signing.secrets_of(job.lease.tenant_id)
    signed = signing.headers(secrets, job.operation_id, int(time.time()), body)
    trace = tracing.current() or job.traceparent or ""
    return {
        "User-Agent": "jobsplatform",
        "Accept-Encoding": "identity",
        **call.headers,
        **({"traceparent": trace} if tracing.is_valid(trace) else {}),
        "Content-Type": "application/json",
        "Idempotency-Key": job.operation_id,
        **signed,
    }


def judge(answer: Answer, operation_id: str) -> None:
    """Return when the receiver has done it; raises the failure that its status stands for."""
    status = answer.status
    if 200 <= status < 300 or (status == 409 and answer.headers.get("idempotency-key") == operation_id):
        return
    words = f"the receiver answered {status}"
    wait_s = _retry_after(answer.headers.get("retry-after", ""))
    if status in OVERLOAD:
        raise Overload(words, retry_after_s=wait_s)
    if status in PERMANENT or 300 <= status < 400:
        raise Permanent(f"{words}; redirects are not followed" if status < 400 else words)
    if status in LOST:
        raise Uncertain(words, retry_after_s=wait_s)
    raise Transient(words, retry_after_s=wait_s)


def _retry_after(text: str) -> float | None:
    """Seconds of a Retry-After header, in either of its forms; None for none, or one that makes no sense."""
    if _SECONDS(text):
        return min(float(text), RETRY_AFTER_SECONDS_MAX)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), RETRY_AFTER_SECONDS_MAX)
