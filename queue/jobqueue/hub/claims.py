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
from jobsplatform.errors import JobsPlatformError, NotFound


def anything(group: Group) -> bool:
    """Whether something stands ready for this group on any shard. Gates are the claim's to judge."""
    params = {
        "queue_ids": list(group.queue_ids),
        "max_priority": group.max_priority,
        "kinds": None if group.kinds is None else list(group.kinds),
        "tenant_id": group.scope.tenant_id,
    }
    found = everywhere.ask(lambda alias: sql.rows("jobqueue/hub_peek", params, alias=alias)[0][0], unknown=[])
    return any(found)


def claim_for(members: Sequence[Waiter], is_urgent: bool) -> list[list[Lease]]:
    """One claim for all `members` of one group; what each gets. `is_urgent`: somebody told of urgent work."""
    chosen = list(members)
    request, scope = _fresh(merged(chosen)), chosen[0].group.scope
    if is_urgent:
        claiming.expect_urgent(request, scope)
    held = claiming.claim(request, scope=scope)
    hands = deal(held, chosen)
    if len({member.request.worker for member in chosen}) > 1:
        _label(chosen, hands)
    return hands


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
    """Write down who runs what. For people only: a failure must not cost the leases."""
    held = [(lease, m.request.worker) for m, hand in zip(members, hands, strict=True) for lease in hand]
    for alias in {database.alias_of(lease.job_id) for lease, _ in held}:
        here = [(lease, worker) for lease, worker in held if database.alias_of(lease.job_id) == alias]
        params = {
            "job_ids": [lease.job_id for lease, _ in here],
            "generations": [lease.generation for lease, _ in here],
            "workers": [worker for _, worker in here],
        }
        with suppress(JobsPlatformError):
            sql.rows("jobqueue/claim_label", params, alias=str(alias))
