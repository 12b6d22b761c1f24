"""Messages: jobs of the kind `message` under names of their own. A receipt is a lease, told by job and generation.

What is sent, received and acknowledged here is the same row that the jobs face shows, redrives and explains.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from jobqueue import leases
from jobqueue.claiming import ClaimRequest, Lease
from jobqueue.enqueue import DEDUP_NAMESPACE, Accepted, NewJob, enqueue
from jobqueue.ids import format_id, parse_id
from jobqueue.limits import MESSAGE_DELIVERIES_MAX, MESSAGE_EXPIRY_SECONDS, REREADS_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.states import ErrorClass, State
from jobqueue.types import Scope
from jobqueue.whereabouts import Whereabouts, find
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, NotFound, RequestKeyConflict, Unavailable, UnknownOutcome

KIND: Final = "message"

_GENERATION = re.compile(r"[1-9][0-9]{0,9}", re.ASCII).fullmatch
_BODY = re.compile(r'"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"', re.ASCII).fullmatch
_GENERATION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """What is to be sent. Times: at most one of `deliver_at` (aware) and `delay_s`; `expires_in_s` from now on."""

    tenant_id: int
    queue: QueuePolicy
    body: bytes
    priority: int
    deliver_at: datetime | None = None
    delay_s: int | None = None
    expires_in_s: int | None = None
    dedup_key: str | None = None

    def as_job(self) -> NewJob:
        """The job that it is. Without an expiry it has four days from when it can first be delivered."""
        return NewJob(
            tenant_id=self.tenant_id,
            queue=self.queue,
            kind=KIND,
            priority=self.priority,
            payload=f'"{base64.b64encode(self.body).decode()}"',
            request_key=self.dedup_key,
            not_before=self.deliver_at,
            delay_s=self.delay_s,
            expires_in_s=MESSAGE_EXPIRY_SECONDS if self.expires_in_s is None else self.expires_in_s,
            expires_from_due=self.expires_in_s is None,
            max_attempts=MESSAGE_DELIVERIES_MAX,
            namespace=DEDUP_NAMESPACE,
        )


@dataclass(frozen=True, slots=True)
class Sent:
    """A durable message. `replayed`: its dedup_key had named it already, with the same content or other."""

    job_id: int
    replayed: bool = False
    same_content: bool = True

    @property
    def shard(self) -> int:
        return database.number_of(str(database.alias_of(self.job_id)))


def send(message: NewMessage, *, now: datetime | None = None) -> Sent:
    """Store a message. Raises what an enqueue refuses; a dedup_key used before is no refusal."""
    outcome = enqueue([message.as_job()], now=now)[0]
    if isinstance(outcome, RequestKeyConflict):
        return Sent(parse_id(outcome.extra["job_id"]), replayed=True, same_content=False)
    if isinstance(outcome, JobsPlatformError):
        raise outcome
    assert isinstance(outcome, Accepted)
    return Sent(outcome.job_id, replayed=outcome.replayed)


# Receiving


def claim_request(
    queue: QueuePolicy, *, limit: int, lease_s: int | None, max_priority: int | None
) -> ClaimRequest:
    """The claim that a receive is."""
    return ClaimRequest(
        queues=(queue,), kinds=(KIND,), limit=limit, lease_s=lease_s, max_priority=max_priority
    )


class Delivery(NamedTuple):
    """A message in a consumer's hand. `body` is base64."""

    lease: Lease
    body: str
    enqueued_at: datetime

    @property
    def receipt(self) -> str:
        return f"{format_id(self.lease.job_id)}-{self.lease.generation}"


def deliveries(held: Sequence[Lease]) -> list[Delivery]:
    """Leases as messages, most urgent first, in each band in the order in which they were taken.

    Raises UnknownOutcome for a lost database: the leases are made by now.
    """
    times: dict[int, datetime] = {}
    for alias in {str(database.alias_of(lease.job_id)) for lease in held}:
        job_ids = [lease.job_id for lease in held if database.alias_of(lease.job_id) == alias]
        try:
            times.update(sql.rows("jobqueue/message_times", {"job_ids": job_ids}, alias=alias))
        except Unavailable as error:
            raise UnknownOutcome("Messages were leased and could not be read; they come back.") from error
    ordered = sorted(held, key=lambda lease: lease.priority)
    return [
        Delivery(lease, _body(lease.payload), times.get(lease.job_id, lease.claimed_at)) for lease in ordered
    ]


def _body(payload: str | None) -> str:
    """The base64 of a message. A job of this kind that came over the jobs face may hold any JSON: its text then."""
    text = (payload or "").strip()
    if _BODY(text) is not None:
        return text[1:-1]
    return base64.b64encode(text.encode()).decode()


# Acknowledging


class Receipt(NamedTuple):
    job_id: int
    generation: int


def parse_receipt(text: str) -> Receipt | None:
    """`<space>-<sequence>-<generation>`; None for anything that no receipt could be."""
    head, _, generation = text.rpartition("-")
    if _GENERATION(generation) is None or int(generation) > _GENERATION_MAX:
        return None
    try:
        return Receipt(parse_id(head), int(generation))
    except NotFound:
        return None


