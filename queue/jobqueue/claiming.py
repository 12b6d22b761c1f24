"""Hands out leases. The one invariant: a job has at most one lease, and each lease has a generation of its own.

A claim is one short READ COMMITTED transaction on one shard and queue, in two or three pipelined round trips:

    1  lock the queue's plan · read its state · list heads            (nothing is taken yet)
       only if tenants with a running limit are among them: hold those · count what they run
       `policy.plan` decides
    2  move the planned tickets from ready to lease · commit

Payloads are read after the commit, outside the lock. A worker that dies between commit and answer holds leases
that nobody knows: they lapse, uncharged if a `claim_key` repeats the claim in time.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import psycopg

from jobqueue import gating
from jobqueue.ids import TOKEN_BYTES
from jobqueue.limits import CLAIM_PROBES_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.policy.floor import Floor
from jobqueue.policy.parts import Part, in_parts
from jobqueue.policy.plan import plan, plan_strict, replay
from jobqueue.policy.types import Chosen, Head, Plan, State, Take, Turn
from jobqueue.types import FLEET, Scope, short_hash
from jobsplatform import database, events, sql
from jobsplatform.errors import JobsPlatformError, KeyConflict, Unavailable, UnknownOutcome

ROUNDS_MAX: Final = 4  # of one claim transaction: short lanes and walks that met no work need another
HEADS_SPARE: Final = 8  # more lanes than wanted, so that a tenant's other lanes are seen beside its first

NOTE_EVERY_S: Final = 15  # what claims ask for is noted that often, not at each
NOTES_MAX: Final = 10_000

# Why a part starts what it starts, but for what a band lends.
_CHOSEN: Final = {Part.STRICT: Chosen.STRICT, Part.FLOOR: Chosen.FLOOR, Part.WEIGHTED: Chosen.SHARE}

_Key = tuple[str, int, bytes]  # alias, queue, class of claims
_floors: dict[_Key, Floor] = {}
_noted: dict[_Key, datetime] = {}
_urgent: set[_Key] = set()  # the last claim met work in strict bands


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
    crashes: int = 0  # leases of this job that lapsed while it ran: more than none makes it a suspect


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
    crashes: int


def claim(request: ClaimRequest, *, scope: Scope = FLEET, now: datetime | None = None) -> list[Lease]:
    """Lease up to `limit` jobs, most urgent first; an empty list is a normal answer.

    Over several queues: their strict bands first, oldest head first, then the queues in turn. A repeat of a
    `claim_key` gives the live leases of the first call. Raises KeyConflict for a key with other arguments.
    """
    taken: list[tuple[str, _Taken]] = []
    call_hash = b""
    if request.claim_key is not None:  # a fleet token may act for one tenant, then another
        call_hash = short_hash(request.call_hash, scope.tenant_id)
    for alias in database.aliases().values():
        if len(taken) < request.limit:
            wanted = replace(request, limit=request.limit - len(taken)) if taken else request
            rows = _claim_on(alias, wanted, call_hash, scope, now)
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
    if len(request.queues) == 1:
        return _claim_from(alias, request.queues[0], request, call_hash, scope, now)
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
    """One queue's part of a claim: strict bands under their own lock, then the others; the floor is kept."""
    claim = _QueueClaim(alias, queue, request, call_hash, scope, now)
    _note(claim, claim.key)
    floor = _floors.get(claim.key, Floor())
    try:
        started, floor = in_parts(claim.policy, floor, request.limit, claim.bands, claim.start)
    except _Urgent:
        claim.looks_ahead = False
        started, floor = in_parts(claim.policy, floor, request.limit, claim.bands, claim.start)
    _floors[claim.key] = floor
    aged = sum(one.take is not None and one.take.band != one.take.head.priority for one in started)
    if aged:
        events.emit("aged", queue=queue.name, count=aged)
    return [one.taken for one in started]


class _Urgent(Exception):
    """Work waits in strict bands, which were taken for empty; nothing is started."""


def _note(claim: _QueueClaim, key: _Key) -> None:
    """Leave word that somebody asks for this kind of work, unless this process has done so a moment ago."""
    at = claim.now or datetime.now(UTC)
    noted = _noted.get(key)
    if noted is not None and abs((at - noted).total_seconds()) < NOTE_EVERY_S:
        return
    params = {"max_priority": claim.request.max_priority, "every_s": NOTE_EVERY_S, "now": claim.now}
    scope = {"queue_id": claim.queue.id, "claim_class": claim.claim_class, **claim.asker}
    sql.rows("jobqueue/claim_note", params | scope, alias=claim.alias)
    if len(_noted) >= NOTES_MAX:
        _noted.clear()
    _noted[key] = at


