"""Accepts work: durable intents with their identity. The one invariant: a request key names one job for its window.

A job that is accepted is committed. Batches stand item by item; refusals are values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from jobqueue import admitting, content, kinds, lanes, policies, wakeup
from jobqueue.ids import format_id
from jobqueue.kinds import Kind
from jobqueue.lanes import LaneKey
from jobqueue.policies import QueuePolicy
from jobsplatform import database, sql
from jobsplatform.errors import DeadlineInPast, Invalid, JobsPlatformError, RequestKeyConflict, Unavailable
from tenants.admission import Ask

UNADMITTED: Final = "unadmitted"  # the statement's word for a tenant whose limits must be asked first
UNCHECKED: Final = "unchecked"  # and for a registered kind whose schema and defaults must be read first
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
    expires_from_due: bool = False  # `expires_in_s` counts from when it can first start
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
    dependency: str | None = None

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
    deadline; a payload that its kind's schema refuses), DeadlineInfeasible, QuotaExceeded (also for too many
    kinds), RateLimited and QueueFull (never for a replay), Unavailable (intake paused). Raises UnknownOutcome when the
    commit's fate is not known.
    """
    fingerprints = [content.fingerprint(job) if job.request_key is not None else None for job in jobs]
    outcomes: dict[int, Outcome] = {}
    asked: Sequence[int] = range(len(jobs))
    while asked:
        firsts: dict[tuple[int, int, int, str], int] = {}
        for index in asked:
            if jobs[index].request_key is not None:
                firsts.setdefault(jobs[index].identity, index)
        fresh = [i for i in asked if jobs[i].request_key is None or firsts[jobs[i].identity] == i]
        for alias, indexes in _by_shard(jobs, fresh, unkeyed_on).items():
            batch = [(jobs[i], fingerprints[i]) for i in indexes]
            outcomes.update(zip(indexes, _Intake(batch, alias, now).run(), strict=True))
        others = []  # what a key's first use was refused, other content need not be
        for index in asked:
            if index in outcomes:
                continue
            first = firsts[jobs[index].identity]
            same = fingerprints[first] == fingerprints[index]
            if _may_differ(outcomes[first]) and not same:
                others.append(index)
            else:
                outcomes[index] = _repeat(outcomes[first], same)
        asked = others
    return [outcomes[index] for index in range(len(jobs))]


def _may_differ(first: Outcome) -> bool:
    """Whether other content under the same key may fare better: the database or the queue refused none of it."""
    return isinstance(first, JobsPlatformError) and first.status < 500


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
    """The database that takes `job`: the one of its key, or `unkeyed_on` for one without."""
    return unkeyed_on if job.request_key is None else alias_of_key(job)


