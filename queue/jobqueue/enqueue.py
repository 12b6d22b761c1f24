"""Accepts work: durable intents with their identity. The one invariant: a request key names one job for its window.

A job that is accepted is committed. Batches stand item by item; refusals are values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobqueue import content, lanes, policies
from jobqueue.ids import format_id
from jobqueue.lanes import LaneKey
from jobqueue.policies import QueuePolicy
from jobsplatform import database, sql
from jobsplatform.errors import DeadlineInPast, Invalid, JobsPlatformError, RequestKeyConflict, Unavailable
from tenants import admission

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


def enqueue(jobs: Sequence[NewJob], *, now: datetime | None = None) -> list[Outcome]:
    """Store `jobs`, each alone, and answer in their order.

    Refusals: RequestKeyConflict (same key, other content; it names the job), DeadlineInPast, Invalid (due after the
    deadline), QuotaExceeded (never for a replay), Unavailable (intake paused). Raises UnknownOutcome when the commit's
    fate is not known.
    """
    fingerprints = [content.fingerprint(job) if job.request_key is not None else None for job in jobs]
    firsts: dict[tuple[int, int, int, str], int] = {}
    for index, job in enumerate(jobs):
        if job.request_key is not None:
            firsts.setdefault(job.identity, index)
    fresh = [i for i, job in enumerate(jobs) if job.request_key is None or firsts[job.identity] == i]
    outcomes: dict[int, Outcome] = {}
    for alias, indexes in _by_shard(jobs, fresh).items():
        batch = [(jobs[i], fingerprints[i]) for i in indexes]
        outcomes.update(zip(indexes, _Intake(batch, alias, now).run(), strict=True))
    for index, job in enumerate(jobs):
        if index not in outcomes:
            first = firsts[job.identity]
            outcomes[index] = _repeat(outcomes[first], fingerprints[first] == fingerprints[index])
    return [outcomes[index] for index in range(len(jobs))]


def _by_shard(jobs: Sequence[NewJob], indexes: Sequence[int]) -> dict[str, list[int]]:
    """Which shard takes which job: by the key's identity, or any for work without a key."""
    aliases = list(database.aliases().values())
    if len(aliases) == 1:
        return {aliases[0]: list(indexes)} if indexes else {}
    placed: dict[str, list[int]] = {}
    unkeyed = random.choice(aliases)
    for index in indexes:
        job = jobs[index]
        alias = unkeyed if job.request_key is None else aliases[content.slot(job.identity) % len(aliases)]
        placed.setdefault(alias, []).append(index)
    return placed


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
        self.unadmitted: list[int] = []

    def run(self) -> list[Outcome]:
        is_admitted = False
        for _ in range(REREADS_MAX):
            self._store(is_admitted=is_admitted)
            self._read_back()
            if self.unadmitted:
                self._admit()
                is_admitted = True
            elif self._open():
                _heal(self.batch[i][0] for i in self._open())
            if not self._open():
                break
        missing = Unavailable("The request key is being taken; repeat.")
        return [self.answers.get(i) or self.refused.get(i, missing) for i in range(len(self.batch))]

    def _open(self) -> list[int]:
        return [i for i in range(len(self.batch)) if i not in self.answers and i not in self.refused]

    def _store(self, *, is_admitted: bool) -> None:
        """Run the statement on what is open. Who is missing in its rows lost its key, or its lane is gone."""
        asked = self._open()
        self.unadmitted = []
        params = _params([self.batch[i] for i in asked], self.alias, self.now) | {"is_admitted": is_admitted}
        for ord_, job_id, refusal, *stored in sql.rows(
            "jobqueue/enqueue", params, alias=self.alias, writes=True
        ):
            index = asked[ord_ - 1]
            if refusal is None:
                self.answers[index] = Accepted(job_id, stored=Stored(*stored))
            elif refusal == UNADMITTED:
                self.unadmitted.append(index)
            else:
                self.refused[index] = _REFUSALS[refusal]()

    def _read_back(self) -> None:
        """Answer those whose keys are held by earlier requests."""
        lost = [i for i in range(len(self.batch)) if i not in self.answers and self.batch[i][1] is not None]
        if not lost:
            return
        columns = list(zip(*(self.batch[i][0].identity for i in lost), strict=True))
        params = dict(zip(("tenant_ids", "queue_ids", "namespaces", "keys"), map(list, columns), strict=True))
        for ord_, job_id, fingerprint, _ in sql.rows("jobqueue/request_keys", params, alias=self.alias):
            index = lost[ord_ - 1]
            same = bytes(fingerprint) == self.batch[index][1]
            self.answers[index] = Accepted(job_id, replayed=True) if same else _conflict(job_id)

    def _admit(self) -> None:
        """Ask the limits of tenants that have some; replays were answered before."""
        asking = [i for i in self.unadmitted if i not in self.answers]
        verdicts = _not_admitted([self.batch[i][0] for i in asking], self.alias)
        self.refused.update({asking[position]: error for position, error in verdicts.items()})


def _not_admitted(jobs: Sequence[NewJob], alias: str) -> dict[int, JobsPlatformError]:
    """Position → why the tenant's quotas keep a job out."""
    refused: dict[int, JobsPlatformError] = {}
    queue_ids = {job.queue.name: job.queue.id for job in jobs}
    for tenant_id in {job.tenant_id for job in jobs}:
        positions = [i for i, job in enumerate(jobs) if job.tenant_id == tenant_id]

        def count(queue: str, band: int | None, bound: int, tenant_id: int = tenant_id) -> int:
            queue_id = queue_ids.get(queue)
            params = {"tenant_id": tenant_id, "queue_id": queue_id, "priority": band, "bound": bound}
            return (
                0
                if queue and queue_id is None
                else int(sql.rows("jobqueue/waiting_count", params, alias=alias)[0][0])
            )

        asks = [admission.Ask(jobs[i].queue.name, jobs[i].priority, _size(jobs[i])) for i in positions]
        verdicts = admission.refusals(tenant_id, asks, count)
        refused.update({i: error for i, error in zip(positions, verdicts, strict=True) if error is not None})
    return refused


def _size(job: NewJob) -> int:
    return len((job.payload or "").encode())


def _heal(jobs: Iterable[NewJob]) -> None:
    """A lane or a policy row is missing on a shard (it was replaced, or missed a push): make them anew."""
    lanes.forget()
    for name in {job.queue.name for job in jobs}:
        policies.push_by_name(name)


def _params(batch: Sequence[tuple[NewJob, bytes | None]], alias: str, now: datetime | None) -> dict[str, Any]:
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
    }
    packed = {name: None if all(v is None for v in values) else values for name, values in columns.items()}
    return packed | {"lane_ids": [lane_of[job.lane] for job in jobs], "now": now}
