"""The correction of a whole campaign: what a merge patch makes of each payload, checked, and stored as versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from dlq import corrections, patching
from dlq.models import Campaign
from jobqueue import kinds
from jobqueue.ids import format_id
from jobsplatform import sql
from jobsplatform.errors import FieldError, Invalid
from tenants import audit

# Why a dead letter stays, beside what campaigns leave anyway.
NOT_PATCHABLE: Final = "not_patchable"  # its payload is a reference, or no object
SCHEMA: Final = "schema_refused"
CORRECTION_REQUIRED: Final = "correction_required"  # the patch changes nothing


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a patch does to one dead letter: `verdict` says why it stays (None: it goes), `payload` is its new version
    (None: as it was), `faults` what its kind's schema says (no values).
    """

    verdict: str | None
    payload: str | None = None
    faults: tuple[FieldError, ...] = ()


def outcome(
    patch: str, *, kind: str, payload: str | None, must_be_corrected: bool, alias: str | None
) -> Outcome:
    """What becomes of one payload."""
    if payload is None:
        return Outcome(NOT_PATCHABLE)
    try:
        new = patching.merged(payload, patch)
    except (ValueError, RecursionError):
        new = None
    if new is None:
        return Outcome(NOT_PATCHABLE)
    try:
        corrections.validate(kind, new)
        kinds.check_payload(kind, new, alias=alias)
    except Invalid as refusal:
        return Outcome(SCHEMA, new, tuple(refusal.errors))
    if new == payload:
        return Outcome(CORRECTION_REQUIRED if must_be_corrected else None)
    return Outcome(None, new)


def correct(
    campaign: Campaign, job_ids: Sequence[int], *, alias: str, now: datetime | None
) -> Mapping[int, str]:
    """Store the new versions of dead letters that this transaction holds, with an audit entry each.

    Returns those that stay, each with its reason.
    """
    assert campaign.patch is not None
    stay: dict[int, str] = {}
    made: list[tuple[int, int, int, str]] = []  # tenant, job, redrive generation, payload
    for row in sql.rows("dlq/patch_payloads", {"job_ids": list(job_ids)}, alias=alias):
        job_id, tenant_id, kind, must, generation, payload = row
        found = outcome(campaign.patch, kind=kind, payload=payload, must_be_corrected=must, alias=alias)
        if found.verdict is not None:
            stay[job_id] = found.verdict
        elif found.payload is not None:
            made.append((tenant_id, job_id, generation, found.payload))
    _store(campaign, sorted(made), alias, now)
    return stay


def _store(
    campaign: Campaign, made: Sequence[tuple[int, int, int, str]], alias: str, now: datetime | None
) -> None:
    if not made:
        return
    for tenant_id, rows in groupby(made, lambda row: row[0]):  # chains are held in the tenants' order
        audit.record_many(
            "job.correct",
            [f"job:{format_id(job_id)}" for _, job_id, _, _ in rows],
            actor=campaign.actor,
            tenant_id=tenant_id,
            reason=campaign.note,
            details={"campaign": campaign.pk},
            alias=alias,
        )
    params = {
        "job_ids": [job_id for _, job_id, _, _ in made],
        "redrive_generations": [generation for _, _, generation, _ in made],
        "payloads": [payload for _, _, _, payload in made],
        "note": campaign.note,
        "author": campaign.actor,
        "now": now,
    }
    sql.rows("dlq/correct_many", params, alias=alias)
