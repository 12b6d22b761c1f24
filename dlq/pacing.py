"""The dispatcher's part in campaigns: one bounded batch a pass and shard, outcomes learnt, failures judged.

A batch is one transaction: it holds the part, holds the next dead letters, writes an audit entry for each, puts them
back, and notes how far it came. A dispatcher killed between any two statements leaves the part where the last batch
left it. Any number of dispatchers may run: a part is held by one.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from django.db import DatabaseError

from dlq import campaigns, parts, patches
from dlq.campaigns import CampaignView
from dlq.models import Campaign
from dlq.parts import PartView
from dlq.states import CampaignState
from jobqueue.ids import format_id
from jobsplatform import database, events, sql
from jobsplatform.errors import JobsPlatformError
from tenants import audit

BATCH_MATCHES: Final = 500  # dead letters that one batch holds
PATCHED_MATCHES: Final = 100  # where each payload is read: 12 MiB at most
WINDOW_IDS: Final = 10_000  # ids that one batch looks at, so that a rare match costs no full scan
FOLLOW_LIMIT: Final = 500  # redrives whose outcome one pass looks up, of one campaign and shard
CAMPAIGNS_MAX: Final = 100  # that one pass serves
JUDGED_MIN: Final = 20  # outcomes before the failure share says anything, beside the end of the canary


class _Taken(NamedTuple):
    """A row of `campaign_take`."""

    job_id: int | None
    tenant_id: int
    verdict: str | None
    window_to: int | None
    is_last: bool


def advance(now: datetime | None = None) -> int:
    """One pass over the running campaigns. Returns how many dead letters were redriven.

    A campaign that fails does not hold up the others; the first failure is raised after all had their turn.
    """
    follow()
    redriven, failure = 0, None
    # In any order: those that wait for their canary's ends must not keep others from their turn for ever.
    for campaign in Campaign.objects.filter(state=CampaignState.RUNNING).order_by("?")[:CAMPAIGNS_MAX]:
        try:
            redriven += _step(campaign, now)
        except JobsPlatformError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return redriven


def follow() -> int:
    """Learn what became of redrives, also of campaigns that have ended. Returns how many became known."""
    known = 0
    for alias in database.aliases().values():
        try:
            pending = sql.rows("dlq/campaign_pending", {"limit": CAMPAIGNS_MAX}, alias=alias)
            for (campaign_id,) in pending:
                params = {"campaign_id": campaign_id, "limit": FOLLOW_LIMIT}
                known += sql.rows("dlq/campaign_follow", params, alias=alias, writes=True)[0][0]
        except (DatabaseError, JobsPlatformError):
            continue  # a shard that is away does not hold up the others
    return known


def _step(campaign: Campaign, now: datetime | None) -> int:
    found, unknown = parts.ensure(campaign)
    if any(part.version < campaign.version for part in found.values()):
        parts.say(campaign)  # a shard was away when the campaign changed
    redriven = 0
    aliases = database.aliases()
    for number in found:
        action = partial(_batch, campaign, aliases[number], campaign.rate_per_s / len(aliases), now)
        try:
            redriven += sql.in_transaction(aliases[number], action)
        except (DatabaseError, JobsPlatformError):
            unknown.append(number)
    if redriven:
        events.emit("campaign_advanced", campaign=campaign.pk, count=redriven)
    if not unknown:
        _judge(campaign)
    return redriven


# A batch


def _batch(campaign: Campaign, alias: str, rate_per_s: float, now: datetime | None) -> int:
    """Redrive the next dead letters of a part, as many as rate and canary allow now."""
    held = sql.rows(
        "dlq/campaign_hold", {"campaign_id": campaign.pk, "rate_per_s": rate_per_s, "now": now}, alias=alias
    )
    if not held or not held[0][2]:
        return 0
    at, seen_to, allowance, tokens = held[0]
    batch = BATCH_MATCHES if campaign.patch is None else PATCHED_MATCHES
    params = parts.filter_params(campaign) | {
        "campaign_id": campaign.pk,
        "seen_to": seen_to,
        "window": WINDOW_IDS,
        "batch": batch,
        "now": at,
    }
    rows = [_Taken(*row) for row in sql.rows("dlq/campaign_take", params, alias=alias)]
    window_to, is_last = rows[0].window_to, rows[0].is_last
    matched = [row for row in rows if row.job_id is not None]
    taken = _within(matched, allowance)
    is_through = len(taken) == len(matched) and len(matched) < batch
    taken = _corrected(campaign, taken, alias, at)
    chosen = [row for row in taken if row.verdict is None]
    _send_back(campaign, chosen, alias, at)
    reached = window_to if is_through else taken[-1].job_id if taken else seen_to
    params = {
        "campaign_id": campaign.pk,
        "seen_to": seen_to if reached is None else reached,
        "is_exhausted": is_through and is_last,
        "redriven": len(chosen),
        "skipped": json.dumps(Counter(row.verdict for row in taken if row.verdict is not None)),
        "tokens": tokens - len(chosen),
        "at": at,
    }
    sql.rows("dlq/campaign_note", params, alias=alias)
    return len(chosen)


def _within(rows: list[_Taken], allowance: int) -> list[_Taken]:
    """The first rows, up to the redrive that would be one too many; skips are free."""
    redrives = 0
    for index, row in enumerate(rows):
        redrives += row.verdict is None
        if redrives > allowance:
            return rows[:index]
    return rows


def _corrected(campaign: Campaign, taken: list[_Taken], alias: str, at: datetime) -> list[_Taken]:
    """Apply the campaign's patch, if it has one, to what would go; who cannot be corrected stays."""
    going = [row.job_id for row in taken if row.verdict is None and row.job_id is not None]
    if campaign.patch is None or not going:
        return taken
    stay = patches.correct(campaign, going, alias=alias, now=at)
    return [row._replace(verdict=row.verdict or stay.get(row.job_id or 0)) for row in taken]