class _Started(NamedTuple):
    """A lease that was made, and the plan's word for it (None: an earlier claim with this key made it)."""

    taken: _Taken
    take: Take | None


class _QueueClaim:
    """One claim of one queue on one shard: what its transactions share."""

    def __init__(
        self,
        alias: str,
        queue: QueuePolicy,
        request: ClaimRequest,
        call_hash: bytes,
        scope: Scope,
        now: datetime | None,
    ) -> None:
        self.alias, self.queue, self.request, self.call_hash = alias, queue, request, call_hash
        self.scope, self.now = scope, now
        self.policy = queue.drawn()
        last = len(queue.bands) if request.max_priority is None else request.max_priority + 1
        self.bands = range(min(last, len(queue.bands)))
        strict, bulk = self.policy.strict_bands, self.policy.bulk_bands
        self.bands_of = {
            Part.STRICT: [band for band in self.bands if band in strict],
            Part.WEIGHTED: [band for band in self.bands if band not in strict],
            Part.FLOOR: [band for band in self.bands if band in bulk],
        }
        kinds = None if request.kinds is None else sorted(request.kinds)
        self.claim_class = short_hash("class", kinds, request.max_priority, scope.tenant_id)
        self.key: _Key = (alias, queue.id, self.claim_class)
        # Strict bands are mostly empty: whether they are is asked in the round trip that locks the others.
        self.looks_ahead = bool(self.bands_of[Part.WEIGHTED]) and self.key not in _urgent

    def start(self, part: Part, limit: int) -> list[_Started]:
        """Up to `limit` leases of one part of the bands, in a transaction of its own. Raises _Urgent."""
        bands = self.bands_of[part]
        if not bands or (part is Part.STRICT and self.looks_ahead):
            return []
        if part is Part.FLOOR and not self._has_work(bands):
            return []
        if part is Part.STRICT and self.key not in _urgent and not self._has_work(bands):
            return []
        started = sql.short_transaction(
            self.alias, lambda connection: _Transaction(self, connection, part, bands).run(limit)
        )
        if part is Part.STRICT:
            (_urgent.add if started else _urgent.discard)(self.key)
        else:
            self.looks_ahead = False  # strict bands were empty when this claim began
        return started

    @property
    def ahead(self) -> list[int]:
        """The bands that must be empty before others are locked."""
        return self.bands_of[Part.STRICT] if self.looks_ahead else []

    def _has_work(self, bands: Sequence[int]) -> bool:
        params = {"queue_id": self.queue.id, "first": list(bands), **self.asker}
        return bool(sql.rows("jobqueue/claim_peek", params, alias=self.alias)[0][0])

    @property
    def asker(self) -> dict[str, Any]:
        kinds = None if self.request.kinds is None else list(self.request.kinds)
        return {"kinds": kinds, "tenant_id": self.scope.tenant_id}


