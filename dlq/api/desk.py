"""Calls of the dead-letter desk about one job: look, correct, redrive, fork."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dlq import corrections, fork, reads, redrive
from dlq.api import wire
from dlq.reads import DeadFilter, DeadLetterView, Place
from jobqueue import policies, reveal
from jobqueue import reads as job_reads
from jobqueue.api import names
from jobqueue.api.bodies import QUEUE_CHARS_MAX
from jobqueue.api.calls import queue_in_body, scope_of
from jobqueue.ids import parse_id
from jobqueue.limits import (
    HORIZON,
    JOB_BODY_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_REF_CHARS_MAX,
    REASON_CHARS_MAX,
)
from jobqueue.states import DeadReason
from jobsplatform import cursors, everywhere
from jobsplatform.errors import Invalid
from jobsplatform.fields import Choice, Instant, Integer, Json, Key, Name, Text
from jobsplatform.http import Call, Endpoint, Reply, splice
from jobsplatform.shapes import Shape, exactly_one

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FINGERPRINT_CHARS_MAX: Final = 16
REDRIVE_KEY_CHARS_MAX: Final = 255

NOTE: Final = Text(name="note", required=True, not_blank=True, chars_max=REASON_CHARS_MAX, doc="Why.")
FILTER: Final = cursors.listing_query(
    "DeadFilter",
    Text(name="queue", chars_min=1, chars_max=QUEUE_CHARS_MAX),
    Choice(name="reason", choices=DeadReason.values),
    Name(name="kind"),
    Text(name="fingerprint", chars_min=1, chars_max=FINGERPRINT_CHARS_MAX),
)
INCLUDE: Final = Shape("Include", Choice(name="include", choices=("payload",)))
CORRECTION: Final = Shape(
    "NewCorrection",
    NOTE,
    Json(name="payload", bytes_max=PAYLOAD_BYTES_MAX),
    Text(name="payload_ref", chars_min=1, chars_max=PAYLOAD_REF_CHARS_MAX),
    rules=(exactly_one("payload", "payload_ref"),),
)
REDRIVE: Final = Shape(
    "NewRedrive",
    NOTE,
    Text(name="redrive_key", chars_min=1, chars_max=REDRIVE_KEY_CHARS_MAX),
    Instant(name="not_before"),
    Instant(name="deadline", doc="Needed when the job's own has passed."),
    Integer(name="max_attempts", low=1, high=100),
)
FORK: Final = Shape(
    "NewFork", NOTE, Key(name="request_key", doc="Of the new job; the header Idempotency-Key means the same.")
)


class ListDeadLetters(Endpoint):
    """Dead letters, newest first."""

    query = FILTER
    replies = {200: wire.DEAD_LETTER_PAGE}

    def check(self, call: Call) -> None:
        queue = None if call.query["queue"] is None else queue_in_body(call.query["queue"])
        self.wanted = DeadFilter(
            queue_id=None if queue is None else queue.id,
            reason=call.query["reason"],
            kind=call.query["kind"],
            fingerprint=call.query["fingerprint"],
        )
        self.before = place_of(cursors.read(call))

    def act(self, call: Call) -> Reply:
        limit, unknown = call.query["limit"], list[int]()
        views, last = reads.page(
            self.wanted, scope=scope_of(call), before=self.before, limit=limit, unknown=unknown
        )
        following = None if last is None else cursors.write(call, numbers_of(last))
        return Reply(200, {"items": shown(views), "next": following, **everywhere.mark(unknown)})


class ShowDeadLetter(Endpoint):
    """One dead letter; with `include=payload` also the payload's present version, as `payload.value`."""

    query = INCLUDE
    replies = {200: wire.DEAD_LETTER}

    def act(self, call: Call) -> Reply:
        job_id, scope = parse_id(call.path["job_id"]), scope_of(call)
        members = shown([reads.dead_letter(job_id, scope=scope)])[0]
        if call.query["include"] is None:
            return Reply(200, members)
        value, _ = reveal.payload(job_id, scope=scope, actor=call.known.actor)
        payload = splice(members.pop("payload"), {"value": value or "null"})
        return Reply(200, splice(members, {"payload": payload}))


