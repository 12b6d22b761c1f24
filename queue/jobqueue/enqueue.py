"""Accepts work: durable intents with their identity. The one invariant: a request key names one job for its window.

A job that is accepted is committed. Batches stand item by item; refusals are values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobqueue import admitting, content, lanes, policies
from jobqueue.ids import format_id
from jobqueue.lanes import LaneKey
from jobqueue.policies import QueuePolicy
from jobsplatform import database, sql
from jobsplatform.errors import DeadlineInPast, Invalid, JobsPlatformError, RequestKeyConflict, Unavailable
from tenants.admission import Ask

UNADMITTED: Final = "unadmitted"  # the statement's word for a tenant whose limits must be asked first
REREADS_MAX: Final = 5  # of a key that a concurrent request is taking or a purge is freeing


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """One request for work. `payload` is JSON text exactly as it was sent; times in seconds or aware instants."""

    tenant_id: int
    queue: QueuePolicy
    kind: str
    priority: int
    payload: str | None = None
    payload_ref: str | None = None
    request_key: str | None = None
    not_before: datetime | None = None
    delay_s: int | None = None
    deadline: datetime | None = None
    expires_in_s: int | None = None
    max_attempts: int | None = None
    dependency: str | None = None
    traceparent: str | None = None
    namespace: int = 0

    @property
    def lane(self) -> LaneKey:
        return LaneKey(self.queue.id, self.priority, self.tenant_id, self.kind, self.dependency or "")

    @property
    def ask(self) -> Ask:
        """What limits on intake must know of it."""
        return Ask(self.tenant_id, self.queue.name, self.priority, len((self.payload or "").encode()))

    @property
    def identity(self) -> tuple[int, int, int, str]:
        return (self.tenant_id, self.queue.id, self.namespace, self.request_key or "")


@dataclass(frozen=True, slots=True)
class Stored:
    """What the statement decided about a new job; instants by the database's clock."""

    at: datetime
    due_at: datetime | None
    deadline: datetime | None
    max_attempts: int

    @property
    def is_delayed(self) -> bool:
        return self.due_at is not None and self.due_at > self.at


@dataclass(frozen=True, slots=True)
class Accepted:
    """A durable job; `replayed` when the request key had already named it, else `stored` tells how it was kept."""

    job_id: int
    replayed: bool = False
    stored: Stored | None = None


Outcome = Accepted | JobsPlatformError


def enqueue(
    jobs: Sequence[NewJob], *, now: datetime | None = None, unkeyed_on: str | None = None
) -> list[Outcome]:
    """Store `jobs`, each alone, and answer in their order. Those without a request key go to the shard `unkeyed_on`.

    Refusals: RequestKeyConflict (same key, other content; it names the job), DeadlineInPast, Invalid (due after the
    deadline), DeadlineInfeasible, QuotaExceeded, RateLimited and QueueFull (never for a replay), Unavailable (intake
    paused). Raises UnknownOutcome when the commit's fate is not known.
    """
    fingerprints = [content.fingerprint(job) if job.request_key is not None else None for job in jobs]
    firsts: dict[tuple[int, int, int, str], int] = {}
    for index, job in enumerate(jobs):
        if job.request_key is not None:
            firsts.setdefault(job.identity, index)
    fresh = [i for i, job in enumerate(jobs) if job.request_key is None or firsts[job.identity] == i]
    outcomes: dict[int, Outcome] = {}
    for alias, indexes in _by_shard(jobs, fresh, unkeyed_on).items():
        batch = [(jobs[i], fingerprints[i]) for i in indexes]
        outcomes.update(zip(indexes, _Intake(batch, alias, now).run(), strict=True))
    for index, job in enumerate(jobs):
        if index not in outcomes:
            first = firsts[job.identity]
            outcomes[index] = _repeat(outcomes[first], fingerprints[first] == fingerprints[index])
    return [outcomes[index] for index in range(len(jobs))]


def _by_shard(jobs: Sequence[NewJob], indexes: Sequence[int], unkeyed_on: str | None) -> dict[str, list[int]]:
    """Which shard takes which job: by the key's identity, or any for work without a key."""
    aliases = list(database.aliases().values())
    if len(aliases) == 1:
        return {aliases[0]: list(indexes)} if indexes else {}
    placed: dict[str, list[int]] = {}
    unkeyed = unkeyed_on or random.choice(aliases)
    for index in indexes:
        placed.setdefault(home_of(jobs[index], unkeyed), []).append(index)
    return placed


def home_of(job: NewJob, unkeyed_on: str) -> str:
    """The shard that takes `job`: the one of its key, or `unkeyed_on` for one without."""
    if job.request_key is None:
        return unkeyed_on
    aliases = list(database.aliases().values())
    return aliases[content.slot(job.identity) % len(aliases)]


def _repeat(first: Outcome, same_content: bool) -> Outcome:
    """What a repeat inside one batch gets, given what its first use got."""
    if not isinstance(first, Accepted):
        return first
    return Accepted(first.job_id, replayed=True) if same_content else _conflict(first.job_id)


def _conflict(job_id: int) -> RequestKeyConflict:
    return RequestKeyConflict(job_id=format_id(job_id))


_REFUSALS: Final[Mapping[str, Callable[[], JobsPlatformError]]] = {
    "intake_paused": lambda: Unavailable("The queue takes no new work at the moment.", retry_after=5),
    "deadline_in_past": DeadlineInPast,
    "due_after_deadline": lambda: Invalid.at("/deadline", "The job would be due at or after its deadline."),
}


