"""Calls of the dead-letter desk about many jobs: groups, and campaigns."""

from __future__ import annotations

import re
from typing import Final

from dlq import campaigns, groups, reads
from dlq.api import wire
from dlq.api.desk import EPOCH, FINGERPRINT_CHARS_MAX, NOTE, numbers_of, place_of, shown
from dlq.campaigns import CampaignFilter, CampaignView, NewCampaign
from dlq.models import Campaign
from dlq.reads import DeadFilter
from jobqueue import policies
from jobqueue.api import names
from jobqueue.api.bodies import QUEUE_CHARS_MAX
from jobqueue.api.calls import queue_in_body, require_queue, scope_of
from jobqueue.states import DeadReason
from jobsplatform import cursors, everywhere
from jobsplatform.errors import NotFound
from jobsplatform.fields import INTEGER_MAX, Boolean, Choice, Instant, Integer, Name, Number, Text
from jobsplatform.http import Call, Endpoint, Reply
from jobsplatform.shapes import ObjectOf, Shape, at_least_one

SAMPLES: Final = 5  # dead letters that a preview shows
_ID: Final = re.compile("[1-9][0-9]{0,18}").fullmatch

CONDITIONS: Final = ("queue", "reason", "kind", "fingerprint", "failed_before")
CAMPAIGN_FILTER: Final = Shape(
    "CampaignFilter",
    Text(name="queue", nullable=True, chars_min=1, chars_max=QUEUE_CHARS_MAX),
    Choice(name="reason", nullable=True, choices=DeadReason.values),
    Name(name="kind", nullable=True),
    Text(name="fingerprint", nullable=True, chars_min=1, chars_max=FINGERPRINT_CHARS_MAX),
    Instant(name="failed_before", nullable=True),
    rules=(at_least_one(*CONDITIONS),),
)
CAMPAIGN: Final = Shape(
    "NewCampaign",
    ObjectOf(name="filter", shape=CAMPAIGN_FILTER, required=True),
    NOTE,
    Integer(name="rate_per_s", low=1, high=campaigns.RATE_MAX, default=campaigns.RATE_DEFAULT),
    Integer(
        name="canary",
        high=campaigns.CANARY_MAX,
        default=campaigns.CANARY_DEFAULT,
        doc="So many go first; the rest follows when it is known how they went.",
    ),
    Number(
        name="stop_at_failure_share",
        low=campaigns.STOP_SHARE_MIN,
        high=1,
        default=campaigns.STOP_SHARE_DEFAULT,
        doc="Of redriven jobs whose end is known, judged at the end of the canary and from 20 on.",
    ),
    Boolean(name="dry_run", default=False, doc="Only say what would be done."),
)
NOTHING: Final = Shape("NoMembers")


class ListGroups(Endpoint):
    """Dead letters by the error that they share, latest first."""

    query = cursors.listing_query("DeadLetterGroups")
    replies = {200: wire.GROUP_PAGE}

    def check(self, call: Call) -> None:
        numbers = cursors.read(call)
        self.before = None if numbers is None else _group_place(numbers)

    def act(self, call: Call) -> Reply:
        limit, unknown = call.query["limit"], list[int]()
        found, last = groups.page(scope=scope_of(call), before=self.before, limit=limit, unknown=unknown)
        tenants = None
        if call.tenant is None:
            tenants = names.slugs({tenant_id for group in found for tenant_id in group.tenant_ids})
        following = None if last is None else cursors.write(call, _group_numbers(last))
        items = [wire.group(group, tenants) for group in found]
        return Reply(200, {"items": items, "next": following, **everywhere.mark(unknown)})


