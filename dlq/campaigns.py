"""Campaigns: bulk redrives with a frozen filter, a canary, a pace and a brake; made, looked at, paused, ended.

A campaign is a row of the control database. How far it has come stands on each shard, in its part, which moves in
the transaction of each batch (`dlq.pacing`): a dispatcher may die at any instant and nothing is lost or done twice.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from dlq import parts, patching
from dlq.models import Campaign
from dlq.parts import MATCHES_COUNTED_MAX, PartView
from dlq.states import CampaignState
from jobqueue.types import Scope
from jobsplatform import everywhere, sql
from jobsplatform.errors import AlreadyFinished, Invalid, KeyConflict, NotFound, Unavailable
from tenants import audit, rights

KEY_WINDOW: Final = timedelta(hours=24)  # how long an Idempotency-Key is remembered
RATE_MAX: Final = 200  # redrives a second
CANARY_MAX: Final = 100
RATE_DEFAULT: Final = 50
CANARY_DEFAULT: Final = 10
STOP_SHARE_MIN: Final = 0.01
STOP_SHARE_DEFAULT: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFilter:
    """Which dead letters a campaign chooses; None: any. `job_ids`: only those that an operator ticked."""

    queue_id: int | None = None
    reason: str | None = None
    kind: str | None = None
    fingerprint: str | None = None
    failed_before: datetime | None = None
    failed_since: datetime | None = None
    job_ids: tuple[int, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it would choose everything: such a campaign is refused."""
        return all(value is None for name, value in asdict(self).items() if name != "failed_since")

    def columns(self) -> dict[str, Any]:
        """The columns of a campaign, which are the statements' parameters too."""
        return asdict(self) | {"job_ids": None if self.job_ids is None else list(self.job_ids)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCampaign:
    """What to redrive and how: redrives a second, how many first, and the failure share (0.01 to 1) that stops it."""

    chosen: CampaignFilter
    note: str
    actor: str
    rate_per_s: int = RATE_DEFAULT
    canary: int = CANARY_DEFAULT
    stop_at_failure_share: float = STOP_SHARE_DEFAULT
    patch: str | None = None  # merged into each payload first (RFC 7396)
    idempotency_key: str | None = None

    @property
    def call_hash(self) -> bytes:
        plan: tuple[object, ...] = (self.note, self.rate_per_s, self.canary, self.stop_at_failure_share)
        if self.patch is not None:
            plan = (*plan, self.patch)
        return hashlib.sha256(repr((sorted(self.chosen.columns().items()), plan)).encode()).digest()


@dataclass(frozen=True, slots=True)
class CampaignView:
    """A campaign and how far it has come, over all shards that answered."""

    campaign: Campaign
    matches: int
    is_capped: bool
    redriven: int
    skipped: Mapping[str, int]
    succeeded: int
    failed: int
    ended: int
    unknown_shards: Sequence[int]

    @property
    def eta_s(self) -> int | None:
        """Seconds until every match is treated at the campaign's rate; None while it does not run."""
        if self.campaign.state == CampaignState.DONE:
            return 0
        if self.campaign.state != CampaignState.RUNNING:
            return None
        left = max(self.matches - self.redriven - sum(self.skipped.values()), 0)
        return math.ceil(left / self.campaign.rate_per_s)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a campaign would find now; `would_skip` by reason."""

    matches: int
    is_capped: bool
    would_skip: Mapping[str, int]


# Making


def preview(
    chosen: CampaignFilter,
    *,
    scope: Scope,
    frozen_at: datetime | None = None,
    is_patched: bool = False,
    now: datetime | None = None,
) -> Preview:
    """Count what a filter chooses, up to a bound, and what a campaign would leave where it is. Raises Invalid.

    `frozen_at`: nothing that failed later counts; None: now. `is_patched`: nothing lacks a correction.
    """
    _require_filter(chosen)
    params = chosen.columns() | scope.params() | {"frozen_at": frozen_at or now or clock(), "now": now}
    params["is_patched"] = is_patched
    verdicts: Counter[str | None] = Counter()
    limited = params | {"limit": MATCHES_COUNTED_MAX}
    for rows in everywhere.ask(
        lambda alias: sql.rows("dlq/campaign_preview", limited, alias=alias), unknown=[]
    ):
        verdicts.update(dict(rows))
    matches = sum(verdicts.values())
    skips = {reason: count for reason, count in verdicts.items() if reason is not None}
    return Preview(matches, matches >= MATCHES_COUNTED_MAX, skips)


def create(
    new: NewCampaign, *, scope: Scope, frozen_at: datetime | None = None, now: datetime | None = None
) -> Campaign:
    """Start a campaign over what its filter chooses at this instant; audited. Its `first_matches` are counted.

    `frozen_at`: over what had failed by then, as somebody saw it. A repeat with the same Idempotency-Key within 24
    hours answers the first one. Raises Invalid (empty filter, a patch that is none), KeyConflict; Forbidden for an
    operator who may redrive, but not correct.
    """
    _require_filter(new.chosen)
    if new.patch is not None:
        rights.check("job.correct")
        new = replace(new, patch=patching.check(new.patch))
    at = now or clock()
    frozen = at if frozen_at is None else min(frozen_at, at)
    try:
        with transaction.atomic():
            campaign = _repeated(new, scope) or _insert(new, scope, frozen)
    except IntegrityError:  # the same key at the same moment
        repeated = _repeated(new, scope)
        if repeated is None:
            raise
        campaign = repeated
    if campaign.first_matches is None:
        _count_first(campaign)
    return campaign


def _require_filter(chosen: CampaignFilter) -> None:
    if chosen.is_empty:
        raise Invalid.at("/filter", "A filter needs at least one condition.", "required")


def clock() -> datetime:
    """The control database's clock."""
    at: datetime = sql.rows("jobqueue/clock", {}, alias="default")[0][0]
    return at


def _repeated(new: NewCampaign, scope: Scope) -> Campaign | None:
    """The campaign that an earlier call with this key made; a key older than its window is freed."""
    if new.idempotency_key is None:
        return None
    held = Campaign.objects.filter(tenant_id=scope.tenant_id, idempotency_key=new.idempotency_key)
    held.filter(created_at__lte=Now() - KEY_WINDOW).update(idempotency_key=None)
    campaign = held.first()
    if campaign is not None and bytes(campaign.call_hash) != new.call_hash:
        raise KeyConflict
    return campaign


def _insert(new: NewCampaign, scope: Scope, frozen_at: datetime) -> Campaign:
    campaign = Campaign.objects.create(
        tenant_id=scope.tenant_id,
        queue_ids=None if scope.queue_ids is None else list(scope.queue_ids),
        frozen_at=frozen_at,
        note=new.note,
        actor=new.actor,
        rate_per_s=new.rate_per_s,
        canary=new.canary,
        stop_at_failure_share=new.stop_at_failure_share,
        is_canary_over=new.canary == 0,
        patch=new.patch,
        idempotency_key=new.idempotency_key,
        call_hash=new.call_hash,
        **new.chosen.columns(),
    )
    campaign.refresh_from_db()
    chosen = {name: value for name, value in new.chosen.columns().items() if value is not None}
    plan: dict[str, Any] = {
        "rate_per_s": new.rate_per_s,
        "canary": new.canary,
        "stop_at": new.stop_at_failure_share,
    }
    if new.patch is not None:  # which members, not what is in them
        plan["patch"] = sorted(patching.parsed(new.patch))
    _audit(campaign, "create", actor=new.actor, reason=new.note, details={"filter": chosen, **plan})
    return campaign


def _count_first(campaign: Campaign) -> None:
    """Make the parts and keep what they matched; the dispatcher makes those of shards that do not answer."""
    found, _ = parts.ensure(campaign)
    campaign.first_matches = sum(part.matches for part in found.values())
    campaign.is_capped = any(part.is_capped for part in found.values())
    campaign.save(update_fields=["first_matches", "is_capped"])


# Looking


def get(campaign_id: int, *, scope: Scope) -> CampaignView:
    """A campaign and its progress. Raises NotFound, also for what the caller may not see whole."""
    return seen(_visible(Campaign.objects.filter(pk=campaign_id).first(), scope))


def newest(limit: int, *, scope: Scope) -> list[CampaignView]:
    """The newest campaigns of a caller."""
    mine = Q() if scope.tenant_id is None else Q(tenant_id=scope.tenant_id)
    return seen_together(list(Campaign.objects.filter(mine).order_by("-pk")[:limit]))


def seen(campaign: Campaign) -> CampaignView:
    """The campaign with the sums of its parts."""
    return summed(campaign, *parts.progress(campaign.pk))


def seen_together(found: Sequence[Campaign]) -> list[CampaignView]:
    """As `seen`, for a list of campaigns."""
    progress = parts.progress_of([campaign.pk for campaign in found])
    return [summed(campaign, *progress[campaign.pk]) for campaign in found]


def summed(campaign: Campaign, found: Mapping[int, PartView], unknown: Sequence[int]) -> CampaignView:
    """Add up a campaign's parts."""
    skipped: Counter[str] = Counter()
    for part in found.values():
        skipped.update(part.skipped)
    return CampaignView(
        campaign,
        matches=sum(part.matches for part in found.values()),
        is_capped=any(part.is_capped for part in found.values()),
        redriven=sum(part.redriven for part in found.values()),
        skipped=dict(skipped),
        succeeded=sum(part.succeeded for part in found.values()),
        failed=sum(part.failed for part in found.values()),
        ended=sum(part.ended for part in found.values()),
        unknown_shards=unknown,
    )


def _visible(campaign: Campaign | None, scope: Scope) -> Campaign:
    """Raises NotFound: a caller sees the campaigns that touch nothing beyond its own tenant and queues."""
    if campaign is None or scope.tenant_id not in (None, campaign.tenant_id):
        raise NotFound
    if scope.queue_ids is not None and not (
        campaign.queue_ids is not None and set(campaign.queue_ids) <= set(scope.queue_ids)
    ):
        raise NotFound
    return campaign


# Changing


def pause(campaign_id: int, *, scope: Scope, actor: str, reason: str = "") -> CampaignView:
    """Redrive nothing more until `resume`: from this call's answer on. Raises NotFound, AlreadyFinished."""
    return _change(campaign_id, "pause", CampaignState.PAUSED, scope, actor, reason)


def resume(campaign_id: int, *, scope: Scope, actor: str, reason: str = "") -> CampaignView:
    """Go on. A stop's failures are forgiven, and what comes is judged anew. Raises NotFound, AlreadyFinished."""
    return _change(campaign_id, "resume", CampaignState.RUNNING, scope, actor, reason)


def abort(campaign_id: int, *, scope: Scope, actor: str, reason: str = "") -> CampaignView:
    """End it for good; what it redrove goes on. Raises NotFound, AlreadyFinished."""
    return _change(campaign_id, "abort", CampaignState.ABORTED, scope, actor, reason)


_FROM: Final[Mapping[str, tuple[str, ...]]] = {
    "pause": (CampaignState.RUNNING,),
    "resume": (CampaignState.PAUSED, CampaignState.STOPPED),
    "abort": (CampaignState.RUNNING, CampaignState.PAUSED, CampaignState.STOPPED),
}


def verbs_of(state: str) -> list[str]:
    """What people may do with a campaign in that state."""
    return [verb for verb, states in _FROM.items() if state in states]


def _change(
    campaign_id: int, verb: str, state: CampaignState, scope: Scope, actor: str, reason: str
) -> CampaignView:
    with transaction.atomic():
        held = Campaign.objects.select_for_update().filter(pk=campaign_id).first()
        campaign = _visible(held, scope)
        if campaign.state in (CampaignState.ABORTED, CampaignState.DONE):
            raise AlreadyFinished("The campaign has ended.")
        if campaign.state in _FROM[verb]:
            if campaign.state == CampaignState.STOPPED and state == CampaignState.RUNNING:
                view = seen(campaign)
                campaign.judged_succeeded, campaign.judged_failed = view.succeeded, view.failed
            campaign.state = state
            campaign.version += 1
            campaign.save()
            _audit(campaign, verb, actor=actor, reason=reason)
    parts.say(campaign)
    return seen(campaign)


def conclude(campaign: Campaign, state: CampaignState, *, details: Mapping[str, Any]) -> bool:
    """The platform ends or stops a running campaign; False when somebody changed it meanwhile."""
    return _settle(campaign, "done" if state == CampaignState.DONE else "stop", details, state=state)


def end_canary(campaign: Campaign, *, details: Mapping[str, Any]) -> bool:
    """The canary went well enough: let the rest follow."""
    return _settle(campaign, "canary_over", details, is_canary_over=True)


def _settle(campaign: Campaign, verb: str, details: Mapping[str, Any], **values: Any) -> bool:
    with transaction.atomic():
        version = campaign.version + 1
        mine = Campaign.objects.filter(pk=campaign.pk, version=campaign.version, state=CampaignState.RUNNING)
        if not mine.update(version=version, **values):
            return False
        campaign.refresh_from_db()
        _audit(campaign, verb, actor="platform", reason="", details=details)
    with suppress(Unavailable):  # a shard that is away hears of it at the dispatcher's next pass
        parts.say(campaign)
    return True


def _audit(
    campaign: Campaign, verb: str, *, actor: str, reason: str, details: Mapping[str, Any] | None = None
) -> None:
    audit.record(
        f"campaign.{verb}",
        f"campaign:{campaign.pk}",
        actor=actor,
        tenant_id=campaign.tenant_id,
        reason=reason,
        details=details,
    )
