"""What calls about jobs and leases may hold."""

from __future__ import annotations

from typing import Any, Final

from jobqueue.limits import (
    BATCH_JOBS_MAX,
    CHECKPOINT_BYTES_MAX,
    CLAIM_KEY_CHARS_MAX,
    CLAIM_LIMIT_MAX,
    HORIZON,
    LEASE_SECONDS_MAX,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_REF_CHARS_MAX,
    REASON_CHARS_MAX,
    SETTLE_ITEMS_MAX,
    WAIT_SECONDS_MAX,
    WORKER_CHARS_MAX,
)
from jobqueue.states import ErrorClass, State
from jobsplatform import tracing
from jobsplatform.cursors import listing_query
from jobsplatform.errors import UnknownErrorClass
from jobsplatform.fields import (
    Boolean,
    Choice,
    Fault,
    Field,
    IndexOrName,
    Instant,
    Integer,
    Json,
    Key,
    Name,
    Text,
)
from jobsplatform.shapes import ListOf, Shape, exactly_one, not_both

HORIZON_SECONDS: Final = int(HORIZON.total_seconds())
GENERATION_MAX: Final = 2**31 - 1
BAND_MAX: Final = 99
QUEUE_CHARS_MAX: Final = 64
TOKEN_CHARS_MAX: Final = 100
CAPABILITIES_MAX: Final = 1_000
QUEUES_MAX: Final = 100
DEFAULT_QUEUE: Final = "default"

# Producers


class TraceParent(Text):
    """A `traceparent` as W3C Trace Context has it."""

    def check(self, value: Any) -> str:
        text = super().check(value)
        if not tracing.is_valid(text):
            raise Fault("format", "Must be a traceparent of W3C Trace Context.")
        return text


NEW_JOB: Final = Shape(
    "NewJob",
    Name(name="kind", required=True, doc="The handler that the job needs."),
    Json(name="payload", bytes_max=PAYLOAD_BYTES_MAX, doc="Any JSON value; comes back digit for digit."),
    Text(
        name="payload_ref", nullable=True, chars_min=1, chars_max=PAYLOAD_REF_CHARS_MAX, doc="Never fetched."
    ),
    Text(name="queue", chars_min=1, chars_max=QUEUE_CHARS_MAX, doc="Default: the kind's, else `default`."),
    IndexOrName(name="priority", high=BAND_MAX, doc="A band of the queue; 0 is the most urgent."),
    Key(name="request_key", doc="The request's identity in its tenant and queue; compared in NFC."),
    Instant(name="not_before", nullable=True),
    Integer(name="delay_s", nullable=True, low=0, high=HORIZON_SECONDS),
    Instant(name="deadline", nullable=True),
    Integer(name="expires_in_s", nullable=True, low=1, high=HORIZON_SECONDS),
    Integer(name="max_attempts", low=1, high=100, doc="Default: the kind's, else the queue's."),
    Name(name="dependency", doc="What the job calls outside. Default: the kind's."),
    TraceParent(name="traceparent", nullable=True, doc="W3C Trace Context; default: the request's header."),
    rules=(
        exactly_one("payload", "payload_ref"),
        not_both("not_before", "delay_s"),
        not_both("deadline", "expires_in_s"),
    ),
)
BATCH: Final = Shape("NewJobs", ListOf(name="jobs", item=NEW_JOB, low=1, high=BATCH_JOBS_MAX, required=True))
CANCEL: Final = Shape("Cancel", Text(name="reason", nullable=True, chars_max=REASON_CHARS_MAX))

JOB_FILTER: Final = listing_query(
    "JobFilter",
    Text(name="queue", chars_min=1, chars_max=QUEUE_CHARS_MAX),
    Choice(name="state", choices=State.values),
    Name(name="kind"),
    IndexOrName(name="priority", high=BAND_MAX, doc="An index, or with `queue` a band's name."),
    Key(name="request_key"),
    Instant(name="created_after"),
    Instant(name="created_before"),
)
PAGE: Final = listing_query("Page")
INCLUDE: Final = Shape("Include", Choice(name="include", choices=("payload",)))

# Workers

CLAIM: Final = Shape(
    "Claim",
    ListOf(name="capabilities", item=Name(), low=1, high=CAPABILITIES_MAX, doc="Kinds; absent: any."),
    Integer(name="limit", low=1, high=CLAIM_LIMIT_MAX, default=1),
    Text(name="queue", chars_min=1, chars_max=QUEUE_CHARS_MAX),
    ListOf(
        name="queues",
        item=Text(chars_min=1, chars_max=QUEUE_CHARS_MAX),
        low=1,
        high=QUEUES_MAX,
        doc="Neither this nor `queue`: every queue that the token may work.",
    ),
    Integer(name="lease_s", low=1, high=LEASE_SECONDS_MAX, doc="Default: the queue's."),
    Integer(name="wait_s", low=0, high=WAIT_SECONDS_MAX, default=0),
    Integer(name="max_priority", low=0, high=BAND_MAX, doc="The largest band index delivered."),
    Text(name="worker", chars_max=WORKER_CHARS_MAX, default=""),
    Text(name="claim_key", chars_min=1, chars_max=CLAIM_KEY_CHARS_MAX, doc="Repeats give the same leases."),
    Boolean(name="prefetch", default=False, doc="The jobs are not started yet."),
    rules=(not_both("queue", "queues"),),
)

_RECEIPT: Final[tuple[Field, ...]] = (
    Integer(name="generation", low=1, high=GENERATION_MAX, required=True),
    Text(name="lease_token", chars_min=1, chars_max=TOKEN_CHARS_MAX, required=True),
)
_RENEW: Final[tuple[Field, ...]] = (
    *_RECEIPT,
    Integer(name="lease_s", low=1, high=LEASE_SECONDS_MAX, doc="Default: as claimed."),
    Json(name="checkpoint", bytes_max=CHECKPOINT_BYTES_MAX, doc="What a later attempt will see."),
    Boolean(name="started", default=True),
)
_COMPLETE: Final[tuple[Field, ...]] = (
    *_RECEIPT,
    Json(name="result", bytes_max=PAYLOAD_BYTES_MAX, default="null"),
)
_FAIL: Final[tuple[Field, ...]] = (
    *_RECEIPT,
    Choice(name="error_class", choices=ErrorClass.values, fault_code=UnknownErrorClass.code, required=True),
    Text(name="message", default="", may_hold_nul=True, doc="Cut at 8 KiB."),
    Integer(name="retry_after_s", low=0, high=HORIZON_SECONDS, doc="A floor under the backoff."),
)
_RELEASE: Final[tuple[Field, ...]] = (*_RECEIPT, Integer(name="delay_s", low=0, high=HORIZON_SECONDS))
_JOB_ID: Final = Text(name="job_id", chars_min=1, required=True)

RENEW: Final = Shape("Renew", *_RENEW)
COMPLETE: Final = Shape("Complete", *_COMPLETE)
FAIL: Final = Shape("Fail", *_FAIL)
RELEASE: Final = Shape("Release", *_RELEASE)


def _settled(verb: str, fields: tuple[Field, ...]) -> ListOf:
    item = Shape(f"{verb.title()}Item", _JOB_ID, *fields)
    return ListOf(name=verb, item=item, high=SETTLE_ITEMS_MAX, default=())


SETTLE: Final = Shape(
    "Settle",
    _settled("complete", _COMPLETE),
    _settled("fail", _FAIL),
    _settled("release", _RELEASE),
    _settled("renew", _RENEW),
)
