"""What the holder of a lease may do: renew, complete, fail, release; and cancel, which ends or asks.

    ready ──claim──▶ lease(g) ──complete──▶ result          a call is recognised by (job, generation, token)
      ▲                │ fail ──▶ scheduled | dead | cancelled
      └──── release ───┘ lapses ──reap──▶ ready, generation g spent

The one invariant: only the current generation with a live lease, by the database's clock, changes anything. Each
verb takes a list and answers in its order; refusals are values. The same call that ended an attempt is answered
again (`replayed`), also while a later generation runs.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from jobqueue import giving_back, judging, moves, wakeup
from jobqueue.ids import format_id
from jobqueue.limits import MESSAGE_BYTES_MAX, REREADS_MAX
from jobqueue.states import ErrorClass, State
from jobqueue.types import FLEET, Scope, short_hash, token_hash
from jobqueue.whereabouts import Whereabouts, find
from jobsplatform import database, events, sql
from jobsplatform.errors import (
    AlreadyFinished,
    JobsPlatformError,
    LeaseExpired,
    MaxRuntime,
    NotFound,
    ResultConflict,
    StaleGeneration,
    Unavailable,
    UnknownErrorClass,
    UnknownOutcome,
)
from tenants import audit


@dataclass(frozen=True, slots=True)
class Renew:
    """`lease_s` None: as claimed. `checkpoint` is JSON text that a later attempt will see."""

    job_id: int
    generation: int
    token: bytes
    lease_s: int | None = None
    checkpoint: str | None = None
    started: bool = True


@dataclass(frozen=True, slots=True)
class Renewed:
    expires_at: datetime
    cancel_requested: bool
    give_back: bool = False


@dataclass(frozen=True, slots=True)
class Complete:
    """`result` is JSON text, kept and hashed as it was sent."""

    job_id: int
    generation: int
    token: bytes
    result: str = "null"

    @property
    def result_hash(self) -> bytes:
        return hashlib.sha256(self.result.encode()).digest()

    @property
    def call_hash(self) -> bytes:
        return short_hash("complete", self.result_hash)


@dataclass(frozen=True, slots=True)
class Completed:
    completed_at: datetime
    replayed: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """`message` is cut at 8 KiB and may hold anything but NUL; `retry_after_s` is a floor under the backoff."""

    job_id: int
    generation: int
    token: bytes
    error_class: str
    message: str = ""
    retry_after_s: int | None = None

    @property
    def stored_message(self) -> str:
        clean = self.message.replace("\0", "\ufffd").encode("utf-8", "replace")
        return clean[:MESSAGE_BYTES_MAX].decode("utf-8", "ignore")

    @property
    def call_hash(self) -> bytes:
        return short_hash("fail", self.error_class, self.message, self.retry_after_s)


@dataclass(frozen=True, slots=True)
class Failed:
    state: str
    next_attempt_at: datetime | None
    reason: str | None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """`delay_s` None or 0: runnable at once, at its old place.

    `counts`: whether towards the queue's `max_releases`; None: if the job was started. A handler's wish does, and what
    no handler saw does not.
    """

    job_id: int
    generation: int
    token: bytes
    delay_s: int | None = None
    counts: bool | None = None

    @property
    def call_hash(self) -> bytes:
        return short_hash("release", self.delay_s or None)


@dataclass(frozen=True, slots=True)
class Released:
    state: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    state: str
    cancel_requested: bool


class _Call(Protocol):
    @property
    def job_id(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def token(self) -> bytes: ...


C = TypeVar("C", bound=_Call)
R = TypeVar("R")
Answers = dict[int, Any]  # position among the calls → answer


# Renewing


def renew(
    calls: Sequence[Renew], *, scope: Scope = FLEET, now: datetime | None = None
) -> list[Renewed | JobsPlatformError]:
    """Extend leases to max(old, now + lease_s), never past the queue's max_run_s (then MaxRuntime)."""

    def run(batch: Sequence[Renew], alias: str) -> Answers:
        params = _held(batch) | {
            "lease_seconds": [call.lease_s for call in batch],
            "checkpoints": [call.checkpoint for call in batch],
            "starts": [call.started for call in batch],
        }
        rows = sql.rows("jobqueue/renew", params | scope.params() | {"now": now}, alias=alias, writes=True)
        waiting = giving_back.named([batch[row[0] - 1] for row in rows if not row[3]], alias=alias, now=now)
        return {
            ord_ - 1: MaxRuntime()
            if capped
            else Renewed(expires_at, cancel_requested, batch[ord_ - 1].job_id in waiting)
            for ord_, expires_at, cancel_requested, capped in rows
        }

    once = list(dict.fromkeys(calls))  # the same again would only find it done
    answers = dict(
        zip(once, _settle(once, run, lambda call, place: _refusal(place), scope, now), strict=True)
    )
    return [answers[call] for call in calls]


# Ending an attempt


