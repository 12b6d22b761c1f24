"""Brings control's word on slots to the shards, never an older one over a newer."""

from __future__ import annotations

import psycopg

from jobqueue.policy.slots import NOBODY
from jobqueue.shard_models import Ring
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError


def tell(ring: Ring, number: int) -> None:
    """Tell a shard which slots of a ring it owns; returns when no enqueue that holds another is under way there.

    Raises Unavailable, UnknownOutcome.
    """
    alias = database.aliases()[number]
    ready = ring.is_ready
    slots = [slot for slot, owner in enumerate(ring.owners) if ready and owner == number != NOBODY]
    params = {
        "ring_id": ring.pk,
        "version": ring.version,
        "slots": slots,
        "epochs": [ring.epochs[slot] for slot in slots],
    }

    def action(connection: psycopg.Connection[sql.Row]) -> None:
        if sql.send(connection, "jobqueue/slot_hold", params).fetchall():
            sql.send(connection, "jobqueue/slot_lock", params).fetchall()
            sql.send(connection, "jobqueue/slot_push", params)

    sql.short_transaction(alias, action)


def tell_all(ring: Ring) -> list[int]:
    """Tell every shard. Returns those that were not reached."""
    unreached = []
    for number in database.aliases():
        try:
            tell(ring, number)
        except JobsPlatformError:
            unreached.append(number)
    return unreached


def forget_ring(ring_id: int, number: int) -> None:
    """A ring is no more. Raises Unavailable."""
    sql.rows("jobqueue/slot_forget", {"ring_id": ring_id}, alias=database.aliases()[number], writes=True)


def catch_up(ring_id: int, number: int) -> None:
    """Tell a shard a ring as control has it now: it refused what the newest map says. Raises Unavailable."""
    ring = Ring.objects.filter(pk=ring_id).first()
    if ring is not None:
        tell(ring, number)