class _Transaction:
    """One claim transaction: a part of one queue's bands, planned under its lock."""

    def __init__(
        self,
        claim: _QueueClaim,
        connection: psycopg.Connection[sql.Row],
        part: Part,
        bands: Sequence[int],
    ) -> None:
        self.claim, self.connection, self.part, self.bands = claim, connection, part, bands
        self.busy: set[int] = set()  # tenants that other claims hold
        self.gate = gating.Gate(connection, (claim.alias, claim.queue.id), claim.now)
        self.key = {
            "queue_id": claim.queue.id,
            "claim_class": claim.claim_class,
            "part": Part.STRICT if part is Part.STRICT else Part.WEIGHTED,  # each has its own lock and state
        }

    def run(self, limit: int) -> list[_Started]:
        sql.by_one_plan(self.connection)
        lock = self._send("claim_lock", self.key | self.claim.asker | {"first": self.claim.ahead})
        repeated = self._repeated()
        if repeated:
            return [_Started(row, None) for row in repeated]
        state = self._send("claim_state", self.key | {"is_costed": self.claim.policy.is_costed})
        self.gate.shut_known()
        lanes = self._send("claim_heads", self._head_params(limit, None))
        rows = lanes.fetchall()  # the last first: the others are there with it
        if not lock.fetchall()[0][0]:
            _urgent.add(self.claim.key)
            raise _Urgent
        return self._rounds(limit, State.from_json(*state.fetchall()[0]), rows)

    def _rounds(self, limit: int, state: State, lanes: list[sql.Row]) -> list[_Started]:
        """Take what is planned; another round for what is missing, from where the walk stopped."""
        taken: list[_Started] = []
        for round_ in range(ROUNDS_MAX):
            known_busy = len(self.busy)
            planned = self._plan(limit - len(taken), state, lanes)
            if planned.takes:
                got, state = self._take(planned, state)
                taken.extend(got)
            if len(taken) == limit or round_ == ROUNDS_MAX - 1:
                break
            is_new = self.gate.has_shut() or planned.takes or len(self.busy) > known_busy
            moved = state if is_new else self._walked_on(state)
            if moved is None:
                break
            state = moved
            lanes = self._send("claim_heads", self._head_params(limit - len(taken), state)).fetchall()
        return taken

    def _plan(self, limit: int, state: State, lanes: list[sql.Row]) -> Plan:
        left = self.gate.starts_left(lane[-1] for lane in lanes)
        heads = heads_of(lanes, self._rooms(lanes), left)
        policy = self.claim.policy
        if self.part is Part.STRICT:
            return plan_strict(policy, state, heads, limit)
        now = self.claim.now or datetime.now(UTC) if policy.ageing_s is not None else None
        return plan(policy, state, heads, limit, now=now, bulk_only=self.part is Part.FLOOR)

    def _rooms(self, lanes: list[sql.Row]) -> dict[int, list[Room]]:
        """What running limits leave, by tenant: of those limited here that this transaction could take hold of."""
        limited = {lane[2] for lane in lanes if lane[7]}
        if not limited:
            return {}
        held = self._send("claim_hold", {"tenant_ids": sorted(limited)})
        counted = self._send("claim_rooms", {"queue_id": self.claim.queue.id})
        rooms: dict[int, list[Room]] = {tenant_id: [] for tenant_id in held.fetchall()[0][0]}
        for tenant_id, *room in counted.fetchall():
            rooms[tenant_id].append(Room(*room))
        self.busy |= limited - rooms.keys()
        return rooms

    def _take(self, planned: Plan, state: State) -> tuple[list[_Started], State]:
        """Move the tickets, and remember the state after those that were really moved."""
        cursor = self._send("claim_take", self._take_params(planned) | self._memory(planned.state))
        got = _leases(cursor.fetchall()[0])
        started = [_Started(got[take.head.job_id], take) for take in planned.takes if take.head.job_id in got]
        after = planned.state
        if len(started) < len(planned.takes):
            after = replay(self.claim.policy, state, [take for _, take in started if take is not None])
            self._remember(after)
        return started, after

    def _walked_on(self, state: State) -> State | None:
        """The state after a walk that met only lanes without work; None when it met all there are."""
        if self.claim.scope.tenant_id is not None:
            return None  # it met that tenant's lanes alone
        params = {
            **self.key,
            "bands": list(self.bands),
            "after": self._after(state),
            "probes": CLAIM_PROBES_MAX,
        }
        tenants = dict(state.tenants)
        for band, lanes, last in self._send("claim_walked", params).fetchall():
            if lanes >= CLAIM_PROBES_MAX:
                tenants[band] = Turn(last, 0)
        if tenants == state.tenants:
            return None
        moved = replace(state, tenants=tenants)
        self._remember(moved)
        return moved

    def _repeated(self) -> list[_Taken]:
        request = self.claim.request
        if request.claim_key is None:
            return []
        queue_ids = [self.claim.queue.id]
        return _repeat(
            self.claim.alias,
            request.claim_key,
            self.claim.call_hash,
            queue_ids,
            self.claim.scope,
            self.claim.now,
        )

    def _remember(self, state: State) -> None:
        self._send("claim_remember", self._memory(state))

    def _memory(self, state: State) -> dict[str, Any]:
        version = self.claim.policy.version
        return self.key | {"policy_version": version, "state": json.dumps(state.to_json())}

    def _after(self, state: State) -> list[int]:
        """Where the walk of each band begins: at the tenant whose turn goes on, or behind it."""
        turns = [state.tenants.get(band) for band in self.bands]
        return [0 if turn is None else turn.key + (turn.left == 0) for turn in turns]

    def _send(self, verb: str, params: dict[str, Any]) -> psycopg.Cursor[sql.Row]:
        return sql.send(self.connection, f"jobqueue/{verb}", params)

    def _head_params(self, wanted: int, state: State | None) -> dict[str, Any]:
        return {
            **self.key,
            **self.claim.asker,
            "bands": list(self.bands),
            "after": None if state is None else self._after(state),
            "busy": list(self.busy) or None,
            "wanted": wanted,
            "heads": CLAIM_PROBES_MAX if self.claim.policy.is_costed else wanted + HEADS_SPARE,
            "probes": CLAIM_PROBES_MAX,
            "is_costed": self.claim.policy.is_costed,
            "now": self.claim.now,
        }

    def _take_params(self, planned: Plan) -> dict[str, Any]:
        takes = planned.takes
        request, is_costed = self.claim.request, self.claim.policy.is_costed
        return {
            "job_ids": sql.BigInts([take.head.job_id for take in takes]),
            "chosen": _CHOSEN[self.part],
            "lent": Chosen.LENT,
            "lent_ids": sql.BigInts([take.head.job_id for take in takes if take.chosen is Chosen.LENT]),
            "charges_ms": [take.charged_s * 1_000 for take in takes] if is_costed else None,
            "moves_s": [take.moved_s for take in takes] if is_costed else None,
            "token": secrets.token_bytes(TOKEN_BYTES),
            "token_id": self.claim.scope.token_id,
            "worker": request.worker,
            "claim_key": request.claim_key,
            "claim_hash": None if request.claim_key is None else self.claim.call_hash,
            "lease_s": request.lease_s,
            "prefetch": request.prefetch,
            "now": self.claim.now,
        }


