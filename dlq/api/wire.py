"""How dead letters look on the wire: replies and their schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dlq.corrections import Corrected
from dlq.reads import CorrectionView, DeadLetterView
from dlq.redrive import Redriven
from jobqueue.ids import format_id
from jobqueue.states import ERROR_CLASSES, DeadReason
from jobsplatform.instants import format_instant
from jobsplatform.schemas import (
    ANY,
    INSTANT,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    described,
    page_of,
    words,
)

CORRECTION: Final = described(
    "Correction",
    {
        "version": NUMBER,
        "note": TEXT,
        "author": TEXT,
        "at": INSTANT,
        "old_sha256": TEXT_OR_NULL,
        "new_sha256": TEXT_OR_NULL,
    },
)
ERROR: Final = described(
    "DeadError",
    {"error_class": words(ERROR_CLASSES, or_null=True), "message": TEXT, "fingerprint": TEXT},
)
PAYLOAD: Final = described(
    "DeadPayload", {"bytes": NUMBER_OR_NULL, "sha256": TEXT_OR_NULL, "ref": TEXT_OR_NULL, "value?": ANY}
)
DEAD_LETTER: Final = described(
    "DeadLetter",
    {
        "job_id": TEXT,
        "tenant": TEXT,
        "queue": TEXT,
        "kind": TEXT,
        "priority": NUMBER,
        "reason": words(DeadReason.values),
        "failed_at": INSTANT,
        "error": ERROR,
        "attempts_used": NUMBER,
        "crashes": NUMBER,
        "generation": NUMBER,
        "redrive_generation": NUMBER,
        "correction_required": TRUTH,
        "corrections": {"type": "array", "items": CORRECTION},
        "payload": PAYLOAD,
    },
)
DEAD_LETTER_PAGE: Final = page_of(DEAD_LETTER)
CORRECTED: Final = described(
    "Corrected", {"version": NUMBER, "old_sha256": TEXT_OR_NULL, "new_sha256": TEXT_OR_NULL}
)
REDRIVEN: Final = described(
    "Redriven",
    {
        "job_id": TEXT,
        "redrive_generation": NUMBER,
        "audit_id": TEXT,
        "state": words(["ready", "scheduled"]),
        "replayed": TRUTH,
    },
)


def dead_letter(
    view: DeadLetterView, tenant: str, queue: str, corrections: Sequence[CorrectionView]
) -> dict[str, Any]:
    """A dead letter; of its payload only what is safe to show."""
    error = {"error_class": view.error_class, "message": view.message, "fingerprint": view.fingerprint}
    payload = {"bytes": view.payload_bytes, "sha256": view.payload_sha256, "ref": view.payload_ref}
    return {
        "job_id": format_id(view.job_id),
        "tenant": tenant,
        "queue": queue,
        "kind": view.kind,
        "priority": view.priority,
        "reason": view.reason,
        "failed_at": format_instant(view.failed_at),
        "error": error,
        "attempts_used": view.attempts_used,
        "crashes": view.crashes,
        "generation": view.generation,
        "redrive_generation": view.redrive_generation,
        "correction_required": view.correction_required,
        "corrections": [correction(version) for version in corrections],
        "payload": payload,
    }


def correction(view: CorrectionView) -> dict[str, Any]:
    return {
        "version": view.version,
        "note": view.note,
        "author": view.author,
        "at": format_instant(view.at),
        "old_sha256": view.old_sha256,
        "new_sha256": view.new_sha256,
    }


def corrected(done: Corrected) -> dict[str, Any]:
    return {
        "version": done.version,
        "old_sha256": _hex(done.old_hash),
        "new_sha256": _hex(done.new_hash),
    }


def redriven(done: Redriven) -> dict[str, Any]:
    return {
        "job_id": format_id(done.job_id),
        "redrive_generation": done.redrive_generation,
        "audit_id": done.audit_id,
        "state": done.state,
        "replayed": done.replayed,
    }


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else bytes(digest).hex()
