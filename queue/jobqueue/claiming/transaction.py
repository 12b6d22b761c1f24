"""One claim of one queue on one shard: its transactions, one a part of the bands, planned under their lock."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import psycopg

from jobqueue import gating
from jobqueue.claiming.details import ask_details
from jobqueue.claiming.types import ClaimRequest, Taken
from jobqueue.ids import TOKEN_BYTES
from jobqueue.limits import CLAIM_PROBES_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.policy.parts import Part
from jobqueue.policy.plan import plan, plan_strict, replay
from jobqueue.policy.types import Chosen, Head, Plan, State, Take, Turn
from jobqueue.types import Scope, short_hash
from jobsplatform import sql
from jobsplatform.errors import KeyConflict, NotReplicated, Unavailable, UnknownOutcome

ROUNDS_MAX: Final = 4  # of one claim transaction: short lanes and walks that met no work need another
HEADS_SPARE: Final = 8  # more lanes than wanted, so that a tenant's other lanes are seen beside its first


# Why a part starts what it starts, but for what a band lends.
_CHOSEN: Final = {Part.STRICT: Chosen.STRICT, Part.FLOOR: Chosen.FLOOR, Part.WEIGHTED: Chosen.SHARE}

Key = tuple[str, int, bytes]  # alias, queue, class of claims
urgent: set[Key] = set()  # the last claim met work in strict bands


def live_leases(
    alias: str, claim_key: str, call_hash: bytes, queue_ids: list[int], scope: Scope, now: datetime | None
) -> list[Taken]:
    """The live leases of an earlier claim with this key. Raises KeyConflict when its arguments were others."""
    params = {"claim_key": claim_key, "token_id": scope.token_id, "queue_ids": queue_ids, "now": now}
    rows = sql.rows("jobqueue/claim_repeat", params, alias=alias)
    if any(bytes(row[0]) != call_hash for row in rows):
        raise KeyConflict("The claim_key was first used with other arguments.")
    return [Taken(*row[1:]) for row in rows]


def key_of(alias: str, queue: QueuePolicy, request: ClaimRequest, scope: Scope) -> Key:
    """Where and of what class a claim is."""
    kinds = None if request.kinds is None else sorted(request.kinds)
    return alias, queue.id, short_hash("class", kinds, request.max_priority, scope.tenant_id)


class Urgent(Exception):
    """Work waits in strict bands, which were taken for empty; nothing was started."""


class Started(NamedTuple):
    """A lease that was made, and the plan's word for it (None: an earlier claim with this key made it)."""

    taken: Taken
    take: Take | None