class Room(NamedTuple):
    """A running limit of a tenant: `left` starts more. `band` None: over all bands."""

    limit_id: int
    band: int | None
    left: int


def heads_of(
    lanes: Iterable[sql.Row], rooms: Mapping[int, Sequence[Room]], left: Mapping[int, int]
) -> list[Head]:
    """The jobs in rows of `claim_heads`.

    Not those of limited tenants that are not in `rooms`, nor of limited dependencies that are not in `left`.
    """
    heads: list[Head] = []
    for (
        lane_id,
        band,
        tenant_id,
        kind,
        weight,
        cost_s,
        served_s,
        is_limited,
        job_ids,
        positions,
        stale,
        dependency,
    ) in lanes:
        room: tuple[tuple[int, int], ...] = ()
        if is_limited:
            if tenant_id not in rooms:
                continue
            room = tuple((one.limit_id, one.left) for one in rooms[tenant_id] if one.band in (None, band))
        if dependency is not None:
            if dependency not in left:
                continue
            room += ((-dependency, left[dependency]),)
        for index, (job_id, position) in enumerate(zip(job_ids, positions, strict=True)):
            fresh = index >= stale
            heads.append(
                Head(lane_id, band, tenant_id, kind, room, job_id, position, fresh, weight, cost_s, served_s)
            )
    return heads


def _leases(row: sql.Row) -> dict[int, _Taken]:
    """The row of `claim_take`, arrays with one element a lease, by job."""
    job_ids, lane_ids, generations, attempts, claimed_at, expires_at, max_run_at, token, *rest = row
    if job_ids is None:
        return {}
    same = itertools.repeat
    each = (same(token), same(claimed_at), same(expires_at), same(max_run_at), *rest)
    return dict(zip(job_ids, map(_Taken, job_ids, lane_ids, generations, attempts, *each), strict=True))


def forget() -> None:
    """Drop what this process remembers of its claims."""
    _floors.clear()
    _noted.clear()
    _urgent.clear()
    gating.forget()


def _with_details(taken: Iterable[_Taken], alias: str) -> list[Lease]:
    """Add what stands in the intents: payloads are read outside the claim's lock."""
    by_id = {row.job_id: row for row in taken}
    params = {
        "job_ids": sql.BigInts(by_id),
        "payload_versions": sql.BigInts([row.payload_version for row in by_id.values()]),
        "reconciling": sql.BigInts([row.job_id for row in by_id.values() if row.reconcile]),
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
        crashes=row.crashes,
    )
