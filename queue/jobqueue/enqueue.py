"""Accepts work: durable intents with their identity. The one invariant: a request key names one job for its window.

A job that is accepted is committed. Batches stand item by item; refusals are values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from django.db import DatabaseError

from jobqueue import admitting, content, kinds, lanes, policies, wakeup
from jobqueue.ids import format_id
from jobqueue.kinds import Kind
from jobqueue.lanes import LaneKey
from jobqueue.policies import QueuePolicy
from jobqueue.shards import map as shard_map
from jobqueue.shards import telling
from jobqueue.shards.map import Place, ShardMap
from jobsplatform import database, reach, sql
from jobsplatform.errors import (
    DeadlineInPast,
    Invalid,
    JobsPlatformError,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    RequestKeyConflict,
    Unavailable,
    UnknownOutcome,
)
from tenants.admission import Ask

UNADMITTED: Final = "unadmitted"  # the statement's word for a tenant whose limits must be asked first
UNCHECKED: Final = "unchecked"  # and for a registered kind whose schema and defaults must be read first
MISPLACED: Final = "misplaced"  # and for a slot that the shard does not own under this epoch
DEDUP_NAMESPACE: Final = 1  # of messages' keys, which are free again once their window is over
PLAIN_LANES_MAX: Final = 32  # of one call; each of its jobs looks through all of them
ROUTES_MAX: Final = 4  # ways that one enqueue tries: maps grow old, shards fall
REREADS_MAX: Final = 5  # of a key that a concurrent request is taking or a purge is freeing


# Not frozen: with so many fields that takes three times as long to make. Nobody changes one.
@dataclass(slots=True, kw_only=True)
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
    def is_untimed(self) -> bool:
        """Whether it may start at once and has no end."""
        return (
            self.not_before is None
            and self.delay_s is None
            and self.deadline is None
            and self.expires_in_s is None
        )

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
    jobs: Sequence[NewJob], *, now: datetime | None = None, within: str | None = None
) -> list[Outcome]:
    """Store `jobs`, each alone, and answer in their order.

    `within` is the shard on which the caller has a transaction open: a job that belongs to another is refused then
    (Unavailable). Refusals: RequestKeyConflict (same key, other content; it names the job), DeadlineInPast, Invalid
    (due after the deadline; a payload that its kind's schema refuses), DeadlineInfeasible, QuotaExceeded (also for too
    many kinds), RateLimited and QueueFull (never for a replay), Unavailable (intake paused; the key's shard is away or
    its slot moves), UnknownOutcome. Raises the last two when there was one shard to ask and it gave no answer.
    """
    if len(jobs) == 1 and (accepted := _at_once(jobs[0], now, within)) is not None:
        return [accepted]
    fingerprints = [content.fingerprint(job) if job.request_key is not None else None for job in jobs]
    if not any(fingerprints):
        answers = _Routing(jobs, fingerprints, now, within).run(range(len(jobs)))
        return [answers[index] for index in range(len(jobs))]
    outcomes: dict[int, Outcome] = {}
    asked: Sequence[int] = range(len(jobs))
    while asked:
        firsts: dict[tuple[int, int, int, str], int] = {}
        for index in asked:
            if jobs[index].request_key is not None:
                firsts.setdefault(jobs[index].identity, index)
        fresh = [i for i in asked if jobs[i].request_key is None or firsts[jobs[i].identity] == i]
        outcomes.update(_Routing(jobs, fingerprints, now, within).run(fresh))
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


def _at_once(job: NewJob, now: datetime | None, within: str | None) -> Accepted | None:
    """Store the one job of a call where all that it needs is known: its lane, on the only shard.

    None: something bars it, or must be looked at first. Raises Unavailable and UnknownOutcome.
    """
    number = shard_map.current().alone
    if number is None or job.request_key is not None or not job.is_untimed:
        return None
    alias = database.aliases()[number]
    lane_id = lanes.open_lane(job.lane, alias=alias)
    if lane_id is None or within not in (None, alias) or not kinds.is_unchecked(job.kind, alias=alias):
        return None
    params = {
        "lane_id": lane_id,
        "payload": job.payload,
        "payload_ref": job.payload_ref,
        "max_attempts": job.max_attempts,
        "traceparent": job.traceparent,
        "now": now,
    }
    rows = sql.rows("jobqueue/enqueue_one", params, alias=alias, writes=True)
    if not rows:
        lanes.bar([lane_id], alias=alias)
        return None
    [(job_id, at, max_attempts)] = rows
    wakeup.ready(alias, [wakeup.Mark(job.queue.id, job.priority)])
    return Accepted(job_id, stored=Stored(at, None, None, max_attempts, job.dependency))


def _may_differ(first: Outcome) -> bool:
    """Whether other content under the same key may fare better: the database or the queue refused none of it."""
    return isinstance(first, JobsPlatformError) and first.status < 500


def home_of(job: NewJob, preferred: str) -> str:
    """The database that takes `job`: the one of its key; without a key the preferred one, if the queue may use it.

    Raises Unavailable.
    """
    if job.request_key is not None:
        return alias_of_key(job)
    number = database.number_of(preferred)
    place = shard_map.current().any_place(job.queue.id, job.tenant_id, [number])
    return preferred if place is not None else _any_home(job)


def alias_of_key(job: NewJob) -> str:
    """The database where the request key of `job` belongs. Raises Unavailable while its slot moves."""
    place = shard_map.current().key_place(job.queue.id, job.tenant_id, content.slot(job.identity))
    if place is None:
        raise Unavailable(_MOVING)
    return database.aliases()[place.shard]


def _any_home(job: NewJob) -> str:
    place = shard_map.current().any_place(job.queue.id, job.tenant_id, list(database.aliases()))
    if place is None:
        raise Unavailable(_MOVING)
    return database.aliases()[place.shard]


_MOVING: Final = "The key's place is being moved; repeat."
_NOWHERE: Final = "No shard that may take this job can be reached; repeat."
_NO_PLACE: Final = Place(-1)


class _Routing:
    """Brings the jobs of one call to their shards: by slot, under the epoch that the shard must have.

    Work without a key goes to any shard that answers; after a COMMIT was sent it is never sent elsewhere.
    """

    def __init__(
        self,
        jobs: Sequence[NewJob],
        fingerprints: Sequence[bytes | None],
        now: datetime | None,
        within: str | None,
    ) -> None:
        self.jobs, self.fingerprints, self.now, self.within = jobs, fingerprints, now, within
        self.outcomes: dict[int, Outcome] = {}
        self.avoided: set[int] = set()  # shards that could not be reached in this call
        self.refusals: dict[int, JobsPlatformError] = {}  # by limits of one shard, while others are tried
        self.failure: JobsPlatformError | None = None

    def run(self, indexes: Sequence[int]) -> dict[int, Outcome]:
        """The outcome of each. Raises Unavailable or UnknownOutcome when the only shard that was asked failed."""
        left, known = list(indexes), shard_map.current()
        for _ in range(ROUTES_MAX):
            groups = self._groups(left, known)
            homeless = groups.pop(_NO_PLACE.shard, [])
            misplaced = [one for number, group in groups.items() for one in self._send(number, group)]
            left = [index for index in indexes if index not in self.outcomes]
            if not left:
                break
            if homeless and not misplaced and self.refusals.keys() >= {index for index, _ in homeless}:
                break  # every shard that may take them has refused
            if homeless or misplaced:
                try:
                    known = self._refreshed(misplaced)
                except Unavailable:
                    break  # what was stored is stored
        for index in left:
            unplaced = Unavailable(_MOVING if self.jobs[index].request_key else _NOWHERE)
            self.outcomes[index] = self.refusals.get(index, unplaced)
        failures = {id(outcome) for outcome in self.outcomes.values()}
        if len(failures) == 1 and self.failure is not None and self.failure in self.outcomes.values():
            raise self.failure
        return self.outcomes

    def _groups(self, left: Iterable[int], known: ShardMap) -> dict[int, list[tuple[int, Place]]]:
        """Jobs with their places, by shard; under that of `_NO_PLACE` those that have none now."""
        groups: dict[int, list[tuple[int, Place]]] = {}
        anywhere: dict[tuple[int, int], Place | None] = {}
        for index in left:
            job = self.jobs[index]
            if job.request_key is not None:
                place = known.key_place(job.queue.id, job.tenant_id, content.slot(job.identity))
            else:
                who = (job.queue.id, job.tenant_id)
                if who not in anywhere:
                    anywhere[who] = known.any_place(*who, self._candidates())
                place = anywhere[who]
            place = place or _NO_PLACE
            groups.setdefault(place.shard, []).append((index, place))
        return groups

    def _candidates(self) -> list[int]:
        """Shards that may get work without a key: those that answer, or all where none is known to."""
        if self.within is not None:
            return [database.number_of(self.within)]
        aliases = database.aliases()
        numbers = [number for number in aliases if number not in self.avoided]
        return [number for number in numbers if not reach.is_down(aliases[number])] or numbers

    def _send(self, number: int, group: Sequence[tuple[int, Place]]) -> list[tuple[int, Place]]:
        """Store a shard's jobs. Returns those whose slots it does not own."""
        alias = database.aliases().get(number)
        if alias is None or self.within not in (None, alias):
            self._fail(group, Unavailable(_MOVING if alias else _NOWHERE))
            return []
        batch = [(self.jobs[index], self.fingerprints[index]) for index, _ in group]
        try:
            answers = _Intake(batch, [place for _, place in group], alias, self.now).run()
        except Unavailable as error:
            stays = [one for one in group if self.within is None and self.jobs[one[0]].request_key is None]
            self._fail([one for one in group if one not in stays], error)
            self.avoided.add(number)
            if len(self.avoided) == len(database.aliases()):
                self._fail(stays, error)
            return []
        except UnknownOutcome as error:
            self._fail(group, error)
            return []
        misplaced = []
        for one, answer in zip(group, answers, strict=True):
            if answer is None:
                misplaced.append(one)
            elif isinstance(answer, (QuotaExceeded, QueueFull, RateLimited)) and self._may_go_on(
                one[0], number
            ):
                self.refusals[one[0]] = answer
            else:
                self.outcomes[one[0]] = answer
        return misplaced

    def _may_go_on(self, index: int, number: int) -> bool:
        """Whether a job that a shard's part of a limit keeps out may try another: each has a part of its own."""
        if self.within is not None or self.jobs[index].request_key is not None:
            return False
        self.avoided.add(number)
        return len(self.avoided) < len(database.aliases())

    def _fail(self, group: Sequence[tuple[int, Place]], error: JobsPlatformError) -> None:
        if group:
            self.failure = error
            self.outcomes.update((index, error) for index, _ in group)

    def _refreshed(self, misplaced: Sequence[tuple[int, Place]]) -> ShardMap:
        """The newest map; a shard that refused what even that says is told what it missed. Raises Unavailable."""
        known = shard_map.refreshed()
        for ring, number in {(place.ring, place.shard) for _, place in misplaced}:
            if ring is not None:
                with suppress(JobsPlatformError, DatabaseError):
                    telling.catch_up(ring, number)
        return known