def complete(
    calls: Sequence[Complete], *, scope: Scope = FLEET, now: datetime | None = None
) -> list[Completed | JobsPlatformError]:
    """Make results durable; at most one completion of a job is ever accepted."""

    def run(batch: Sequence[Complete], alias: str) -> Answers:
        hashes = {call.result: (call.result_hash, call.call_hash) for call in _each_result_once(batch)}
        params = _held(batch) | {
            "call_hashes": [hashes[call.result][1] for call in batch],
            "result_hashes": [hashes[call.result][0] for call in batch],
            "results": [call.result for call in batch],
        }
        rows = sql.rows("jobqueue/complete", params | scope.params() | {"now": now}, alias=alias, writes=True)
        return {ord_ - 1: Completed(at, late=late) for ord_, at, late in rows}

    def explain(call: Complete, place: Whereabouts) -> Completed | JobsPlatformError:
        if place.was_ended_by(call.call_hash):
            return Completed(place.ended_at, replayed=True, late=bool(place.late))
        if place.state == State.SUCCEEDED and place.payload_hash != call.result_hash:
            return ResultConflict()
        return _refusal(place)

    return _settle(calls, run, explain, scope, now)


def _each_result_once(batch: Sequence[Complete]) -> Iterable[Complete]:
    """A call for each result: those of a batch are often all the same."""
    return {call.result: call for call in batch}.values()


def fail(
    calls: Sequence[Fail], *, scope: Scope = FLEET, now: datetime | None = None
) -> list[Failed | JobsPlatformError]:
    """End attempts that failed. Raises UnknownErrorClass before anything is done."""
    for call in calls:
        if call.error_class not in ErrorClass.values:
            raise UnknownErrorClass(f"There is no error class {call.error_class!r}.")

    def run(batch: Sequence[Fail], alias: str) -> Answers:
        params = _held(batch) | {
            "call_hashes": [call.call_hash for call in batch],
            "error_classes": [call.error_class for call in batch],
            "messages": [call.stored_message for call in batch],
            "retry_after_s": [call.retry_after_s for call in batch],
            "jitters": [random.uniform(0.5, 1.0) for _ in batch],
        }
        rows = moves.move("jobqueue/fail", params | scope.params() | {"now": now}, alias=alias)
        judging.judge_failing(alias, now=now)
        return {row[0] - 1: Failed(row[1], row[2], row[3]) for row in rows}

    def explain(call: Fail, place: Whereabouts) -> Failed | JobsPlatformError:
        if place.was_ended_by(call.call_hash):
            return Failed(place.led_to or "", place.next_at, place.reason, replayed=True)
        return _refusal(place)

    return _settle(calls, run, explain, scope, now)


def release(
    calls: Sequence[Release], *, scope: Scope = FLEET, now: datetime | None = None
) -> list[Released | JobsPlatformError]:
    """Give leases back: the attempt is not charged and the job keeps its place."""

    def run(batch: Sequence[Release], alias: str) -> Answers:
        params = _held(batch) | {
            "call_hashes": [call.call_hash for call in batch],
            "delays_s": [call.delay_s for call in batch],
            "counted": [call.counts for call in batch],
        }
        rows = moves.move("jobqueue/release", params | scope.params() | {"now": now}, alias=alias)
        wakeup.lanes_ready(alias, (row[8] for row in rows if row[1] == State.READY))
        return {row[0] - 1: Released(row[1]) for row in rows}

    def explain(call: Release, place: Whereabouts) -> Released | JobsPlatformError:
        if place.was_ended_by(call.call_hash):
            return Released(place.led_to or "", replayed=True)
        return _refusal(place)

    return _settle(calls, run, explain, scope, now)


def cancel(
    job_id: int, *, actor: str, reason: str = "", scope: Scope = FLEET, now: datetime | None = None
) -> Cancelled:
    """End a waiting job, or ask a running one to stop at its next renew; audited in the same transaction.

    Raises NotFound, AlreadyFinished.
    """
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    params = {"job_id": job_id, "now": now, **scope.params()}
    for _ in range(REREADS_MAX):
        state = sql.in_transaction(alias, partial(_cancel, params, alias, actor, reason))
        if state is not None:
            return Cancelled(state, cancel_requested=state == State.RUNNING)
        place = find([(job_id, 0, b"")], alias=alias, scope=scope, now=now).get(0)
        if place is None:
            raise NotFound
        if place.has_ended:
            raise AlreadyFinished
    raise Unavailable("The job is moving; repeat.")


def _cancel(params: dict[str, Any], alias: str, actor: str, reason: str) -> str | None:
    """Where the cancel led the job; None: it stood in no place that can be cancelled."""
    rows = sql.rows("jobqueue/cancel", params, alias=alias)
    if not rows:
        return None
    state: str = rows[0][0]
    audit.record(
        "job.cancel",
        f"job:{format_id(params['job_id'])}",
        actor=actor,
        tenant_id=rows[0][1],
        reason=reason,
        details={"state": state},
        alias=alias,
    )
    return state