class Correct(Endpoint):
    """Write a new version of a dead letter's payload; the original stays."""

    body = CORRECTION
    body_bytes_max = JOB_BODY_BYTES_MAX
    takes_idempotency_key = True
    replies = {201: wire.CORRECTED}

    def act(self, call: Call) -> Reply:
        new = corrections.NewCorrection(
            note=call.body["note"],
            actor=call.known.actor,
            payload=call.body["payload"],
            payload_ref=call.body["payload_ref"],
            idempotency_key=call.idempotency_key,
        )
        done = corrections.correct(parse_id(call.path["job_id"]), new, scope=scope_of(call))
        return Reply(201, wire.corrected(done))


class RedriveOne(Endpoint):
    """Put a dead letter back into the schedule, once."""

    body = REDRIVE
    takes_idempotency_key = True
    replies = {201: wire.REDRIVEN, 200: wire.REDRIVEN}

    def check(self, call: Call) -> None:
        horizon = datetime.now(UTC) + HORIZON
        for name in ("not_before", "deadline"):
            if call.body[name] is not None and call.body[name] > horizon:
                raise Invalid.at(f"/{name}", "Lies more than ten years ahead.", "range")
        self.key = call.body["redrive_key"] or call.idempotency_key
        if call.idempotency_key not in (None, self.key):
            raise Invalid.at("/redrive_key", "Differs from the Idempotency-Key header.", "conflict")

    def act(self, call: Call) -> Reply:
        new = redrive.NewRedrive(
            note=call.body["note"],
            actor=call.known.actor,
            redrive_key=self.key,
            not_before=call.body["not_before"],
            deadline=call.body["deadline"],
            max_attempts=call.body["max_attempts"],
        )
        done = redrive.redrive(parse_id(call.path["job_id"]), new, scope=scope_of(call))
        return Reply(200 if done.replayed else 201, wire.redriven(done))


class Fork(Endpoint):
    """Make a new operation of a dead letter, under a new request key; the dead letter stays."""

    body = FORK
    takes_idempotency_key = True
    replies = {201: wire.FORKED, 200: wire.FORKED}

    def check(self, call: Call) -> None:
        key: str | None = call.body["request_key"] or call.idempotency_key
        if key is None:
            raise Invalid.at("/request_key", "Must be given.", "required")
        self.key: str = key
        if call.idempotency_key not in (None, key):
            raise Invalid.at("/request_key", "Differs from the Idempotency-Key header.", "conflict")

    def act(self, call: Call) -> Reply:
        new = fork.NewFork(request_key=self.key, note=call.body["note"], actor=call.known.actor)
        done = fork.fork(parse_id(call.path["job_id"]), new, scope=scope_of(call))
        job = next(names.jobs([job_reads.job(done.job_id, scope=scope_of(call))]))
        location = {"Location": f"/v1/jobs/{job['job_id']}"}
        return Reply(200 if done.replayed else 201, wire.forked(done, job), location)


def shown(views: Sequence[DeadLetterView]) -> list[dict[str, Any]]:
    """Dead letters as replies, with the corrections of each."""
    tenants = names.slugs(view.tenant_id for view in views)
    queues = policies.names({view.queue_id for view in views})
    versions = reads.corrections([view.job_id for view in views])
    return [
        wire.dead_letter(
            view,
            tenants.get(view.tenant_id, ""),
            queues.get(view.queue_id, ""),
            versions.get(view.job_id, []),
        )
        for view in views
    ]


# A cursor holds whole numbers: microseconds since the epoch, and the job id.


def numbers_of(place: Place) -> tuple[int, int]:
    at, job_id = place
    return (at - EPOCH) // timedelta(microseconds=1), job_id


def place_of(numbers: cursors.Place | None) -> Place | None:
    if numbers is None:
        return None
    microseconds, job_id = numbers
    return EPOCH + timedelta(microseconds=microseconds), job_id
