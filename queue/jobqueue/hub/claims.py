"""What the hub asks of the database: whether there is anything, one claim for many, and leases given back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from django.db import DatabaseError, InterfaceError

from jobqueue import claiming, leases, policies
from jobqueue.claiming import ClaimRequest, Lease
from jobqueue.hub.waiters import Group, Waiter, deal, merged
from jobqueue.types import FLEET, Scope
from jobsplatform import database, events, everywhere, sql
from jobsplatform.errors import JobsPlatformError, KeyConflict, NotFound


def anything(groups: Sequence[Group]) -> set[Group]:
    """Those groups for which something stands ready on any shard, by one statement a shard. Gates are the claim's
    to judge.
    """
    asked = [(ord_, queue_id, group) for ord_, group in enumerate(groups) for queue_id in group.queue_ids]
    params = {
        "ords": [ord_ for ord_, *_ in asked],
        "queue_ids": [queue_id for _, queue_id, _ in asked],
        "max_priorities": [group.max_priority for *_, group in asked],
        "kinds": [None if group.kinds is None else ",".join(group.kinds) for *_, group in asked],
        "tenant_ids": [group.scope.tenant_id for *_, group in asked],
    }
    found = everywhere.ask(lambda alias: sql.rows("jobqueue/hub_peeks", params, alias=alias), unknown=[])
    return {groups[ord_] for rows in found for (ord_,) in rows}


def claim_for(members: Sequence[Waiter], is_urgent: bool) -> list[list[Lease]]:
    """One claim for all `members` of one group; what each gets. `is_urgent`: somebody told of urgent work.

    Who repeats a claim_key that has live leases by now gets those. Leases of a merged claim get their keys a moment
    after its commit: a repeat that comes between the two may lease other jobs under the same key. No job is leased
    twice.
    """
    scope = members[0].group.scope
    hands = _repeats(members, scope) if len(members) > 1 else {}
    others = [member for member in members if member not in hands]
    if others:
        request = _fresh(merged(others))
        held: list[Lease] = []
        if is_urgent:
            claiming.expect_urgent(request, scope)
            held = claiming.claim_told(request, scope=scope)
        dealt = deal(held or claiming.claim(request, scope=scope, urgent_first=True), others)
        _label(others, dealt)
        hands |= zip(others, dealt, strict=True)
    return [hands[member] for member in members]


def is_cut_short(request: ClaimRequest, hands: Sequence[Sequence[Lease]]) -> bool:
    """Whether a claim gave strict work alone, over several shards, and there may be more at once."""
    if len(database.aliases()) == 1:
        return False
    strict = {(queue.id, band) for queue in request.queues for band in queue.scheduling.strict_bands}
    return any((lease.queue_id, lease.priority) in strict for hand in hands for lease in hand)


def is_repeat(request: ClaimRequest, scope: Scope) -> bool:
    """Whether an earlier claim with this one's key has live leases."""
    return bool(_live_keys([request], scope))


def _repeats(members: Sequence[Waiter], scope: Scope) -> dict[Waiter, list[Lease]]:
    """What those get whose keys have live leases by now. Nothing where the key's arguments were others: the next call
    hears of it at once.
    """
    known = _live_keys([member.request for member in members], scope)
    hands: dict[Waiter, list[Lease]] = {}
    for member in members:
        if member.request.claim_key in known:
            try:
                hands[member] = claiming.claim(_fresh(member.request), scope=scope)
            except KeyConflict:
                hands[member] = []
    return hands


def _live_keys(requests: Sequence[ClaimRequest], scope: Scope) -> set[str]:
    """Which of their keys have live leases."""
    keys = sorted({request.claim_key for request in requests if request.claim_key is not None})
    if not keys:
        return set()
    params = {
        "claim_keys": keys,
        "token_id": scope.token_id,
        "queue_ids": [queue.id for queue in requests[0].queues],
        "now": None,
    }
    found = everywhere.ask(lambda alias: sql.rows("jobqueue/claim_keys", params, alias=alias), unknown=[])
    return {row[0] for rows in found for row in rows}


def give_back(held: Sequence[Lease], scope: Scope = FLEET) -> None:
    """Release leases of which no consumer has heard; what cannot be released lapses."""
    if not held:
        return
    calls = [leases.Release(lease.job_id, lease.generation, lease.token, counts=False) for lease in held]
    with suppress(JobsPlatformError, DatabaseError, InterfaceError):
        leases.release(calls, scope=scope)
        events.emit("given_back", count=len(calls))


def _fresh(request: ClaimRequest) -> ClaimRequest:
    """The request with its queues as they are now; a waiter may have brought them 20 s ago."""
    queues = []
    for queue in request.queues:
        try:
            queues.append(policies.by_name(queue.name))
        except NotFound:
            continue
        except (DatabaseError, InterfaceError):  # the control database is away: that stops no claim
            queues.append(queue)
    return replace(request, queues=tuple(queues))


def _label(members: Sequence[Waiter], hands: Sequence[Sequence[Lease]]) -> None:
    """Write down who runs what, and by which key it is found. A failure must not cost the leases."""
    same_worker = len({member.request.worker for member in members}) == 1
    if len(members) == 1 or (same_worker and all(member.request.claim_key is None for member in members)):
        return  # the claim itself wrote it
    scope = members[0].group.scope
    held = [(lease, m.request) for m, hand in zip(members, hands, strict=True) for lease in hand]
    for alias in {database.alias_of(lease.job_id) for lease, _ in held}:
        here = [(lease, asked) for lease, asked in held if database.alias_of(lease.job_id) == alias]
        params = {
            "job_ids": [lease.job_id for lease, _ in here],
            "generations": [lease.generation for lease, _ in here],
            "workers": [asked.worker for _, asked in here],
            "claim_keys": [asked.claim_key for _, asked in here],
            "claim_hashes": [
                None if asked.claim_key is None else claiming.hash_of_key(asked, scope) for _, asked in here
            ],
        }
        with suppress(JobsPlatformError):
            sql.rows("jobqueue/claim_label", params, alias=str(alias))
