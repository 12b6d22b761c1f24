"""Hands out leases. The one invariant: a job has at most one lease, and each lease has a generation of its own.

A claim is one short READ COMMITTED transaction on one shard and queue, in two pipelined round trips:

    1  lock the queue's plan · hold limited tenants · list heads         (nothing is taken yet)
       `policy.plan` decides
    2  move the planned tickets from ready to lease · commit

Payloads are read after the commit, outside the lock. A worker that dies between commit and answer holds leases
that nobody knows: they lapse, uncharged if a `claim_key` repeats the claim in time.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from jobqueue.ids import TOKEN_BYTES
from jobqueue.limits import CLAIM_PROBES_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.policy.plan import BandPolicy, Head, Policy, plan
from jobqueue.types import FLEET, Scope, short_hash
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, KeyConflict, Unavailable, UnknownOutcome

HEADS_MAX: Final = 4_096  # index entries that one claim reads, over all lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker asks for. `kinds` None: any; `max_priority`: the largest band index it wants."""

    queues: tuple[QueuePolicy, ...]
    kinds: tuple[str, ...] | None = None
    limit: int = 1
    lease_s: int | None = None
    max_priority: int | None = None
    worker: str = ""
    claim_key: str | None = None
    prefetch: bool = False

    @property
    def call_hash(self) -> bytes:
        """Recognises a repeat with the same arguments."""
        queues = sorted(queue.id for queue in self.queues)
        kinds = None if self.kinds is None else sorted(self.kinds)
        return short_hash("claim", queues, kinds, self.limit, self.lease_s, self.max_priority, self.prefetch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run one generation of a job until `expires_at`. `payload` and `checkpoint` are JSON texts."""

    job_id: int
    generation: int
    attempt: int
    token: bytes
    claimed_at: datetime
    expires_at: datetime
    max_run_at: datetime
    queue_id: int
    tenant_id: int
    kind: str
    priority: int
    payload: str | None
    payload_ref: str | None
    request_key: str | None
    deadline: datetime | None
    reconcile: bool
    earlier_generations: list[int] = field(default_factory=list)
    checkpoint: str | None
    redrive_generation: int
    traceparent: str | None


class _Taken(NamedTuple):
    """A row of `claim_take` and `claim_repeat`."""

    job_id: int
    lane_id: int
    generation: int
    attempt: int
    token: bytes
    claimed_at: datetime
    expires_at: datetime
    max_run_at: datetime
    deadline: datetime | None
    reconcile: bool
    checkpoint: str | None
    payload_version: int
    redrive_generation: int


def claim(request: ClaimRequest, *, scope: Scope = FLEET, now: datetime | None = None) -> list[Lease]:
    """Lease up to `limit` jobs, most urgent first; an empty list is a normal answer.

    Over several queues: their strict bands first, oldest head first, then the queues in turn. A repeat of a
    `claim_key` gives the live leases of the first call. Raises KeyConflict for a key with other arguments.
    """
    taken: list[tuple[str, _Taken]] = []
    for alias in database.aliases().values():
        if len(taken) < request.limit:
            wanted = replace(request, limit=request.limit - len(taken))
            rows = _claim_on(alias, wanted, request.call_hash, scope, now)
            taken.extend((alias, row) for row in rows)
    leases: list[Lease] = []
    for alias, group in itertools.groupby(taken, key=lambda pair: pair[0]):
        leases.extend(_with_details([row for _, row in group], alias))
    return leases


def _claim_on(
    alias: str, request: ClaimRequest, call_hash: bytes, scope: Scope, now: datetime | None
) -> list[_Taken]:
    if request.claim_key is not None:
        repeated = _repeat(alias, request.claim_key, call_hash, [q.id for q in request.queues], scope, now)
        if repeated:
            return repeated
    taken: list[_Taken] = []
    turns = _turns(alias, request, scope)
    while turns and len(taken) < request.limit:
        unspent: list[_Turn] = []  # they gave their whole share, and may have more for what others left over
        for index, turn in enumerate(turns):
            left = request.limit - len(taken)
            share = left if turn.is_strict else -(-left // (len(turns) - index))
            part = replace(request, limit=share, max_priority=_least(request.max_priority, turn.max_priority))
            try:
                rows = _claim_from(alias, turn.queue, part, call_hash, scope, now) if share else []
            except JobsPlatformError:
                if not taken:
                    raise
                return taken  # leases of other queues are made: an error would lose them to their expiry
            taken.extend(rows)
            if share and len(rows) == share and not turn.is_strict:
                unspent.append(turn)
        # With a key a second round would only meet the leases of the first.
        turns = unspent if request.claim_key is None else []
    return taken


class _Turn(NamedTuple):
    """One queue's turn in a claim over several; a strict turn is for its strict bands alone."""

    queue: QueuePolicy
    max_priority: int | None = None

    @property
    def is_strict(self) -> bool:
        return self.max_priority is not None


def _turns(alias: str, request: ClaimRequest, scope: Scope) -> list[_Turn]:
    """The order in which queues are asked, each with a bound on the band: strict heads by age, then all in turn."""
    if len(request.queues) == 1:
        return [_Turn(request.queues[0])]
    by_id = {queue.id: queue for queue in request.queues}
    params = {
        "queue_ids": list(by_id),
        "max_priority": request.max_priority,
        "kinds": None if request.kinds is None else list(request.kinds),
        "tenant_id": scope.tenant_id,
    }
    heads = sql.rows("jobqueue/claim_queues", params, alias=alias)
    strict = sorted(
        (position, queue_id)
        for queue_id, priority, position in heads
        if priority < len(bands := by_id[queue_id].bands) and bands[priority].strict
    )
    if request.claim_key is not None:  # a fixed order makes two racing repeats meet at the same locks
        return [_Turn(by_id[queue_id]) for queue_id in sorted(by_id)]
    last_strict = {
        q.id: max((i for i, band in enumerate(q.bands) if band.strict), default=-1) for q in request.queues
    }
    turns = [_Turn(by_id[queue_id], last_strict[queue_id]) for _, queue_id in strict]
    rotated = [queue_id for queue_id, *_ in heads]
    start = secrets.randbelow(len(rotated)) if rotated else 0
    return turns + [_Turn(by_id[queue_id]) for queue_id in rotated[start:] + rotated[:start]]


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _repeat(
    alias: str, claim_key: str, call_hash: bytes, queue_ids: list[int], scope: Scope, now: datetime | None
) -> list[_Taken]:
    """The live leases of an earlier claim with this key. Raises KeyConflict when its arguments were others."""
    params = {"claim_key": claim_key, "token_id": scope.token_id, "queue_ids": queue_ids, "now": now}
    rows = sql.rows("jobqueue/claim_repeat", params, alias=alias)
    if any(bytes(row[0]) != call_hash for row in rows):
        raise KeyConflict("The claim_key was first used with other arguments.")
    return [_Taken(*row[1:]) for row in rows]


def _claim_from(
    alias: str,
    queue: QueuePolicy,
    request: ClaimRequest,
    call_hash: bytes,
    scope: Scope,
    now: datetime | None,
) -> list[_Taken]:
    """One claim transaction on one queue."""

    def transaction(connection: psycopg.Connection[sql.Row]) -> list[_Taken]:
        with connection.pipeline():
            connection.execute(sql.BY_INDEX)
            sql.send(connection, "jobqueue/claim_lock", {"queue_id": queue.id})
            if request.claim_key is not None:
                repeated = _repeat(alias, request.claim_key, call_hash, [queue.id], scope, now)
                if repeated:
                    return repeated
            sql.send(connection, "jobqueue/claim_limits", {"queue_id": queue.id})
            heads = sql.send(
                connection, "jobqueue/claim_heads", _head_params(queue, request, scope, now)
            ).fetchall()
            planned = plan(_policy(queue), None, list(itertools.starmap(Head, heads)), request.limit).takes
            if not planned:
                return []
            job_ids = [head.job_id for head in planned]
            cursor = sql.send(
                connection,
                "jobqueue/claim_take",
                _take_params(queue, request, call_hash, scope, now, job_ids),
            )
            order = {job_id: index for index, job_id in enumerate(job_ids)}
            return sorted((_Taken(*row) for row in cursor.fetchall()), key=lambda row: order[row.job_id])

    return sql.short_transaction(alias, transaction)


def _policy(queue: QueuePolicy) -> Policy:
    bands = [BandPolicy(band.name, band.weight, band.strict, band.bulk) for band in queue.bands]
    return Policy(queue.version, bands)


def _head_params(
    queue: QueuePolicy, request: ClaimRequest, scope: Scope, now: datetime | None
) -> dict[str, Any]:
    return {
        "queue_id": queue.id,
        "kinds": None if request.kinds is None else list(request.kinds),
        "max_priority": request.max_priority,
        "tenant_id": scope.tenant_id,
        "depth": request.limit,
        "heads": HEADS_MAX,
        "probes": CLAIM_PROBES_MAX,
        "now": now,
    }


def _take_params(
    queue: QueuePolicy,
    request: ClaimRequest,
    call_hash: bytes,
    scope: Scope,
    now: datetime | None,
    job_ids: Sequence[int],
) -> dict[str, Any]:
    return {
        "job_ids": list(job_ids),
        "queue_id": queue.id,
        "token": secrets.token_bytes(TOKEN_BYTES),
        "token_id": scope.token_id,
        "worker": request.worker,
        "claim_key": request.claim_key,
        "claim_hash": None if request.claim_key is None else call_hash,
        "lease_s": request.lease_s,
        "prefetch": request.prefetch,
        "now": now,
    }


def _with_details(taken: Iterable[_Taken], alias: str) -> list[Lease]:
    """Add what stands in the intents: payloads are read outside the claim's lock."""
    by_id = {row.job_id: row for row in taken}
    params = {
        "job_ids": list(by_id),
        "payload_versions": [row.payload_version for row in by_id.values()],
        "reconciling": [row.job_id for row in by_id.values() if row.reconcile],
    }
    details = {row[0]: row[1:] for row in _read_details(params, alias)}
    return [_lease(row, *details[job_id]) for job_id, row in by_id.items() if job_id in details]


def _read_details(params: dict[str, Any], alias: str) -> list[sql.Row]:
    """Read them, on a new connection if the first is lost. Raises UnknownOutcome: the leases are made by now."""
    try:
        return sql.rows("jobqueue/claim_details", params, alias=alias)
    except Unavailable:
        try:
            return sql.rows("jobqueue/claim_details", params, alias=alias)
        except Unavailable as error:
            raise UnknownOutcome(
                "Leases were made and could not be read; repeat with the same claim_key."
            ) from error


def _lease(
    row: _Taken,
    queue_id: int,
    tenant_id: int,
    kind: str,
    priority: int,
    payload: str | None,
    payload_ref: str | None,
    request_key: str | None,
    traceparent: str | None,
    earlier: list[int] | None,
) -> Lease:
    return Lease(
        job_id=row.job_id,
        generation=row.generation,
        attempt=row.attempt,
        token=bytes(row.token),
        claimed_at=row.claimed_at,
        expires_at=row.expires_at,
        max_run_at=row.max_run_at,
        queue_id=queue_id,
        tenant_id=tenant_id,
        kind=kind,
        priority=priority,
        payload=payload,
        payload_ref=payload_ref,
        request_key=request_key,
        deadline=row.deadline,
        reconcile=row.reconcile,
        earlier_generations=earlier or [],
        checkpoint=row.checkpoint,
        redrive_generation=row.redrive_generation,
        traceparent=traceparent,
    )
