"""How dead letters, their groups and campaigns look on the wire: replies and their schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dlq.campaigns import CampaignView, Preview
from dlq.corrections import Corrected
from dlq.fork import Forked
from dlq.groups import COUNT_CAP, Group
from dlq.models import Campaign
from dlq.reads import CorrectionView, DeadLetterView
from dlq.redrive import Redriven
from dlq.states import CampaignState, SkipReason
from jobqueue.api.wire import JOB_MEMBERS
from jobqueue.ids import format_id
from jobqueue.states import ERROR_CLASSES, DeadReason
from jobsplatform.instants import format_instant, format_optional
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

FORKED: Final = described("Forked", {**JOB_MEMBERS, "origin_job_id": TEXT, "replayed": TRUTH})
GROUP: Final = described(
    "DeadLetterGroup",
    {
        "fingerprint": TEXT,
        "error_class": words(ERROR_CLASSES, or_null=True),
        "sample": TEXT,
        "count": NUMBER,
        "capped": TRUTH,
        "first_seen": INSTANT,
        "last_seen": INSTANT,
        "kinds": {"type": "array", "items": TEXT},
        "tenants?": {"type": "array", "items": TEXT},
    },
)
GROUP_PAGE: Final = page_of(GROUP)
SKIPS: Final = {
    "type": "object",
    "description": "Reason to count.",
    "propertyNames": words(SkipReason.values),
    "additionalProperties": NUMBER,
}
PLAN: Final = {
    "filter": {"type": "object"},
    "note": TEXT,
    "rate_per_s": NUMBER,
    "canary": NUMBER,
    "stop_at_failure_share": {"type": "number"},
    "created_at": INSTANT,
}
CAMPAIGN_MADE: Final = described(
    "CampaignMade",
    {"id": TEXT, "state": words(CampaignState.values), "matches": NUMBER, "capped": TRUTH, **PLAN},
)
CAMPAIGN: Final = described(
    "Campaign",
    {
        "id": TEXT,
        "state": words(CampaignState.values),
        "matches": NUMBER,
        "capped": TRUTH,
        "redriven": NUMBER,
        "skipped": SKIPS,
        "succeeded": NUMBER,
        "failed": NUMBER,
        "eta_s": NUMBER_OR_NULL,
        **PLAN,
        "partial?": TRUTH,
        "unknown_shards?": {"type": "array", "items": NUMBER},
    },
)
CAMPAIGN_PREVIEW: Final = described(
    "CampaignPreview",
    {
        "matches": NUMBER,
        "capped": TRUTH,
        "samples": {"type": "array", "items": DEAD_LETTER},
        "would_skip": SKIPS,
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


def forked(done: Forked, job: Mapping[str, Any]) -> dict[str, Any]:
    """The new job, and where it came from."""
    return {**job, "origin_job_id": format_id(done.origin_job_id), "replayed": done.replayed}


def group(found: Group, tenants: Mapping[int, str] | None) -> dict[str, Any]:
    """A group; `tenants` names whose it is, and is None for a caller that is one of them."""
    members = {
        "fingerprint": found.fingerprint,
        "error_class": found.error_class,
        "sample": found.sample,
        "count": min(found.count, COUNT_CAP),
        "capped": found.is_capped,
        "first_seen": format_instant(found.first_seen),
        "last_seen": format_instant(found.last_seen),
        "kinds": found.kinds,
    }
    if tenants is not None:
        members["tenants"] = sorted(tenants[i] for i in found.tenant_ids if i in tenants)
    return members


def plan(campaign: Campaign, queue: str | None) -> dict[str, Any]:
    """What a campaign was asked to do. Of its filter the conditions that it has."""
    conditions = {
        "queue": queue,
        "reason": campaign.reason,
        "kind": campaign.kind,
        "fingerprint": campaign.fingerprint,
        "failed_before": format_optional(campaign.failed_before),
    }
    return {
        "filter": {name: value for name, value in conditions.items() if value is not None},
        "note": campaign.note,
        "rate_per_s": campaign.rate_per_s,
        "canary": campaign.canary,
        "stop_at_failure_share": campaign.stop_at_failure_share,
        "created_at": format_instant(campaign.created_at),
    }


def campaign_made(campaign: Campaign, queue: str | None) -> dict[str, Any]:
    """As it was when it was made, so that a repeat of the call gets the first answer."""
    return {
        "id": str(campaign.pk),
        "state": CampaignState.RUNNING.value,
        "matches": campaign.first_matches or 0,
        "capped": campaign.is_capped,
        **plan(campaign, queue),
    }


def campaign(view: CampaignView, queue: str | None) -> dict[str, Any]:
    """A campaign and its progress."""
    missing = {"partial": True, "unknown_shards": list(view.unknown_shards)} if view.unknown_shards else {}
    return {
        "id": str(view.campaign.pk),
        "state": view.campaign.state,
        "matches": view.matches,
        "capped": view.is_capped,
        "redriven": view.redriven,
        "skipped": dict(view.skipped),
        "succeeded": view.succeeded,
        "failed": view.failed,
        "eta_s": view.eta_s,
        **plan(view.campaign, queue),
        **missing,
    }


def campaign_preview(found: Preview, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a campaign would do."""
    return {
        "matches": found.matches,
        "capped": found.is_capped,
        "samples": list(samples),
        "would_skip": dict(found.would_skip),
    }


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else bytes(digest).hex()
