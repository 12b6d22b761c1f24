"""Accepts work: durable intents with their identity. The one invariant: a request key names one job for its window.

A job that is accepted is committed. Batches stand item by item; refusals are values.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
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
class Accepted:
    """A durable job; `replayed` when the request key had already named it."""

    job_id: int
    replayed: bool = False


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
        outcomes.update(zip(indexes, _insert(batch, alias, now), strict=True))
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


_REFUSALS = {
    "intake_paused": lambda: Unavailable("The queue takes no new work at the moment.", retry_after=5),
    "deadline_in_past": DeadlineInPast,
    "due_after_deadline": lambda: Invalid.at("/deadline", "The job would be due at or after its deadline."),
}


def _insert(batch: Sequence[tuple[NewJob, bytes | None]], alias: str, now: datetime | None) -> list[Outcome]:
    """Insert unique requests on one shard; those that lost their key are read back in a new statement."""
    outcomes: dict[int, Outcome] = {}
    refused: dict[int, JobsPlatformError] = {}
    pending = list(range(len(batch)))
    is_admitted = False
    for _ in range(REREADS_MAX):
        verdicts = _store([batch[i] for i in pending], alias, now, is_admitted=is_admitted)
        outcomes.update({pending[p]: verdict for p, verdict in verdicts.items() if isinstance(verdict, Accepted)})
        refused.update({pending[p]: verdict for p, verdict in verdicts.items() if isinstance(verdict, JobsPlatformError)})
        outcomes.update(_read_back(batch, [i for i in range(len(batch)) if i not in outcomes], alias))
        pending = [i for i in pending if i not in outcomes and i not in refused]
        if not pending:
            break
        if UNADMITTED in verdicts.values():
            refused.update({pending[p]: error for p, error in _not_admitted([batch[i][0] for i in pending], alias).items()})
            pending, is_admitted = [i for i in pending if i not in refused], True
        else:
            _heal(batch[i][0] for i in pending)
    missing = Unavailable("The request key is being taken; repeat.")
    return [outcomes.get(i) or refused.get(i, missing) for i in range(len(batch))]


def _store(
    batch: Sequence[tuple[NewJob, bytes | None]], alias: str, now: datetime | None, *, is_admitted: bool
) -> dict[int, Outcome | str]:
    """Run the statement: position → accepted, refused, or UNADMITTED; who is missing lost its key."""
    if not batch:
        return {}
    params = _params(batch, alias, now) | {"is_admitted": is_admitted}
    return {
        ord_ - 1: Accepted(job_id) if refusal is None else _REFUSALS[refusal]() if refusal in _REFUSALS else refusal
        for ord_, job_id, refusal in sql.rows("jobqueue/enqueue", params, alias=alias, writes=True)
    }


def _not_admitted(jobs: Sequence[NewJob], alias: str) -> dict[int, JobsPlatformError]:
    """Position → why the tenant's quotas keep a job out."""
    refused: dict[int, JobsPlatformError] = {}
    queue_ids = {job.queue.name: job.queue.id for job in jobs}
    for tenant_id in {job.tenant_id for job in jobs}:
        positions = [i for i, job in enumerate(jobs) if job.tenant_id == tenant_id]

        def count(queue: str, band: int | None, bound: int, tenant_id: int = tenant_id) -> int:
            queue_id = queue_ids.get(queue)
            params = {"tenant_id": tenant_id, "queue_id": queue_id, "priority": band, "bound": bound}
            return 0 if queue and queue_id is None else int(sql.rows("jobqueue/waiting_count", params, alias=alias)[0][0])

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


def _read_back(batch: Sequence[tuple[NewJob, bytes | None]], lost: Sequence[int], alias: str) -> dict[int, Outcome]:
    """The jobs that hold the keys of these requests, if their keys are held."""
    keyed = [i for i in lost if batch[i][0].request_key is not None]
    if not keyed:
        return {}
    columns = list(zip(*(batch[i][0].identity for i in keyed), strict=True))
    params = dict(zip(("tenant_ids", "queue_ids", "namespaces", "keys"), map(list, columns), strict=True))
    found: dict[int, Outcome] = {}
    for ord_, job_id, fingerprint, _ in sql.rows("jobqueue/request_keys", params, alias=alias):
        index = keyed[ord_ - 1]
        same = bytes(fingerprint) == batch[index][1]
        found[index] = Accepted(job_id, replayed=True) if same else _conflict(job_id)
    return found


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
