"""The parts of a campaign, one on each shard: made once, told whether to go on, read together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.db import DatabaseError

from dlq.models import Campaign
from dlq.states import CampaignState
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, Unavailable

MATCHES_COUNTED_MAX: Final = 1_000_000  # of a campaign on one shard: counted in well under two seconds


class PartView(NamedTuple):
    """A row of `campaign_progress`. `rests`: nothing is to be done until the canary is judged, or at all."""

    campaign_id: int
    version: int
    matches: int
    is_capped: bool
    is_exhausted: bool
    redriven: int
    skipped: Mapping[str, int]
    succeeded: int
    failed: int
    ended: int
    ceiling: int | None
    rests: bool

    @property
    def pending(self) -> int:
        """Redrives of which nobody knows yet how they went."""
        return self.redriven - self.succeeded - self.failed - self.ended


def filter_params(campaign: Campaign) -> dict[str, Any]:
    """What the statements' frozen filter reads."""
    names = ("queue_id", "reason", "kind", "fingerprint", "failed_before", "failed_since", "job_ids")
    scope = ("tenant_id", "queue_ids", "frozen_at")
    chosen = {name: getattr(campaign, name) for name in (*names, *scope)}
    return {**chosen, "is_patched": campaign.patch is not None}


Progress = tuple[
    dict[int, PartView], list[int]
]  # shard number → part; the numbers of shards that did not answer


def progress(campaign_id: int) -> Progress:
    """How far one campaign has come on each shard."""
    return progress_of([campaign_id])[campaign_id]


def progress_of(campaign_ids: Sequence[int]) -> dict[int, Progress]:
    """As `progress`, of many campaigns with one read a shard."""
    found: dict[int, Progress] = {campaign_id: ({}, []) for campaign_id in campaign_ids}
    for number, alias in database.aliases().items():
        try:
            rows = sql.rows("dlq/campaign_progress", {"campaign_ids": list(campaign_ids)}, alias=alias)
        except (DatabaseError, JobsPlatformError):
            for _, unknown in found.values():
                unknown.append(number)
        else:
            for part in (PartView(*row) for row in rows):
                found[part.campaign_id][0][number] = part
    return found


def ensure(campaign: Campaign) -> Progress:
    """Make the parts that are missing, and answer as `progress`.

    The canary is taken from the shards in their order, as far as each has matches.
    """
    found, unknown = progress(campaign.pk)
    missing = [number for number in database.aliases() if number not in found and number not in unknown]
    if not missing:
        return found, unknown
    left = campaign.canary - sum(part.ceiling or 0 for part in found.values())
    for number in missing:
        try:
            left -= _make(campaign, database.aliases()[number], max(left, 0))
        except (DatabaseError, JobsPlatformError):
            continue
    return progress(campaign.pk)


def _make(campaign: Campaign, alias: str, canary: int) -> int:
    """Returns how much of the canary the part takes."""
    params = filter_params(campaign) | {
        "campaign_id": campaign.pk,
        "version": campaign.version,
        "is_open": campaign.state == CampaignState.RUNNING,
        "canary": None if campaign.is_canary_over else canary,
        "limit": MATCHES_COUNTED_MAX,
    }
    rows = sql.rows("dlq/campaign_part", params, alias=alias, writes=True)
    return min(canary, rows[0][0]) if rows else 0


def say(campaign: Campaign) -> None:
    """Tell every part whether to go on. Raises Unavailable naming the shards that were not reached."""
    ensure(campaign)
    unreached = []
    params = {
        "campaign_id": campaign.pk,
        "version": campaign.version,
        "is_open": campaign.state == CampaignState.RUNNING,
        "is_canary_over": campaign.is_canary_over,
    }
    for number, alias in database.aliases().items():
        try:
            sql.rows("dlq/campaign_say", params, alias=alias, writes=True)
        except (DatabaseError, JobsPlatformError):
            unreached.append(number)
    if unreached:
        shards = ", ".join(map(str, unreached))
        raise Unavailable(f"The change is stored, but these shards were not reached: {shards}. Repeat it.")
