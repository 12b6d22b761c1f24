"""What calls take and give, as frozen values. Instants are aware datetimes, durations whole seconds (`…_s`).

Members that a newer platform adds are ignored.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypedDict

from jobsplatform_client import tracing

State = Literal["scheduled", "ready", "running", "succeeded", "dead", "cancelled", "expired", "purged"]
ErrorClass = Literal["transient", "overload", "permanent", "uncertain"]


class _Absent:
    """Tells a payload that was not given from the payload `None`, which is JSON's null."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


def new_key() -> str:
    """A key that nobody else has: what makes repeats of one call one call."""
    return uuid.uuid4().hex


def instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def written(at: datetime | None) -> str | None:
    """An instant for the wire. Raises ValueError for a naive one."""
    if at is None:
        return None
    if at.tzinfo is None or at.utcoffset() is None:
        raise ValueError("an instant needs a time zone: datetime.now(UTC), not datetime.now()")
    return at.isoformat()


def given(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that have a value."""
    return {name: value for name, value in members.items() if value is not None}


# Producing


class JobOptions(TypedDict, total=False):
    """Everything about a job besides kind and payload; see `NewJob`."""

    payload_ref: str | None
    queue: str | None
    priority: int | str | None
    request_key: str | None
    not_before: datetime | None
    delay_s: int | None
    deadline: datetime | None
    expires_in_s: int | None
    max_attempts: int | None
    dependency: str | None
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be enqueued: a kind, and a payload (any JSON value) or a `payload_ref`.

    `priority`: a band's index (0 is the most urgent) or name. `request_key`: names this intent, so that asking
    twice makes one job; without one the client makes one up, which covers its own repeats. At most one of
    `not_before` and `delay_s`, and of `deadline` and `expires_in_s`. What is None is the queue's default.
    """

    kind: str
    payload: object = ABSENT
    payload_ref: str | None = field(default=None, kw_only=True)
    queue: str | None = field(default=None, kw_only=True)
    priority: int | str | None = field(default=None, kw_only=True)
    request_key: str | None = field(default=None, kw_only=True)
    not_before: datetime | None = field(default=None, kw_only=True)
    delay_s: int | None = field(default=None, kw_only=True)
    deadline: datetime | None = field(default=None, kw_only=True)
    expires_in_s: int | None = field(default=None, kw_only=True)
    max_attempts: int | None = field(default=None, kw_only=True)
    dependency: str | None = field(default=None, kw_only=True)
    traceparent: str | None = field(default=None, kw_only=True)

    def members(self, request_key: str) -> dict[str, Any]:
        """As the platform reads it."""
        options = {
            "payload_ref": self.payload_ref,
            "queue": self.queue,
            "priority": self.priority,
            "not_before": written(self.not_before),
            "delay_s": self.delay_s,
            "deadline": written(self.deadline),
            "expires_in_s": self.expires_in_s,
            "max_attempts": self.max_attempts,
            "dependency": self.dependency,
            "traceparent": self.traceparent or tracing.current(),
        }
        payload = {} if self.payload is ABSENT else {"payload": self.payload}
        return {"kind": self.kind, **payload, "request_key": request_key, **given(options)}


@dataclass(frozen=True, slots=True)
class Accepted:
    """A durable job. `replayed`: it was there already, made by an earlier call with this key."""

    job_id: str
    request_key: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stands. `members` is the whole document; with `include_payload` it has the payload."""

    job_id: str
    state: State
    tenant: str
    queue: str
    kind: str
    priority: int
    request_key: str | None
    attempts_used: int
    generation: int
    created_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    dead_reason: str | None
    members: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Job:
        return cls(
            job_id=members["job_id"],
            state=members["state"],
            tenant=members["tenant"],
            queue=members["queue"],
            kind=members["kind"],
            priority=members["priority"],
            request_key=members["request_key"],
            attempts_used=members.get("attempts_used", 0),
            generation=members.get("generation", 0),
            created_at=instant(members.get("created_at")),
            finished_at=instant(members.get("finished_at")),
            cancel_requested=members.get("cancel_requested", False),
            dead_reason=members.get("dead_reason"),
            members=members,
        )


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; what is None does not count."""

    queue: str | None = None
    state: State | None = None
    kind: str | None = None
    priority: int | str | None = None
    request_key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def query(self) -> dict[str, str]:
        values = {
            "queue": self.queue,
            "state": self.state,
            "kind": self.kind,
            "priority": None if self.priority is None else str(self.priority),
            "request_key": self.request_key,
            "created_after": written(self.created_after),
            "created_before": written(self.created_before),
        }
        return given(values)


@dataclass(frozen=True, slots=True)
class Result:
    """How a job ended: `outcome` is succeeded, cancelled or expired."""

    outcome: str
    result: Any
    generation: int
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """`state` is cancelled; or running with `cancel_requested`, then its worker is asked to stop."""

    state: State
    cancel_requested: bool = False


# Working


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run one generation of a job until `expires_at`. `lease_token` is a secret of its holder."""

    job_id: str
    generation: int
    attempt: int
    lease_token: str = field(repr=False)
    expires_at: datetime
    queue: str
    kind: str
    tenant: str
    priority: int
    payload: Any = field(repr=False)
    payload_ref: str | None
    operation_id: str
    request_key: str | None
    deadline: datetime | None
    reconcile: bool
    earlier_generations: tuple[int, ...]
    checkpoint: Any = field(repr=False)
    redrive_generation: int
    traceparent: str | None

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Lease:
        plain = {name: members[name] for name in cls.__slots__ if name not in _CONVERTED}
        expires_at = datetime.fromisoformat(members["expires_at"])
        return cls(
            **plain,
            expires_at=expires_at,
            deadline=instant(members["deadline"]),
            earlier_generations=tuple(members["earlier_generations"]),
        )

    def receipt(self) -> dict[str, Any]:
        """What every call about this lease must show."""
        return {"generation": self.generation, "lease_token": self.lease_token}


_CONVERTED: Final = frozenset({"expires_at", "deadline", "earlier_generations"})


@dataclass(frozen=True, slots=True)
class Claimed:
    """The leases of one claim; none is a normal answer. `server_time` is when they were made."""

    leases: tuple[Lease, ...]
    server_time: datetime


@dataclass(frozen=True, slots=True)
class Renewed:
    """`cancel_requested`: stop the job. `give_back`: release it if it has not begun, urgent work waits."""

    expires_at: datetime
    cancel_requested: bool
    give_back: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """The result is committed. `replayed`: an earlier call had done it. `late`: after the job's deadline."""

    completed_at: datetime
    replayed: bool
    late: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """`state` is scheduled, dead (with `reason`) or cancelled."""

    state: State
    next_attempt_at: datetime | None
    reason: str | None
    replayed: bool


@dataclass(frozen=True, slots=True)
class Released:
    state: State
    replayed: bool


# Messages


@dataclass(frozen=True, slots=True)
class Sent:
    """A durable message. `same_content` False: its `dedup_key` already named one with another body."""

    id: str
    dedup_key: str
    replayed: bool
    same_content: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A message in a consumer's hand, until its lease ends; `receipt` acknowledges it. `deliveries` counts from 1."""

    id: str
    priority: int
    receipt: str
    deliveries: int
    body: bytes = field(repr=False)
    enqueued_at: datetime | None
    expires_at: datetime | None

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Message:
        return cls(
            id=members["id"],
            priority=members["priority"],
            receipt=members["receipt"],
            deliveries=members["deliveries"],
            body=base64.b64decode(members["body"]),
            enqueued_at=instant(members["enqueued_at"]),
            expires_at=instant(members["expires_at"]),
        )


@dataclass(frozen=True, slots=True)
class Rejected:
    """A receipt that counted for nothing, and why: `malformed`, `not_found`, `stale_generation`, …"""

    receipt: str
    code: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of receipts.

    `may_be_repeat`: the answer to a first try was lost, so what `rejected` names may be what that try has done.
    """

    acked: Sequence[str] = ()
    extended: Mapping[str, datetime] = field(default_factory=dict)
    released: Sequence[str] = ()
    failed: Sequence[str] = ()
    rejected: Sequence[Rejected] = ()
    may_be_repeat: bool = False