def _repeat(first: Outcome, same_content: bool) -> Outcome:
    """What a repeat inside one batch gets, given what its first use got."""
    if not isinstance(first, Accepted):
        return first
    return Accepted(first.job_id, replayed=True) if same_content else _conflict(first.job_id)


def _conflict(job_id: int) -> RequestKeyConflict:
    return RequestKeyConflict(job_id=format_id(job_id))


def _missing(job: NewJob) -> Unavailable:
    """The refusal of a job that no try has stored: its key is another's, or its queue is not the one of that name."""
    if job.request_key is None:
        return Unavailable("The queue was replaced meanwhile; repeat.", reason="queue_replaced")
    return Unavailable("The request key is being taken; repeat.", reason="key_in_use")


_REFUSALS: Final[Mapping[str, Callable[[], JobsPlatformError]]] = {
    "intake_paused": lambda: Unavailable(
        "The queue takes no new work at the moment.", retry_after=5, reason="intake_paused"
    ),
    "deadline_in_past": DeadlineInPast,
    "due_after_deadline": lambda: Invalid.at("/deadline", "The job would be due at or after its deadline."),
}


class _Intake:
    """One shard's unique requests, until each has its answer."""

    def __init__(
        self,
        batch: Sequence[tuple[NewJob, bytes | None]],
        places: Sequence[Place],
        alias: str,
        now: datetime | None,
    ) -> None:
        self.asked, self.batch, self.alias, self.now = batch, list(batch), alias, now
        self.places = places
        self.misplaced: set[int] = set()  # by the shard's own word
        self.answers: dict[int, Outcome] = {}
        self.refused: dict[int, JobsPlatformError] = {}  # until a key says that it is a replay
        self.unadmitted: dict[int, datetime | None] = {}  # and the deadline, where the queue checks it
        self.tickets: dict[int, admitting.Ticket] = {}
        self.unchecked: set[int] = set()
        self.doubted: set[int] = set()  # refused by what this process remembers of their kinds
        self.checked: dict[int, int] = {}  # by which version of its kind
        self._check_by_memory()

    def run(self) -> list[Outcome | None]:
        """The outcome of each; None: the shard does not own its slot."""
        try:
            self._free_windows()
            self._store_plain()
            if self._open():
                self._rounds()
        except JobsPlatformError as error:
            if not self.answers:
                raise
            self.refused.update(dict.fromkeys(self._open(), error))  # the others are stored, and must hear so
        wakeup.ready(self.alias, self._made_ready())
        return [
            None if i in self.misplaced else self.answers.get(i) or self.refused.get(i) or _missing(job)
            for i, (job, _) in enumerate(self.batch)
        ]

    def _free_windows(self) -> None:
        """Forget the keys of messages whose windows are over; a window is fixed from its key's first acceptance."""
        keyed = [job.identity for job, mark in self.batch if mark and job.namespace == DEDUP_NAMESPACE]
        if keyed:
            tenant_ids, queue_ids, _, keys = map(list, zip(*keyed, strict=True))
            params = {"tenant_ids": tenant_ids, "queue_ids": queue_ids, "keys": keys, "now": self.now}
            more = {"namespace": DEDUP_NAMESPACE}
            sql.rows("jobqueue/dedup_free", params | more, alias=self.alias, writes=True)

    def _made_ready(self) -> set[wakeup.Mark]:
        bands = {
            (job.queue.id, job.priority)
            for i, (job, _) in enumerate(self.batch)
            if isinstance(answer := self.answers.get(i), Accepted)
            and answer.stored is not None
            and not answer.stored.is_delayed
        }
        return {wakeup.Mark(*band) for band in bands}

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
        done = self.answers.keys() | self.refused.keys() | self.misplaced
        return [i for i in range(len(self.batch)) if i not in done]

    def _store_plain(self) -> None:
        """Store what nothing bars by the small statement. What it leaves open is for `_store` to judge."""
        asked = [i for i in self._open() if self._is_plain(i)]
        lane_ids = self._lanes(asked) if asked else {}
        versions = self._versions(lane_ids)
        asked = [i for i in asked if lane_ids.get(i) in versions]
        if not asked or len(versions) > PLAIN_LANES_MAX:
            return
        params = _params([self.batch[i][0] for i in asked], _PLAIN_COLUMNS) | {
            "lanes": list(versions),
            "kind_versions": list(versions.values()),
            "lane_ids": [lane_ids[i] for i in asked],
            "now": self.now,
        }
        [(at, ords, job_ids, attempts)] = sql.rows(
            "jobqueue/enqueue_plain", params, alias=self.alias, writes=True
        )
        stored: dict[tuple[int, str | None], Stored] = {}
        for ord_, job_id, tries in zip(ords or (), job_ids or (), attempts or (), strict=True):
            index = asked[ord_ - 1]
            what = (tries, self.batch[index][0].dependency)
            if what not in stored:
                stored[what] = Stored(at, None, None, *what)
            self.answers[index] = Accepted(job_id, stored=stored[what])
        lanes.bar({lane_ids[i] for i in asked if i not in self.answers}, alias=self.alias)

    def _is_plain(self, index: int) -> bool:
        """Whether the job needs nothing but a place in its lane."""
        is_keyless = self.batch[index][1] is None and self.places[index].ring is None
        return is_keyless and self.batch[index][0].is_untimed and index not in self.doubted

    def _versions(self, lane_ids: Mapping[int, int]) -> dict[int, int | None]:
        """By which version of its kind the jobs of a lane were checked; without lanes that are barred, or in doubt."""
        barred = lanes.barred(lane_ids.values(), alias=self.alias)
        found: dict[int, int | None] = {} if self.checked else dict.fromkeys(lane_ids.values())
        for index, lane in lane_ids.items() if self.checked else ():
            version = self.checked.get(index)
            if found.setdefault(lane, version) != version:
                barred.add(lane)  # its kind was changed while the batch was checked
        return {lane: version for lane, version in found.items() if lane not in barred}

    def _store(self) -> None:
        """Run the statement on what is open. Who is missing in its rows lost its key, or its lane is gone."""
        asked = self._open()
        self.unadmitted, self.unchecked = {}, set()
        tickets, self.tickets = self.tickets, {}  # each is good for one statement
        held = {i: ticket.reservation for i, ticket in tickets.items()}
        lane_ids = self._lanes(asked)
        asked = [i for i in asked if i in lane_ids]
        params = _params([self.batch[i][0] for i in asked], _COLUMNS) | {
            "lane_ids": [lane_ids[i] for i in asked],
            "fingerprints": [self.batch[i][1] for i in asked],
            "reservations": [held.get(i) for i in asked] if held else None,
            "kind_versions": [self.checked.get(i) for i in asked] if self.checked else None,
            "now": self.now,
        }
        params |= _slots([self.places[i] for i in asked])
        rows = sql.rows("jobqueue/enqueue", params, alias=self.alias, writes=True) if asked else []
        for ord_, job_id, refusal, *stored in rows:
            index = asked[ord_ - 1]
            if refusal is None:
                self.answers[index] = Accepted(job_id, stored=Stored(*stored))
            elif refusal == UNADMITTED:
                self.unadmitted[index] = stored[2]
            elif refusal == UNCHECKED:
                self.unchecked.add(index)
            elif refusal == MISPLACED:
                self.misplaced.add(index)
            else:
                self.refused[index] = _REFUSALS[refusal]()
        admitting.give_back(
            (ticket for i, ticket in tickets.items() if i not in self.answers), alias=self.alias
        )

    def _lanes(self, asked: Sequence[int]) -> dict[int, int]:
        """The lane of each that has one; the others are refused, unless their keys say that they are replays."""
        keys = [self.batch[i][0].lane for i in asked]
        lane_of = lanes.lane_ids(set(keys), alias=self.alias)
        laneless = [i for i, key in zip(asked, keys, strict=True) if key not in lane_of]
        self.refused.update((i, lanes.too_many()) for i in laneless)
        self._read_back(laneless)
        return {i: lane_of[key] for i, key in zip(asked, keys, strict=True) if key in lane_of}

    def _read_back(self, among: Iterable[int] | None = None) -> None:
        """Answer those whose keys are held by earlier requests."""
        looked_at = range(len(self.batch)) if among is None else among
        lost = [
            i
            for i in looked_at
            if i not in self.answers and i not in self.misplaced and self.batch[i][1] is not None
        ]
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
            if kind is None:
                continue
            if _refusal(job, kind) is None:
                self._apply(index, kind)
            else:
                self.doubted.add(index)

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