class QueueClaim:
    """One claim of one queue on one shard: what its transactions share."""

    def __init__(
        self,
        alias: str,
        queue: QueuePolicy,
        request: ClaimRequest,
        call_hash: bytes,
        scope: Scope,
        now: datetime | None,
        own: Iterable[int] = (),
    ) -> None:
        self.alias, self.queue, self.request, self.call_hash = alias, queue, request, call_hash
        self.scope, self.now = scope, now
        self.met_urgent = False  # where others than strict bands were asked for
        self.chosen: Chosen | None = None  # why, by the one who looks at all shards; None: by each plan
        self.own = set(own)  # jobs that this very call has leased: no answer of an earlier one
        self.details: dict[int, sql.Row] = {}  # by job, of leases whose details came with the commit
        # Jobs that other statements hold: passed over, or they would be planned again.
        self.held: set[int] = set()
        self.sent: list[tuple[list[int], bytes]] = []  # jobs and token of each take of the last transaction
        self.policy = queue.drawn()
        last = len(queue.bands) if request.max_priority is None else request.max_priority + 1
        self.bands = range(min(last, len(queue.bands)))
        strict, bulk = self.policy.strict_bands, self.policy.bulk_bands
        self.bands_of = {
            Part.STRICT: [band for band in self.bands if band in strict],
            Part.WEIGHTED: [band for band in self.bands if band not in strict],
            Part.FLOOR: [band for band in self.bands if band in bulk],
        }
        self.key = key_of(alias, queue, request, scope)
        # Strict bands are mostly empty: whether they are is asked in the round trip that locks the others.
        self.looks_ahead = bool(self.bands_of[Part.WEIGHTED]) and self.key not in urgent

    @property
    def claim_class(self) -> bytes:
        return self.key[2]

    def start(self, part: Part, limit: int) -> list[Started]:
        """Up to `limit` leases of one part of the bands, in a transaction of its own. Raises Urgent."""
        bands = self.bands_of[part]
        if not bands or (part is Part.STRICT and self.looks_ahead):
            return []
        if part is Part.FLOOR and not self._has_work(bands):
            return []
        if part is Part.STRICT and self.key not in urgent and not self._has_work(bands):
            return []
        started = self._started(part, bands, limit)
        if part is Part.STRICT:
            (urgent.add if started else urgent.discard)(self.key)
        else:
            self.looks_ahead = False  # strict bands were empty when this claim began
        return started

    def start_band(self, part: Part, band: int, limit: int, chosen: Chosen) -> list[Started]:
        """Up to `limit` leases of a band that was chosen over several shards, and why it was.

        Raises Urgent, once, where strict work has come to this shard meanwhile.
        """
        self.looks_ahead = part is not Part.STRICT and not self.met_urgent
        self.chosen = chosen
        return self._started(part, [band], limit)

    def _started(self, part: Part, bands: Sequence[int], limit: int) -> list[Started]:
        """Up to `limit` leases; another transaction where others took what was planned last.

        The last one takes nothing: it only puts the state right.
        """
        started: list[Started] = []
        mended: Mended | None = None
        for round_ in range(ROUNDS_MAX + 1):
            missing = limit - len(started) if round_ < ROUNDS_MAX else 0
            try:
                begun = sql.short_transaction(
                    self.alias,
                    partial(Transaction.begin, self, part, bands, missing, mended),
                    Transaction.ask_details,
                )
            except NotReplicated:
                raise  # a failover would lose these leases, and give their generations out again
            except UnknownOutcome:
                if found := self._found():
                    return started + found
                raise
            if begun.met_urgent:
                urgent.add(self.key)
                self.met_urgent = True
                raise Urgent
            mended = begun.finish()
            started += begun.started
            self.own.update(one.taken.job_id for one in begun.started)
            self.details |= begun.details
            if mended is None:
                break
        return started

    def _found(self) -> list[Started]:
        """The leases that the last transaction made, though its end was not heard of."""
        jobs = [job_id for ids, _ in self.sent for job_id in ids]
        tokens = [one for _, one in self.sent]
        with suppress(Unavailable):
            rows = sql.rows("jobqueue/claim_found", {"job_ids": jobs, "tokens": tokens}, alias=self.alias)
            return [Started(Taken(*row), None) for row in rows]
        return []

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


class Last(NamedTuple):
    """What was planned last, sent with the commit: its rows are there when that is done."""

    planned: Plan
    state: State  # before it
    cursor: psycopg.Cursor[sql.Row]


class Mended(NamedTuple):
    """A state that was stored although less was taken, and what it should have been."""

    stored: State
    state: State