class _Intake:
    """One shard's unique requests, until each has its answer."""

    def __init__(
        self, batch: Sequence[tuple[NewJob, bytes | None]], alias: str, now: datetime | None
    ) -> None:
        self.batch, self.alias, self.now = batch, alias, now
        self.answers: dict[int, Outcome] = {}
        self.refused: dict[int, JobsPlatformError] = {}  # until a key says that it is a replay
        self.unadmitted: dict[int, datetime | None] = {}  # and the deadline, where the queue checks it
        self.tickets: dict[int, admitting.Ticket] = {}

    def run(self) -> list[Outcome]:
        try:
            self._rounds()
        except JobsPlatformError as error:
            if not self.answers:
                raise
            self.refused.update(dict.fromkeys(self._open(), error))  # the others are stored, and must hear so
        missing = Unavailable("The request key is being taken; repeat.")
        return [self.answers.get(i) or self.refused.get(i, missing) for i in range(len(self.batch))]

    def _rounds(self) -> None:
        for _ in range(REREADS_MAX):
            self._store()
            self._read_back()
            if self.unadmitted:
                self._admit()
            elif self._open():
                _heal(self.batch[i][0] for i in self._open())
            if not self._open():
                break

    def _open(self) -> list[int]:
        return [i for i in range(len(self.batch)) if i not in self.answers and i not in self.refused]

    def _store(self) -> None:
        """Run the statement on what is open. Who is missing in its rows lost its key, or its lane is gone."""
        asked = self._open()
        self.unadmitted = {}
        tickets, self.tickets = self.tickets, {}  # each is good for one statement
        held = {i: ticket.reservation for i, ticket in tickets.items()}
        params = _params([self.batch[i] for i in asked], [held.get(i) for i in asked], self.alias, self.now)
        for ord_, job_id, refusal, *stored in sql.rows(
            "jobqueue/enqueue", params, alias=self.alias, writes=True
        ):
            index = asked[ord_ - 1]
            if refusal is None:
                self.answers[index] = Accepted(job_id, stored=Stored(*stored))
            elif refusal == UNADMITTED:
                self.unadmitted[index] = stored[2]
            else:
                self.refused[index] = _REFUSALS[refusal]()
        admitting.give_back(
            (ticket for i, ticket in tickets.items() if i not in self.answers), alias=self.alias
        )

    def _read_back(self, among: Iterable[int] | None = None) -> None:
        """Answer those whose keys are held by earlier requests."""
        looked_at = range(len(self.batch)) if among is None else among
        lost = [i for i in looked_at if i not in self.answers and self.batch[i][1] is not None]
        if not lost:
            return
        columns = list(zip(*(self.batch[i][0].identity for i in lost), strict=True))
        params = dict(zip(("tenant_ids", "queue_ids", "namespaces", "keys"), map(list, columns), strict=True))
        for ord_, job_id, fingerprint, _ in sql.rows("jobqueue/request_keys", params, alias=self.alias):
            index = lost[ord_ - 1]
            same = bytes(fingerprint) == self.batch[index][1]
            self.answers[index] = Accepted(job_id, replayed=True) if same else _conflict(job_id)

    def _admit(self) -> None:
        """Ask the limits of those that have some; replays were answered before, and are looked for once more."""
        self._refuse_infeasible()
        asking = [i for i in self.unadmitted if i not in self.answers and i not in self.refused]
        asks = [self.batch[i][0].ask for i in asking]
        verdicts = admitting.admit(asks, alias=self.alias, now=self.now) if asks else []
        for index, verdict in zip(asking, verdicts, strict=True):
            if isinstance(verdict, JobsPlatformError):
                self.refused[index] = verdict
            else:
                self.tickets[index] = verdict
        if self.refused:
            self._read_back(self.refused)

    def _refuse_infeasible(self) -> None:
        checked = {i: at for i, at in self.unadmitted.items() if at is not None and i not in self.answers}
        asks = [(self.batch[i][0].ask, at) for i, at in checked.items()]
        refusals = admitting.infeasible(asks, alias=self.alias, now=self.now)
        self.refused.update(
            {i: error for i, error in zip(checked, refusals, strict=True) if error is not None}
        )


def _heal(jobs: Iterable[NewJob]) -> None:
    """A lane or a policy row is missing on a shard (it was replaced, or missed a push): make them anew."""
    lanes.forget()
    for name in {job.queue.name for job in jobs}:
        policies.push_by_name(name)


def _params(
    batch: Sequence[tuple[NewJob, bytes | None]],
    reservations: Sequence[int | None],
    alias: str,
    now: datetime | None,
) -> dict[str, Any]:
    jobs = [job for job, _ in batch]
    lane_of = lanes.lane_ids({job.lane for job in jobs}, alias=alias, now=now)
    columns: dict[str, list[Any]] = {
        "payloads": [job.payload for job in jobs],
        "payload_refs": [job.payload_ref for job in jobs],
        "request_keys": [job.request_key for job in jobs],
        "namespaces": [job.namespace or None for job in jobs],
        "fingerprints": [fingerprint for _, fingerprint in batch],
        "not_befores": [job.not_before for job in jobs],
        "delays_s": [job.delay_s for job in jobs],
        "deadlines": [job.deadline for job in jobs],
        "expiries_s": [job.expires_in_s for job in jobs],
        "max_attempts": [job.max_attempts for job in jobs],
        "traceparents": [job.traceparent for job in jobs],
        "reservations": list(reservations),
    }
    packed = {name: None if all(v is None for v in values) else values for name, values in columns.items()}
    return packed | {"lane_ids": [lane_of[job.lane] for job in jobs], "now": now}