# Shared by the verbs


def _held(batch: Sequence[_Call]) -> dict[str, Any]:
    hashes = {
        token: token_hash(token) for token in {call.token for call in batch}
    }  # a claim's leases share one
    return {
        "job_ids": [call.job_id for call in batch],
        "generations": [call.generation for call in batch],
        "token_hashes": [hashes[call.token] for call in batch],
    }


def _settle(
    calls: Sequence[C],
    run: Callable[[Sequence[C], str], Answers],
    explain: Callable[[C, Whereabouts], R | JobsPlatformError],
    scope: Scope,
    now: datetime | None,
) -> list[R | JobsPlatformError]:
    """Run set-wise; what the statement did not touch is explained by a new one over all places."""
    answers: Answers = {}
    for alias, left in _by_shard(calls).items():
        while left:
            indexes, left = _firsts(calls, left)
            for _ in range(REREADS_MAX):
                batch = [calls[i] for i in indexes]
                done = run(batch, alias)
                answers.update({indexes[position]: answer for position, answer in done.items()})
                rest = [index for index in indexes if index not in answers]
                indexes = _explained([(i, calls[i]) for i in rest], explain, answers, alias, scope, now)
                if not indexes:
                    break
            answers.update({index: Unavailable("The job is moving; repeat.") for index in indexes})
            left = _explained([(i, calls[i]) for i in left], explain, answers, alias, scope, now)
    _tell_refused(calls, answers)
    return [answers.get(index, NotFound()) for index in range(len(calls))]


def _tell_refused(calls: Sequence[C], answers: Answers) -> None:
    """Count the calls for leases that were no longer the caller's: what fencing has kept from counting."""
    codes = [one.code for one in answers.values() if isinstance(one, (StaleGeneration, LeaseExpired))]
    for code in set(codes):
        verb = type(calls[0]).__name__.lower()
        events.emit("call_refused", call=verb, outcome=code, count=codes.count(code))


def _explained(
    calls: Iterable[tuple[int, C]],
    explain: Callable[[C, Whereabouts], R | JobsPlatformError],
    answers: Answers,
    alias: str,
    scope: Scope,
    now: datetime | None,
) -> list[int]:
    """Fill in refusals and replays; returns the calls whose jobs are between places, or turned current meanwhile."""
    asked = list(calls)
    if not asked:
        return []
    places = find(
        [(c.job_id, c.generation, token_hash(c.token)) for _, c in asked], alias=alias, scope=scope, now=now
    )
    again, late = [], []
    for position, (index, call) in enumerate(asked):
        place = places.get(position)
        if place is None:
            answers[index] = NotFound()
        elif place.state is None or place.is_live_lease_of(call.generation):
            again.append(index)
        else:
            answers[index] = answer = explain(call, place)
            if isinstance(answer, JobsPlatformError) and place.is_of_its_worker:
                late.append((call, answer.code))
    _note_late(late, alias, now)
    return again


def _note_late(calls: Sequence[tuple[_Call, str]], alias: str, now: datetime | None) -> None:
    """Keep, for the job's history, that its attempts' own workers came too late to end them. Renewals are not told."""
    ending = [(call, code) for call, code in calls if not isinstance(call, Renew)]
    if not ending:
        return
    params = {
        "job_ids": [call.job_id for call, _ in ending],
        "generations": [call.generation for call, _ in ending],
        "verbs": [type(call).__name__.lower() for call, _ in ending],
        "codes": [code for _, code in ending],
        "now": now,
    }
    with suppress(Unavailable, UnknownOutcome):  # the refusal stands without its note
        sql.rows("jobqueue/late_calls", params, alias=alias, writes=True)


def _by_shard(calls: Sequence[_Call]) -> dict[str, list[int]]:
    """Where calls stand in `calls`, by the shard of their jobs; not those of ids that no shard has."""
    spaces: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        spaces.setdefault(database.space_of(call.job_id), []).append(index)
    found: dict[str, list[int]] = {}
    for indexes in spaces.values():
        alias = database.alias_of(calls[indexes[0]].job_id)
        if alias is not None:
            found.setdefault(alias, []).extend(indexes)
    return found


def _firsts(calls: Sequence[_Call], indexes: Sequence[int]) -> tuple[list[int], list[int]]:
    """The first call of each job, and the repeats: in one batch those meet what the first did."""
    firsts: dict[int, int] = {}
    for index in indexes:
        firsts.setdefault(calls[index].job_id, index)
    if len(firsts) == len(indexes):
        return list(indexes), []
    chosen = set(firsts.values())
    return list(firsts.values()), [index for index in indexes if index not in chosen]


def _refusal(place: Whereabouts) -> JobsPlatformError:
    """Why a call that is no replay was refused, in the contract's order."""
    if place.has_ended:
        return AlreadyFinished()
    if place.lapsed_lease_is_callers:
        return LeaseExpired()
    return StaleGeneration()