@dataclass(frozen=True, slots=True)
class Extension:
    """More time for a receipt; None: as long as it was received for."""

    receipt: str
    lease_s: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    receipt: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of receipts, each list in the order asked; `rejected` has why."""

    ack: list[str]
    extend: list[tuple[str, datetime]]
    release: list[str]
    fail: list[str]
    rejected: list[tuple[str, str]]


def settle(
    *,
    ack: Sequence[str] = (),
    extend: Sequence[Extension] = (),
    release: Sequence[str] = (),
    fail: Sequence[Failure] = (),
    scope: Scope,
    now: datetime | None = None,
) -> Settled:
    """Acknowledge, extend, release and fail receipts of `scope.token_id`, in this order; each stands alone.

    Raises Unavailable when one could not be judged: the others stand, and the same call may be repeated.
    """
    desk = _Desk(scope, now)
    acked = desk.run(ack, lambda text, held: leases.Complete(*held), leases.complete)
    more = {one.receipt: one.lease_s for one in extend}
    extended = desk.run(list(more), lambda text, held: leases.Renew(*held, more[text]), leases.renew)
    released = desk.run(release, lambda text, held: leases.Release(*held), leases.release)
    why = {one.receipt: one.message for one in fail}
    failed = desk.run(
        list(why),
        lambda text, held: leases.Fail(*held, ErrorClass.TRANSIENT.value, why[text]),
        leases.fail,
    )
    return Settled(
        [text for text, _ in acked],
        [(text, answer.expires_at) for text, answer in extended],
        [text for text, _ in released],
        [text for text, _ in failed],
        desk.rejected,
    )


Held = tuple[int, int, bytes]  # job id, generation, lease token


class _Desk:
    """One call's receipts: finds their leases, runs the verbs, collects refusals."""

    def __init__(self, scope: Scope, now: datetime | None) -> None:
        self.scope, self.now = scope, now
        self.rejected: list[tuple[str, str]] = []

    def run(
        self,
        texts: Sequence[str],
        make: Callable[[str, Held], Any],
        verb: Callable[..., Sequence[Any]],
    ) -> list[tuple[str, Any]]:
        """Those of `texts` for which the verb worked, with its answers."""
        receipts = {text: parse_receipt(text) for text in dict.fromkeys(texts)}
        self.rejected += [(text, "malformed") for text, receipt in receipts.items() if receipt is None]
        sound = {text: receipt for text, receipt in receipts.items() if receipt is not None}
        held = self._held(sound)
        self._explain({text: receipt for text, receipt in sound.items() if text not in held})
        calls = [(text, make(text, (*sound[text], token))) for text, token in held.items()]
        answers = verb([call for _, call in calls], scope=self.scope, now=self.now) if calls else []
        done = []
        for (text, _), answer in zip(calls, answers, strict=True):
            if isinstance(answer, JobsPlatformError):
                self.rejected.append((text, _code(answer)))
            else:
                done.append((text, answer))
        return done

    def _held(self, receipts: Mapping[str, Receipt]) -> dict[str, bytes]:
        """Lease tokens of those that the caller holds, live or lapsed."""
        found: dict[str, bytes] = {}
        for alias, texts in _by_alias(receipts).items():
            params = {
                "job_ids": [receipts[text].job_id for text in texts],
                "generations": [receipts[text].generation for text in texts],
                "token_id": self.scope.token_id,
                **self.scope.params(),
            }
            rows = sql.rows("jobqueue/message_leases", params, alias=alias)
            found.update((texts[ord_ - 1], bytes(token)) for ord_, token in rows)
        return found

    def _explain(self, receipts: Mapping[str, Receipt]) -> None:
        """Why receipts without a lease of the caller's count for nothing."""
        known = {text for texts in _by_alias(receipts).values() for text in texts}
        self.rejected += [(text, NotFound.code) for text in receipts if text not in known]
        for alias, texts in _by_alias(receipts).items():
            for text, place in self._places([(text, receipts[text]) for text in texts], alias).items():
                self.rejected.append((text, _why(receipts[text], place)))

    def _places(self, asked: list[tuple[str, Receipt]], alias: str) -> dict[str, Whereabouts | None]:
        found: dict[str, Whereabouts | None] = {}
        for _ in range(REREADS_MAX):
            asks = [(receipt.job_id, receipt.generation, b"") for _, receipt in asked]
            places = find(asks, alias=alias, scope=self.scope, now=self.now)
            seen = [(text, places.get(index)) for index, (text, _) in enumerate(asked)]
            found.update(pair for pair in seen if pair[1] is None or pair[1].state is not None)
            asked = [one for one in asked if one[0] not in found]
            if not asked:
                return found
        raise Unavailable("A message is moving; repeat.")


def _by_alias(receipts: Mapping[str, Receipt]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for text, receipt in receipts.items():
        alias = database.alias_of(receipt.job_id)
        if alias is not None:
            grouped.setdefault(alias, []).append(text)
    return grouped


def _why(receipt: Receipt, place: Whereabouts | None) -> str:
    if place is None:
        return "not_found"
    if place.has_ended:
        return "already_finished"
    was_latest = receipt.generation == place.latest_generation
    if was_latest and place.state != State.RUNNING and place.outcome == "lease_lost":
        return "lease_expired"
    return "stale_generation"


def _code(error: JobsPlatformError) -> str:
    """The contract's word for a refusal of a lease's verb."""
    if isinstance(error, Unavailable):
        raise error
    if error.code == "max_runtime":
        return "lease_expired"  # no more time can be had for it
    return "already_finished" if error.code == "result_conflict" else error.code