class CreateCampaign(Endpoint):
    """Redrive all that a filter chooses, paced. 201: it has begun. With `dry_run` 200: what it would do."""

    body = CAMPAIGN
    takes_idempotency_key = True
    replies = {201: wire.CAMPAIGN_MADE, 200: wire.CAMPAIGN_PREVIEW}

    def check(self, call: Call) -> None:
        asked = call.body["filter"]
        self.queue = None if asked["queue"] is None else queue_in_body(asked["queue"], "/filter/queue")
        self.chosen = CampaignFilter(
            queue_id=None if self.queue is None else self.queue.id,
            **{name: asked[name] for name in CONDITIONS if name != "queue"},
        )

    def act(self, call: Call) -> Reply:
        if self.queue is not None:
            require_queue(call, self.queue)
        if call.body["dry_run"]:
            return self._preview(call)
        new = NewCampaign(
            chosen=self.chosen,
            note=call.body["note"],
            actor=call.known.actor,
            rate_per_s=call.body["rate_per_s"],
            canary=call.body["canary"],
            stop_at_failure_share=call.body["stop_at_failure_share"],
            idempotency_key=call.idempotency_key,
        )
        campaign = campaigns.create(new, scope=scope_of(call))
        location = {"Location": f"/v1/dlq/campaigns/{campaign.pk}"}
        return Reply(201, wire.campaign_made(campaign, queue_name(campaign)), location)

    def _preview(self, call: Call) -> Reply:
        scope = scope_of(call)
        found = campaigns.preview(self.chosen, scope=scope)
        samples, _ = reads.page(sampled(self.chosen), scope=scope, before=None, limit=SAMPLES)
        return Reply(200, wire.campaign_preview(found, shown(samples)))


class ShowCampaign(Endpoint):
    """A campaign and how far it has come."""

    replies = {200: wire.CAMPAIGN}

    def act(self, call: Call) -> Reply:
        return _shown(campaigns.get(campaign_id(call), scope=scope_of(call)))


class PauseCampaign(Endpoint):
    """Redrive nothing more until it is resumed."""

    body = NOTHING
    replies = {200: wire.CAMPAIGN}

    def act(self, call: Call) -> Reply:
        return _shown(campaigns.pause(campaign_id(call), scope=scope_of(call), actor=call.known.actor))


class ResumeCampaign(Endpoint):
    """Go on with a campaign that was paused, or that stopped at its failure share."""

    body = NOTHING
    replies = {200: wire.CAMPAIGN}

    def act(self, call: Call) -> Reply:
        return _shown(campaigns.resume(campaign_id(call), scope=scope_of(call), actor=call.known.actor))


class AbortCampaign(Endpoint):
    """End a campaign for good; what it redrove goes on."""

    body = NOTHING
    replies = {200: wire.CAMPAIGN}

    def act(self, call: Call) -> Reply:
        return _shown(campaigns.abort(campaign_id(call), scope=scope_of(call), actor=call.known.actor))


def sampled(chosen: CampaignFilter) -> DeadFilter:
    """The list that shows what a campaign's filter chooses."""
    return DeadFilter(
        queue_id=chosen.queue_id,
        reason=chosen.reason,
        kind=chosen.kind,
        fingerprint=chosen.fingerprint,
        failed_before=chosen.failed_before,
    )


def campaign_id(call: Call) -> int:
    """The campaign that a path names. Raises NotFound."""
    text = call.path["campaign_id"]
    if _ID(text) is None or int(text) > INTEGER_MAX:
        raise NotFound
    return int(text)


def queue_name(campaign: Campaign) -> str | None:
    """The queue of a campaign's filter."""
    return None if campaign.queue_id is None else policies.names({campaign.queue_id}).get(campaign.queue_id)


def _shown(view: CampaignView) -> Reply:
    return Reply(200, wire.campaign(view, queue_name(view.campaign)))


# A cursor holds whole numbers: microseconds since the epoch, and a fingerprint's two halves.


def _group_numbers(place: groups.Place) -> tuple[int, ...]:
    at, fingerprint = place
    first, last = fingerprint[:8], fingerprint[8:]
    return (numbers_of((at, 0))[0], int(first, 16), int(last, 16))


def _group_place(numbers: cursors.Place) -> groups.Place:
    at, _ = place_of((numbers[0], 0)) or (EPOCH, 0)
    return at, f"{numbers[1]:08x}{numbers[2]:08x}"