def _slots(places: Sequence[Place]) -> dict[str, Any]:
    """The slots that the shard must own; nulls where it has none."""
    if all(place.ring is None for place in places):
        return {"rings": None, "slots": None, "epochs": None}
    return {
        "rings": [place.ring for place in places],
        "slots": [place.slot for place in places],
        "epochs": [place.epoch for place in places],
    }


# What is sent of a job, by the statements' names.
_PLAIN_COLUMNS: Final[Mapping[str, Callable[[NewJob], Any]]] = {
    "payloads": attrgetter("payload"),
    "payload_refs": attrgetter("payload_ref"),
    "max_attempts": attrgetter("max_attempts"),
    "traceparents": attrgetter("traceparent"),
}
_COLUMNS: Final[Mapping[str, Callable[[NewJob], Any]]] = {
    **_PLAIN_COLUMNS,
    "request_keys": attrgetter("request_key"),
    "namespaces": lambda job: job.namespace or None,
    "not_befores": attrgetter("not_before"),
    "delays_s": attrgetter("delay_s"),
    "deadlines": attrgetter("deadline"),
    "expiries_s": attrgetter("expires_in_s"),
    "expiries_from_due": lambda job: job.expires_from_due or None,
}


def _params(jobs: Sequence[NewJob], columns: Mapping[str, Callable[[NewJob], Any]]) -> dict[str, Any]:
    """These columns of the jobs; null where none has a value."""
    values = ((name, [value_of(job) for job in jobs]) for name, value_of in columns.items())
    return {name: None if column.count(None) == len(column) else column for name, column in values}