def alias_of_key(job: NewJob) -> str:
    """The database where the request key of `job` belongs."""
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
        self.asked, self.batch, self.alias, self.now = batch, list(batch), alias, now
        self.answers: dict[int, Outcome] = {}
        self.refused: dict[int, JobsPlatformError] = {}  # until a key says that it is a replay
        self.unadmitted: dict[int, datetime | None] = {}  # and the deadline, where the queue checks it
        self.tickets: dict[int, admitting.Ticket] = {}
        self.unchecked: set[int] = set()
        self.checked: dict[int, int] = {}  # by which version of its kind
        self._check_by_memory()

    def run(self) -> list[Outcome]:
        try:
            self._rounds()
        except JobsPlatformError as error:
            if not self.answers:
                raise
            self.refused.update(dict.fromkeys(self._open(), error))  # the others are stored, and must hear so
        wakeup.ready(self.alias, self._made_ready())
        missing = Unavailable("The request key is being taken; repeat.")
        return [self.answers.get(i) or self.refused.get(i, missing) for i in range(len(self.batch))]

    def _made_ready(self) -> set[wakeup.Mark]:
        return {
            wakeup.Mark(job.queue.id, job.priority)
            for i, (job, _) in enumerate(self.batch)
            if isinstance(answer := self.answers.get(i), Accepted)
            and answer.stored is not None
            and not answer.stored.is_delayed
        }

    def _rounds(self) -> None:
        for _ in range(REREADS_MAX):
            self._store()
            self._read_back()
            if self.unchecked or self.unadmitted:
                self._check()
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
        self.unadmitted, self.unchecked = {}, set()
        tickets, self.tickets = self.tickets, {}  # each is good for one statement
        held = {i: ticket.reservation for i, ticket in tickets.items()}
        lane_of = lanes.lane_ids({self.batch[i][0].lane for i in asked}, alias=self.alias)
        asked = self._with_lane(asked, lane_of)
        batch = [self.batch[i] for i in asked]
        params = _params(batch, [held.get(i) for i in asked], lane_of, self.now)
        versions = [self.checked.get(i) for i in asked]
        params["kind_versions"] = versions if self.checked else None
        rows = sql.rows("jobqueue/enqueue", params, alias=self.alias, writes=True) if asked else []
        for ord_, job_id, refusal, *stored in rows:
            index = asked[ord_ - 1]
            if refusal is None:
                self.answers[index] = Accepted(job_id, stored=Stored(*stored))
            elif refusal == UNADMITTED:
                self.unadmitted[index] = stored[2]
            elif refusal == UNCHECKED:
                self.unchecked.add(index)
            else:
                self.refused[index] = _REFUSALS[refusal]()
        admitting.give_back(
            (ticket for i, ticket in tickets.items() if i not in self.answers), alias=self.alias
        )

    def _with_lane(self, asked: list[int], lane_of: Mapping[LaneKey, int]) -> list[int]:
        """Those of `asked` that have a lane; the others are refused, unless their keys say that they are replays."""
        laneless = [i for i in asked if self.batch[i][0].lane not in lane_of]
        self.refused.update((i, lanes.too_many()) for i in laneless)
        self._read_back(laneless)
        return [i for i in asked if self.batch[i][0].lane in lane_of]

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

    def _check_by_memory(self) -> None:
        """Check jobs by what this process remembers of their kinds; whatever fails is for a fresh look."""
        for index, (job, _) in enumerate(self.batch):
            if (refusal := kinds.built_in_refusal(job.kind, job.payload)) is not None:
                self.refused[index] = refusal
                continue
            kind = kinds.remembered(job.kind, alias=self.alias)
            if kind is not None and _refusal(job, kind) is None:
                self._apply(index, kind)

    def _check(self) -> None:
        """Read the kinds of those unchecked, and refuse what their schemas refuse; replays were answered before."""
        if not self.unchecked:
            return
        found = kinds.load({self.batch[i][0].kind for i in self.unchecked}, alias=self.alias)
        for index in self.unchecked - self.answers.keys():
            kind = found.get(self.batch[index][0].kind)
            if kind is None:  # it was registered when this process last looked
                self.checked.pop(index, None)
                self.batch[index] = self.asked[index]
                continue
            refusal = _refusal(self.batch[index][0], kind)
            if refusal is None:
                self._apply(index, kind)
            else:
                self.refused[index] = refusal

    def _apply(self, index: int, kind: Kind) -> None:
        """The job is good by this version of its kind, whose defaults it takes."""
        job, fingerprint = self.asked[index]
        self.checked[index] = kind.version
        if job.dependency is None:
            job = replace(job, dependency=kind.dependency)
        self.batch[index] = (job, fingerprint)

    def _admit(self) -> None:
        """Ask the limits of those that have some; replays were answered before, and are looked for once more."""
        if not self.unadmitted:
            return
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


def _refusal(job: NewJob, kind: Kind) -> Invalid | None:
    """A payload by reference is never fetched, and so never checked."""
    if kind.checker is None or job.payload is None:
        return None
    return kind.checker.refusal(job.payload)


def _heal(jobs: Iterable[NewJob]) -> None:
    """A lane or a policy row is missing on a shard (unused, replaced, or not pushed): make them anew."""
    lanes.forget()
    for name in {job.queue.name for job in jobs}:
        policies.push_by_name(name)


def _params(
    batch: Sequence[tuple[NewJob, bytes | None]],
    reservations: Sequence[int | None],
    lane_of: Mapping[LaneKey, int],
    now: datetime | None,
) -> dict[str, Any]:
    jobs = [job for job, _ in batch]
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
        "expiries_from_due": [job.expires_from_due or None for job in jobs],
        "max_attempts": [job.max_attempts for job in jobs],
        "traceparents": [job.traceparent for job in jobs],
        "reservations": list(reservations),
    }
    packed = {name: None if all(v is None for v in values) else values for name, values in columns.items()}
    return packed | {"lane_ids": [lane_of[job.lane] for job in jobs], "now": now}
