"""Hands out leases. The one invariant: a job has at most one lease, and each lease has a generation of its own.

A claim is one short READ COMMITTED transaction on one shard and queue, in two or three pipelined round trips:

    1  lock the queue's plan · read its state · list heads            (nothing is taken yet)
       only if tenants with a running limit are among them: hold those · count what they run
       `policy.plan` decides
    2  move the planned tickets from ready to lease · commit · read the payloads

Payloads are read after the commit, outside the lock. A worker that dies between commit and answer holds leases
that nobody knows: they lapse, uncharged if a `claim_key` repeats the claim in time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from jobqueue import gating
from jobqueue.claiming import inversions, over_shards
from jobqueue.claiming.details import with_details
from jobqueue.claiming.transaction import Key, QueueClaim, Urgent, heads_of, key_of, live_leases, urgent
from jobqueue.claiming.turns import QueueTurn, turns_of
from jobqueue.claiming.types import ClaimRequest, Lease, Taken
from jobqueue.policy.floor import Floor
from jobqueue.policy.parts import in_parts
from jobqueue.types import FLEET, Scope, short_hash
from jobsplatform import database, events, sql
from jobsplatform.errors import JobsPlatformError

__all__ = [
    "ClaimRequest",
    "Lease",
    "claim",
    "claim_told",
    "expect_urgent",
    "forget",
    "hash_of_key",
    "heads_of",
]

NOTE_EVERY_S: Final = 15  # what claims ask for is noted that often, not at each
SETTLE_S: Final = 0.05  # more than a claim takes from one queue to the next
CLASSES_MAX: Final = 10_000  # of claims, that a process remembers; then the memory starts anew

_floors: dict[Key, Floor] = {}
_floors_lock = threading.Lock()
_noted: dict[Key, datetime] = {}


def claim(
    request: ClaimRequest, *, scope: Scope = FLEET, now: datetime | None = None, urgent_first: bool = False
) -> list[Lease]:
    """Lease up to `limit` jobs, most urgent first; an empty list is a normal answer.

    Over several queues: their strict bands first, oldest head first, then the queues in turn. A repeat of a
    `claim_key` gives the live leases of the first call. Raises KeyConflict for a key with other arguments.
    `urgent_first`: over several shards strict work comes back as soon as it is leased, and the rest is left to another
    claim, which the caller makes at once.
    """
    details: dict[int, sql.Row] = {}
    call_hash = b"" if request.claim_key is None else hash_of_key(request, scope)
    aliases = database.aliases()
    if len(aliases) == 1:
        alias = next(iter(aliases.values()))
        taken = [(alias, row) for row in _claim_on(alias, request, call_hash, scope, now, details)]
    else:
        ways = over_shards.Ways(_claim_on, _note_of, details)
        taken = over_shards.claim(request, call_hash, scope, now, ways, urgent_first=urgent_first)
    return _leases(taken, details)


def claim_told(request: ClaimRequest, *, scope: Scope = FLEET, now: datetime | None = None) -> list[Lease]:
    """Of several shards: strict work that somebody has told of in the last moment, without a look at anything else.

    Nothing for a claim with a key, and on one shard: a claim finds such work as quickly there.
    """
    if request.claim_key is not None or len(database.aliases()) == 1:
        return []
    details: dict[int, sql.Row] = {}
    ways = over_shards.Ways(_claim_on, _note_of, details)
    return _leases(over_shards.claim_told(request, b"", scope, now, ways), details)


def _leases(taken: over_shards.Found, details: dict[int, sql.Row]) -> list[Lease]:
    """Leases in the order in which they were taken; details that are missing are read once a shard."""
    by_shard: dict[str, list[Taken]] = {}
    for alias, row in taken:
        by_shard.setdefault(alias, []).append(row)
    found = {
        lease.job_id: lease
        for alias, rows in by_shard.items()
        for lease in with_details(rows, alias, details)
    }
    return [found[row.job_id] for _, row in taken if row.job_id in found]


def hash_of_key(request: ClaimRequest, scope: Scope) -> bytes:
    """Kept with the leases of a `claim_key`: a repeat with the same arguments has the same."""
    return short_hash(
        request.call_hash, scope.tenant_id
    )  # a fleet token may act for one tenant, then another


def expect_urgent(request: ClaimRequest, scope: Scope) -> None:
    """Let the next such claim of this process ask strict bands first, not whether there is anything in them.

    A hint: where nothing is there, that claim has asked in vain.
    """
    for alias, queue in itertools.product(database.aliases().values(), request.queues):
        urgent.add(key_of(alias, queue, request, scope))


def _claim_on(
    alias: str,
    request: ClaimRequest,
    call_hash: bytes,
    scope: Scope,
    now: datetime | None,
    details: dict[int, sql.Row],
) -> list[Taken]:
    """One shard's part of a claim. Adds to `details` what came of the jobs with the commits."""
    if repeated := _settled(alias, request, call_hash, scope, now):
        return repeated
    if len(request.queues) == 1:
        return _claim_from(QueueClaim(alias, request.queues[0], request, call_hash, scope, now), details)
    taken: list[Taken] = []
    turns = turns_of(alias, request, scope)
    while turns and len(taken) < request.limit:
        unspent: list[
            QueueTurn
        ] = []  # they gave their whole share, and may have more for what others left over
        for index, turn in enumerate(turns):
            left = max(0, request.limit - len(taken))  # a racing repeat may have made more
            share = left if turn.is_strict else -(-left // (len(turns) - index))
            part = replace(request, limit=share, max_priority=_least(request.max_priority, turn.max_priority))
            try:
                own = (row.job_id for row in taken)
                claim = QueueClaim(alias, turn.queue, part, call_hash, scope, now, own)
                rows = _claim_from(claim, details) if share else []
            except JobsPlatformError:
                if not taken:
                    raise
                return taken  # leases of other queues are made: an error would lose them to their expiry
            taken.extend(rows)
            if share and len(rows) == share and not turn.is_strict:
                unspent.append(turn)
        turns = unspent
    # A racing repeat may have taken all that there was.
    return taken or _earlier(alias, request, call_hash, scope, now)


def _settled(
    alias: str, request: ClaimRequest, call_hash: bytes, scope: Scope, now: datetime | None
) -> list[Taken]:
    """The live leases of another call with this key, which may still be under way: it takes its queues one after the
    other. Who comes too early would hear of a part.
    """
    found = _earlier(alias, request, call_hash, scope, now)
    while len(request.queues) > 1 and 0 < len(found) < request.limit:
        time.sleep(SETTLE_S)
        again = _earlier(alias, request, call_hash, scope, now)
        if len(again) <= len(found):
            return again
        found = again
    return found


def _earlier(
    alias: str, request: ClaimRequest, call_hash: bytes, scope: Scope, now: datetime | None
) -> list[Taken]:
    """The live leases of another call with this key."""
    if request.claim_key is None:
        return []
    return live_leases(alias, request.claim_key, call_hash, [q.id for q in request.queues], scope, now)


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _claim_from(claim: QueueClaim, details: dict[int, sql.Row]) -> list[Taken]:
    """One queue's part of a claim: strict bands under their own lock, then the others; the floor is kept."""
    limit = claim.request.limit
    _make_room()
    _note(claim, claim.key)
    with _of_floor(claim, limit) as account:
        try:
            started, after = in_parts(claim.policy, account.floor, limit, claim.bands, claim.start)
        except Urgent:
            claim.looks_ahead = False
            started, after = in_parts(claim.policy, account.floor, limit, claim.bands, claim.start)
        account.after = after
    details |= claim.details
    aged = sum(one.take is not None and one.take.band != one.take.head.priority for one in started)
    if aged:
        events.emit("aged", queue=claim.queue.name, count=aged)
    return [one.taken for one in started]


class _Account:
    """What one claim reads of the floor's credit, and what it leaves: by default the same."""

    def __init__(self, floor: Floor) -> None:
        self.floor = self.after = floor


@contextmanager
def _of_floor(claim: QueueClaim, limit: int) -> Iterator[_Account]:
    """The floor's credit for one claim. Claims of one class run beside each other in a process: each sees what those
    under way are expected to take, and corrects the credit by what it really took.
    """
    key, policy = claim.key, claim.policy
    bands = set(claim.bands)
    with _floors_lock:
        account = _Account(_floors.get(key, Floor()))
        counts = bool(policy.strict_bands & bands and policy.bulk_bands & bands)
        promised = account.floor
        if counts:
            promised = promised.ahead(policy, limit, is_flooded=key in urgent)
        _floors[key] = promised
    try:
        yield account
    finally:
        with _floors_lock:
            _floors[key] = _floors.get(key, promised).moved(account.after.credit - promised.credit)


def _note_of(claim: QueueClaim) -> None:
    _note(claim, claim.key)


def _note(claim: QueueClaim, key: Key) -> None:
    """Leave word that somebody asks for this kind of work, unless this process has done so a moment ago."""
    at = claim.now or datetime.now(UTC)
    noted = _noted.get(key)
    if noted is not None and abs((at - noted).total_seconds()) < NOTE_EVERY_S:
        return
    params = {"max_priority": claim.request.max_priority, "every_s": NOTE_EVERY_S, "now": claim.now}
    scope = {"queue_id": claim.queue.id, "claim_class": claim.claim_class, **claim.asker}
    sql.rows("jobqueue/claim_note", params | scope, alias=claim.alias)
    _noted[key] = at


def _make_room() -> None:
    """A caller may ask for other kinds with each claim: what is remembered of them is bounded."""
    for memory in (_floors, _noted, urgent):
        if len(memory) >= CLASSES_MAX:
            memory.clear()


def forget() -> None:
    """Drop what this process remembers of its claims."""
    _floors.clear()
    _noted.clear()
    urgent.clear()
    gating.forget()
    over_shards.forget()
    inversions.forget()