class Transaction:
    """One claim transaction: a part of one queue's bands, planned under its lock.

    A plan that fills the claim goes out together with the commit and with the question for the leases' details, so
    that such a claim takes two round trips. The state which it stores supposes that all is taken; where a concurrent
    statement held a ticket, the next transaction puts that right if it finds the state as it was left.
    """

    def __init__(
        self,
        claim: QueueClaim,
        connection: psycopg.Connection[sql.Row],
        part: Part,
        bands: Sequence[int],
    ) -> None:
        self.claim, self.connection, self.part, self.bands = claim, connection, part, bands
        claim.sent = []
        self.started: list[Started] = []
        self.details: dict[int, sql.Row] = {}
        self.met_urgent = False
        self._last: Last | None = None
        self._asked: psycopg.Cursor[sql.Row] | None = None
        self.busy: set[int] = set()  # tenants that other claims hold
        self.at: datetime | None = None  # by the database's clock: what ages is judged by it
        self.gate = gating.Gate(connection, (claim.alias, claim.queue.id), claim.now)
        self.key = {
            "queue_id": claim.queue.id,
            "claim_class": claim.claim_class,
            "part": Part.STRICT if part is Part.STRICT else Part.WEIGHTED,  # each has its own lock and state
        }

    @classmethod
    def begin(
        cls,
        claim: QueueClaim,
        part: Part,
        bands: Sequence[int],
        limit: int,
        mended: Mended | None,
        connection: psycopg.Connection[sql.Row],
    ) -> Transaction:
        """Plan up to `limit` leases and send what is to be taken.

        Where work waits ahead of these bands the transaction is committed empty (`met_urgent`): a rollback would
        cost the connection all its prepared statements.
        """
        begun = cls(claim, connection, part, bands)
        begun._run(limit, mended)
        return begun

    def ask_details(self) -> None:
        """Send, behind the commit, the question for what a worker needs of the jobs."""
        if self._last is not None:
            job_ids = [one.taken.job_id for one in self.started]
            job_ids += [take.head.job_id for take in self._last.planned.takes]
            self._asked = ask_details(self.connection, job_ids)

    def finish(self) -> Mended | None:
        """Read what came with the commit; what is to be put right if less was taken than was planned."""
        if self._last is None:
            return None
        planned, state, cursor = self._last
        after = self._settle(planned, state, cursor)
        if self._asked is not None:
            self.details = {row[0]: row[1:] for row in self._asked.fetchall()}
        return None if after is planned.state else Mended(planned.state, after)

    def _run(self, limit: int, mended: Mended | None) -> None:
        sql.by_one_plan(self.connection)
        lock = self._send("claim_lock", self.key | self.claim.asker | {"first": self.claim.ahead})
        repeated = self._repeated()
        if repeated:
            self.started = [Started(row, None) for row in repeated]
            return
        costed = {"is_costed": self.claim.policy.is_costed}
        kept = self._send("claim_state", self.key | costed | {"now": self.claim.now})
        self.gate.shut_known()
        lanes = self._send("claim_heads", self._head_params(limit, None))
        rows = lanes.fetchall()  # the last first: the others are there with it
        if not lock.fetchall()[0][0]:
            self.met_urgent = True
            return
        stored, virtual_s, self.at = kept.fetchall()[0]
        state = State.from_json(stored, virtual_s)
        if mended is not None and stored == json.loads(json.dumps(mended.stored.to_json())):
            state = replace(mended.state, virtual_s=state.virtual_s)
            self._remember(state)
        if limit:
            self._rounds(limit, state, self._whole(rows, limit, state))

    def _rounds(self, limit: int, state: State, lanes: list[sql.Row]) -> None:
        """Take what is planned; another round for what is missing, from where the walk stopped."""
        for round_ in range(ROUNDS_MAX):
            known_busy = len(self.busy)
            missing = limit - len(self.started)
            planned = self._plan(missing, state, lanes)
            if len(planned.takes) == missing:
                self._last = Last(planned, state, self._send_take(planned))
                return
            if planned.takes:
                state = self._settle(planned, state, self._send_take(planned))
                if state is not planned.state:
                    self._remember(state)
            if round_ == ROUNDS_MAX - 1:
                return
            is_new = self.gate.has_shut() or planned.takes or len(self.busy) > known_busy
            moved = state if is_new else self._walked_on(state)
            if moved is None:
                return
            state = moved
            wanted = limit - len(self.started)
            lanes = self._send("claim_heads", self._head_params(wanted, state)).fetchall()
            lanes = self._whole(lanes, wanted, state)

    def _whole(self, lanes: list[sql.Row], wanted: int, state: State) -> list[sql.Row]:
        """The same lanes, and the rest of those of a tenant that a listing's bound cut off: what stands first of it
        may stand in any.
        """
        bound = self._heads_max(wanted)
        if bound == CLAIM_PROBES_MAX:
            return lanes
        for band, after in zip(self.bands, self._after(state), strict=True):
            tenants = [lane[2] for lane in lanes if lane[1] == band]
            if len(tenants) < bound or len(set(tenants)) > wanted:
                continue  # all are listed, or the last one's turn does not come
            last = max(tenants, key=lambda tenant: (tenant < after, tenant))
            params = self._head_params(wanted, state) | {"bands": [band], "after": [last], "tenant_id": last}
            rest = self._send("claim_heads", params | {"heads": CLAIM_PROBES_MAX}).fetchall()
            lanes = [lane for lane in lanes if (lane[1], lane[2]) != (band, last)] + rest
        return lanes

    def _plan(self, limit: int, state: State, lanes: list[sql.Row]) -> Plan:
        left = self.gate.starts_left(lane[-1] for lane in lanes)
        heads = heads_of(lanes, self._rooms(lanes), left)
        if self.claim.held:
            heads = [head for head in heads if head.job_id not in self.claim.held]
        policy = self.claim.policy
        if self.part is Part.STRICT:
            return plan_strict(policy, state, heads, limit)
        return plan(policy, state, heads, limit, now=self.at, bulk_only=self.part is Part.FLOOR)

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

    def _send_take(self, planned: Plan) -> psycopg.Cursor[sql.Row]:
        """Move the tickets, and remember the state after them."""
        params = self._take_params(planned) | self._memory(planned.state)
        self.claim.sent.append((params["job_ids"], params["token"]))
        return self._send("claim_take", params)

    def _settle(self, planned: Plan, state: State, cursor: psycopg.Cursor[sql.Row]) -> State:
        """Note which tickets were really moved; the state after those: `planned.state` itself if all were."""
        got = _leases(cursor.fetchall()[0])
        took = [take for take in planned.takes if take.head.job_id in got]
        self.claim.held.update(take.head.job_id for take in planned.takes if take.head.job_id not in got)
        self.started += [Started(got[take.head.job_id], take) for take in took]
        return planned.state if len(took) == len(planned.takes) else replay(self.claim.policy, state, took)

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
        for band, lanes, first, last in self._send("claim_walked", params).fetchall():
            if lanes >= CLAIM_PROBES_MAX:
                # At the last tenant again: of its lanes some may be left. A tenant alone has fewer than a walk meets.
                tenants[band] = Turn(last - (first != last), 0)
        if tenants == state.tenants:
            return None
        moved = replace(state, tenants=tenants)
        self._remember(moved)
        return moved

    def _repeated(self) -> list[Taken]:
        """Leases that another call with this key made meanwhile."""
        request = self.claim.request
        if request.claim_key is None:
            return []
        queue_ids = [self.claim.queue.id]
        found = live_leases(
            self.claim.alias,
            request.claim_key,
            self.claim.call_hash,
            queue_ids,
            self.claim.scope,
            self.claim.now,
        )
        return [row for row in found if row.job_id not in self.claim.own]

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
            "wanted": wanted + len(self.claim.held),
            "heads": self._heads_max(wanted),
            "probes": CLAIM_PROBES_MAX,
            "is_costed": self.claim.policy.is_costed,
            "now": self.claim.now,
        }

    def _is_lent(self, take: Take) -> bool:
        return self.claim.chosen is None and take.chosen is Chosen.LENT

    def _heads_max(self, wanted: int) -> int:
        return CLAIM_PROBES_MAX if self.claim.policy.is_costed else wanted + HEADS_SPARE

    def _take_params(self, planned: Plan) -> dict[str, Any]:
        takes = planned.takes
        request, is_costed = self.claim.request, self.claim.policy.is_costed
        return {
            "job_ids": [take.head.job_id for take in takes],
            "chosen": self.claim.chosen or _CHOSEN[self.part],
            "lent": Chosen.LENT,
            "lent_ids": [take.head.job_id for take in takes if self._is_lent(take)],
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


def _leases(row: sql.Row) -> dict[int, Taken]:
    """The row of `claim_take`, arrays with one element a lease, by job."""
    job_ids, lane_ids, generations, attempts, claimed_at, expires_at, max_run_at, token, *rest = row
    if job_ids is None:
        return {}
    same = itertools.repeat
    each = (same(token), same(claimed_at), same(expires_at), same(max_run_at), *rest)
    return dict(zip(job_ids, map(Taken, job_ids, lane_ids, generations, attempts, *each), strict=True))
