"""How jobs, attempts and leases look on the wire: replies and their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobqueue.claiming import Lease
from jobqueue.ids import format_id, format_token
from jobqueue.leases import Completed, Failed, Released, Renewed
from jobqueue.reads import AttemptView, JobView, ResultView
from jobqueue.states import ERROR_CLASSES, AttemptOutcome, ResultOutcome, State
from jobqueue.why import GATES
from jobsplatform.fields import Schema
from jobsplatform.http import splice
from jobsplatform.instants import format_instant, format_optional
from jobsplatform.schemas import (
    ANY,
    INSTANT,
    INSTANT_OR_NULL,
    NUMBER,
    NUMBER_OR_NULL,
    PROBLEM_REFERENCE,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    described,
    page_of,
    words,
)

Members = dict[str, Any]

# Jobs

LAST_ERROR: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {"error_class": words(ERROR_CLASSES), "message": TEXT, "at": INSTANT},
}
JOB_MEMBERS: Final[Mapping[str, Schema]] = {
    "job_id": TEXT,
    "tenant": TEXT,
    "queue": TEXT,
    "kind": TEXT,
    "priority": NUMBER,
    "effective_priority": NUMBER,
    "state": words(State.values),
    "request_key": TEXT_OR_NULL,
    "operation_id": TEXT,
    "payload_sha256": TEXT_OR_NULL,
    "payload_bytes": NUMBER_OR_NULL,
    "payload_ref": TEXT_OR_NULL,
    "dependency": TEXT_OR_NULL,
    "attempts_used": NUMBER,
    "max_attempts": NUMBER,
    "generation": NUMBER,
    "crashes": NUMBER,
    "redrive_generation": NUMBER,
    "not_before": INSTANT_OR_NULL,
    "deadline": INSTANT_OR_NULL,
    "created_at": INSTANT,
    "due_at": INSTANT_OR_NULL,
    "claimed_at": INSTANT_OR_NULL,
    "expires_at": INSTANT_OR_NULL,
    "finished_at": INSTANT_OR_NULL,
    "cancel_requested": TRUTH,
    "last_error": LAST_ERROR,
    "dead_reason": TEXT_OR_NULL,
}
JOB: Final = described("Job", JOB_MEMBERS)
JOB_SHOWN: Final = described("JobShown", {**JOB_MEMBERS, "payload?": ANY})
JOB_ACCEPTED: Final = described("JobAccepted", {**JOB_MEMBERS, "replayed": TRUTH})
JOB_PURGED: Final = described(
    "JobPurged",
    {
        "job_id": TEXT,
        "tenant": TEXT,
        "queue": TEXT,
        "kind": TEXT,
        "priority": NUMBER,
        "state": words(["purged"]),
        "request_key": TEXT,
        "operation_id": TEXT,
        "replayed": TRUTH,
    },
)
JOB_REPLAYED: Final[Schema] = {"title": "JobReplayed", "anyOf": [JOB_ACCEPTED, JOB_PURGED]}
JOB_PAGE: Final = page_of(JOB)
ITEM_RESULTS: Final = described(
    "ItemResults",
    {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["status"],
                "properties": {
                    "status": NUMBER,
                    "job_id": TEXT_OR_NULL,
                    "replayed": TRUTH,
                    "problem": PROBLEM_REFERENCE,
                },
            },
        }
    },
)
CANCELLED: Final = described(
    "Cancelled", {"state": words(["cancelled", "running"]), "cancel_requested?": TRUTH}
)
WHY: Final = described(
    "Why",
    {
        "state": words(State.values),
        "gates": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["gate", "detail", "until"],
                "properties": {"gate": words(GATES), "detail": TEXT, "until": INSTANT_OR_NULL},
            },
        },
        "position": NUMBER_OR_NULL,
        "ahead": NUMBER_OR_NULL,
        "start_between": {"type": ["array", "null"], "items": INSTANT, "minItems": 2, "maxItems": 2},
    },
)
ATTEMPT: Final = described(
    "Attempt",
    {
        "generation": NUMBER,
        "attempt": NUMBER,
        "worker": TEXT,
        "claimed_at": INSTANT,
        "ended_at": INSTANT_OR_NULL,
        "outcome": words(AttemptOutcome.values, or_null=True),
        "error_class": words(ERROR_CLASSES, or_null=True),
        "message": TEXT_OR_NULL,
        "service_ms": NUMBER_OR_NULL,
    },
)
ATTEMPT_PAGE: Final = page_of(ATTEMPT)
RESULT: Final = described(
    "Result",
    {
        "outcome": words(ResultOutcome.values),
        "result": ANY,
        "payload_hash": TEXT_OR_NULL,
        "generation": NUMBER,
        "finished_at": INSTANT,
    },
)


def job(view: JobView, tenant: str, queue: str, effective_priority: int) -> Members:
    """A job without its payload."""
    job_id = format_id(view.job_id)
    return {
        "job_id": job_id,
        "tenant": tenant,
        "queue": queue,
        "kind": view.kind,
        "priority": view.priority,
        "effective_priority": effective_priority,
        "state": view.state,
        "request_key": view.request_key,
        "operation_id": job_id,
        "payload_sha256": view.payload_sha256,
        "payload_bytes": view.payload_bytes,
        "payload_ref": view.payload_ref,
        "dependency": view.dependency,
        "attempts_used": view.attempts_used,
        "max_attempts": view.max_attempts,
        "generation": view.generation,
        "crashes": view.crashes,
        "redrive_generation": view.redrive_generation,
        "not_before": format_optional(view.not_before),
        "deadline": format_optional(view.deadline),
        "created_at": format_instant(view.created_at),
        "due_at": format_optional(view.due_at),
        "claimed_at": format_optional(view.claimed_at),
        "expires_at": format_optional(view.expires_at),
        "finished_at": format_optional(view.finished_at),
        "cancel_requested": view.cancel_requested,
        "last_error": _last_error(view),
        "dead_reason": view.dead_reason,
    }


def attempt(view: AttemptView) -> Members:
    return {
        **view._asdict(),
        "claimed_at": format_instant(view.claimed_at),
        "ended_at": format_optional(view.ended_at),
    }


def result(view: ResultView) -> str:
    """JSON text: the result stands in it as it was sent."""
    members = {
        "outcome": view.outcome,
        "payload_hash": view.payload_hash,
        "generation": view.generation,
        "finished_at": format_instant(view.finished_at),
    }
    return splice(members, {"result": view.body or "null"})


def _last_error(view: JobView) -> Members | None:
    if view.error_class is None:
        return None
    message = view.error_message or ""
    return {"error_class": view.error_class, "message": message, "at": format_optional(view.error_at)}


# Leases

LEASE: Final = described(
    "Lease",
    {
        "job_id": TEXT,
        "generation": NUMBER,
        "attempt": NUMBER,
        "lease_token": TEXT,
        "expires_at": INSTANT,
        "queue": TEXT,
        "kind": TEXT,
        "tenant": TEXT,
        "priority": NUMBER,
        "payload": ANY,
        "payload_ref": TEXT_OR_NULL,
        "operation_id": TEXT,
        "request_key": TEXT_OR_NULL,
        "deadline": INSTANT_OR_NULL,
        "reconcile": TRUTH,
        "earlier_generations": {"type": "array", "items": NUMBER},
        "checkpoint": ANY,
        "redrive_generation": NUMBER,
        "traceparent": TEXT_OR_NULL,
    },
)
LEASES: Final = described("Leases", {"leases": {"type": "array", "items": LEASE}, "server_time": INSTANT})
RENEWED: Final = described("Renewed", {"expires_at": INSTANT, "cancel_requested": TRUTH, "give_back": TRUTH})
COMPLETED: Final = described(
    "Completed", {"state": words(["succeeded"]), "completed_at": INSTANT, "replayed": TRUTH, "late": TRUTH}
)
FAILED: Final = described(
    "Failed",
    {
        "state": words(["scheduled", "dead", "cancelled"]),
        "next_attempt_at": INSTANT_OR_NULL,
        "reason": TEXT_OR_NULL,
        "replayed": TRUTH,
    },
)
RELEASED: Final = described(
    "Released", {"state": words(["ready", "scheduled", "dead", "cancelled"]), "replayed": TRUTH}
)


def lease(held: Lease, tenant: str, queue: str) -> str:
    """JSON text: payload and checkpoint stand in it as they were sent."""
    job_id = format_id(held.job_id)
    members = {
        "job_id": job_id,
        "generation": held.generation,
        "attempt": held.attempt,
        "lease_token": format_token(held.token),
        "expires_at": format_instant(held.expires_at),
        "queue": queue,
        "kind": held.kind,
        "tenant": tenant,
        "priority": held.priority,
        "payload_ref": held.payload_ref,
        "operation_id": job_id,
        "request_key": held.request_key,
        "deadline": format_optional(held.deadline),
        "reconcile": held.reconcile,
        "earlier_generations": held.earlier_generations,
        "redrive_generation": held.redrive_generation,
        "traceparent": held.traceparent,
    }
    return splice(members, {"payload": held.payload or "null", "checkpoint": held.checkpoint or "null"})


def renewed(done: Renewed) -> Members:
    return {
        "expires_at": format_instant(done.expires_at),
        "cancel_requested": done.cancel_requested,
        "give_back": done.give_back,
    }


def completed(done: Completed) -> Members:
    return {
        "state": State.SUCCEEDED.value,
        "completed_at": format_instant(done.completed_at),
        "replayed": done.replayed,
        "late": done.late,
    }


def failed(done: Failed) -> Members:
    return {
        "state": done.state,
        "next_attempt_at": format_optional(done.next_attempt_at),
        "reason": done.reason,
        "replayed": done.replayed,
    }


def released(done: Released) -> Members:
    return {"state": done.state, "replayed": done.replayed}