def _send_back(campaign: Campaign, chosen: list[_Taken], alias: str, at: datetime) -> None:
    """Every redrive has an audit entry of its own; chains are held in the tenants' order."""
    job_ids: list[int] = []
    audit_ids: list[int] = []
    for tenant_id, rows in groupby(sorted(chosen, key=lambda row: row.tenant_id), lambda row: row.tenant_id):
        ids = [row.job_id for row in rows if row.job_id is not None]
        job_ids += ids
        audit_ids += audit.record_many(
            "job.redrive",
            [f"job:{format_id(job_id)}" for job_id in ids],
            actor=campaign.actor,
            tenant_id=tenant_id,
            reason=campaign.note,
            details={"campaign": campaign.pk},
            alias=alias,
        )
    if not job_ids:
        return
    params = {
        "job_ids": job_ids,
        "audit_ids": audit_ids,
        "note": campaign.note,
        "actor": campaign.actor,
        "call_hash": bytes(campaign.call_hash),
        "campaign_id": campaign.pk,
        "redrive_key": None,
        "not_before": None,
        "max_attempts": None,
        "now": at,
    }
    moved = sql.rows("dlq/campaign_redrive", params, alias=alias)
    assert len(moved) == len(job_ids), "a dead letter that was held is gone"


# The brake


def _judge(campaign: Campaign) -> None:
    """Stop at the failure share, let the rest follow a sound canary, conclude what is through."""
    found, unknown = parts.progress(campaign.pk)
    if unknown or len(found) < len(database.aliases()):
        return
    view = campaigns.summed(campaign, found, unknown)
    details = {"redriven": view.redriven, "succeeded": view.succeeded, "failed": view.failed}
    in_canary = not campaign.is_canary_over
    canary_ended = in_canary and _canary_has_ended(found)
    if _fails_too_often(view, canary_ended):
        if campaigns.conclude(campaign, CampaignState.STOPPED, details=details):
            events.emit("campaign_stopped", campaign=campaign.pk, count=1, failed=view.failed)
    elif canary_ended:
        campaigns.end_canary(campaign, details=details)
    elif not in_canary and all(part.is_exhausted for part in found.values()):
        told = {**details, "skipped": dict(view.skipped)}
        if campaigns.conclude(campaign, CampaignState.DONE, details=told):
            events.emit("campaign_done", campaign=campaign.pk, count=1)


def _canary_has_ended(found: dict[int, PartView]) -> bool:
    return all(part.rests and not part.pending for part in found.values())


def _fails_too_often(view: CampaignView, canary_ended: bool) -> bool:
    """Whether the share of failures among outcomes since the last forgiveness reaches the campaign's bound."""
    failed = view.failed - view.campaign.judged_failed
    outcomes = failed + view.succeeded - view.campaign.judged_succeeded
    if not outcomes or (outcomes < JUDGED_MIN and not canary_ended):
        return False
    return failed / outcomes >= view.campaign.stop_at_failure_share
