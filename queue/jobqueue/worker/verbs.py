"""The worker's one door to the queue: the five verbs, by the functions that the HTTP API uses as well."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

import django.db
import psycopg
from django.conf import settings

from jobqueue import claiming, leases, policies
from jobqueue.limits import WORKER_CLAIM_LIMIT_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.types import FLEET
from jobqueue.worker.options import WorkerOptions
from jobsplatform import database, events, sql
from jobsplatform.errors import Invalid, JobsPlatformError, NotFound, Unavailable, UnknownOutcome
from tenants.models import Tenant

Answers = Sequence[object]  # refusals (JobsPlatformError) among them, as values

QUEUES_S = 1.0  # how long the list of all queues is remembered
SLUGS_MAX = 10_000  # tenants whose slug is remembered
_LOST = (
    django.db.OperationalError,
    django.db.InterfaceError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
)


class Verbs(Protocol):
    """What the engine and the keeper may do. Batches answer in order; a refusal is a value among the answers.

    Every one raises Unavailable or UnknownOutcome while the database is away.
    """

    def claim(self, limit: int) -> list[claiming.Lease]: ...

    def claim_urgent(self, limit: int) -> list[claiming.Lease]:
        """Only of the band that threads are kept for, and more urgent ones."""

    def renew(self, calls: Sequence[leases.Renew]) -> Sequence[leases.Renewed | JobsPlatformError]: ...

    def complete(self, calls: Sequence[leases.Complete]) -> Answers: ...

    def fail(self, calls: Sequence[leases.Fail]) -> Answers: ...

    def release(self, calls: Sequence[leases.Release]) -> Answers: ...

    def release_unstarted(self, worker: str) -> int:
        """Give back what `worker` has claimed and nobody has started; how many."""

    def queue_name(self, queue_id: int) -> str: ...

    def tenant_slug(self, tenant_id: int) -> str: ...

    def tidy(self) -> None:
        """Give back the calling thread's connections."""

    def forget_queries(self) -> None:
        """Empty the query log that DEBUG keeps."""


def answers_of(outcome: object, count: int) -> Sequence[object]:
    """One answer a call: a batch that raised answers each of its calls with the error."""
    if isinstance(outcome, BaseException):
        return [outcome] * count
    assert isinstance(outcome, Sequence), "a verb answers one value a call"
    return outcome


def must_repeat(answer: object) -> bool:
    """Is this answer no answer, so that the same call must be made again?"""
    return isinstance(answer, Unavailable | UnknownOutcome)


class DatabaseVerbs:
    """The real verbs, with the whole fleet's scope. Usable from any thread."""

    def __init__(self, options: WorkerOptions, kinds: Sequence[str], worker: str) -> None:
        self._options = options
        self._kinds = tuple(kinds)
        self._worker = worker
        self._all_queues: tuple[QueuePolicy, ...] = ()
        self._queues_at = 0.0
        self._absent: set[str] = set()
        self._names: dict[int, str] = {}
        self._slugs: dict[int, str] = {}

    def claim(self, limit: int) -> list[claiming.Lease]:
        """Always a prefetch: the keeper marks what runs as started, so only that is charged if we die."""
        with _lost_connections_translated():
            return self._claim(self._queues(), limit, self._options.max_priority)

    def claim_urgent(self, limit: int) -> list[claiming.Lease]:
        """Of the queues that have the band; it may stand elsewhere in each."""
        claimed: list[claiming.Lease] = []
        with _lost_connections_translated():
            for last, queues in sorted(self.urgent_queues().items()):
                try:
                    claimed += self._claim(tuple(queues), limit - len(claimed), last)
                except (Unavailable, UnknownOutcome):
                    if not claimed:
                        raise
                    break  # the leases that are made must not be lost
        return claimed

    def _claim(self, queues: tuple[QueuePolicy, ...], limit: int, last: int | None) -> list[claiming.Lease]:
        if not queues or not limit:
            return []
        request = claiming.ClaimRequest(
            queues=queues,
            kinds=self._kinds,
            limit=limit,
            lease_s=self._options.lease_s,
            max_priority=last,
            worker=self._worker,
            prefetch=True,
        )
        return claiming.claim(request, scope=FLEET)

    def urgent_queues(self) -> dict[int, list[QueuePolicy]]:
        """By the index of the band that threads are kept for."""
        assert self._options.reserve is not None
        band = self._options.reserve.band
        found: dict[int, list[QueuePolicy]] = {}
        for queue in self._queues():
            with suppress(Invalid):  # it has no such band
                index = queue.priority(int(band) if band.isdecimal() else band)
                found.setdefault(index, []).append(queue)
        return found

    def renew(self, calls: Sequence[leases.Renew]) -> Sequence[leases.Renewed | JobsPlatformError]:
        with _lost_connections_translated():
            return leases.renew(calls, scope=FLEET)

    def complete(self, calls: Sequence[leases.Complete]) -> Answers:
        with _lost_connections_translated():
            return leases.complete(calls, scope=FLEET)

    def fail(self, calls: Sequence[leases.Fail]) -> Answers:
        with _lost_connections_translated():
            return leases.fail(calls, scope=FLEET)

    def release(self, calls: Sequence[leases.Release]) -> Answers:
        with _lost_connections_translated():
            return leases.release(calls, scope=FLEET)

    def release_unstarted(self, worker: str) -> int:
        count = 0
        with _lost_connections_translated():
            for alias in database.aliases().values():
                params = {"worker": worker, "limit": WORKER_CLAIM_LIMIT_MAX, "now": None}
                rows = sql.rows("jobqueue/worker_leases", params, alias=alias)
                calls = [
                    leases.Release(job_id, generation, bytes(token), counts=False)
                    for job_id, generation, token in rows
                ]
                count += len(leases.release(calls, scope=FLEET))
        return count

    def queue_name(self, queue_id: int) -> str:
        name = self._names.get(queue_id)
        if name is None:
            name = self._names[queue_id] = policies.names({queue_id}).get(queue_id, "")
        return name

    def tenant_slug(self, tenant_id: int) -> str:
        slug = self._slugs.get(tenant_id)
        if slug is None:
            if len(self._slugs) >= SLUGS_MAX:
                self._slugs.clear()
            slug = self._slugs[tenant_id] = Tenant.objects.values_list("slug", flat=True).get(pk=tenant_id)
        return slug

    def tidy(self) -> None:
        django.db.connections.close_all()
        self.forget_queries()

    def forget_queries(self) -> None:
        if settings.DEBUG:
            django.db.reset_queries()

    # Which queues to ask

    def _queues(self) -> tuple[QueuePolicy, ...]:
        if self._options.queues is not None:
            return self._known(self._named, self._options.queues)
        if time.monotonic() - self._queues_at > QUEUES_S:
            self._all_queues = self._known(lambda _: policies.visible(FLEET), ())
            self._queues_at = time.monotonic()
        return self._all_queues

    def _known(
        self, read: Callable[[tuple[str, ...]], tuple[QueuePolicy, ...]], names: tuple[str, ...]
    ) -> tuple[QueuePolicy, ...]:
        """What the control database says, or said last: its loss must not stop the shards' work."""
        try:
            self._all_queues = read(names)
        except (*_LOST, Unavailable):
            if not self._all_queues:
                raise
        return self._all_queues

    def _named(self, names: tuple[str, ...]) -> tuple[QueuePolicy, ...]:
        found = []
        for name in names:
            try:
                found.append(policies.by_name(name))
                self._absent.discard(name)
            except NotFound:
                if name not in self._absent:
                    self._absent.add(name)
                    events.emit("queue_absent", queue=name)
        return tuple(found)


@contextmanager
def _lost_connections_translated() -> Iterator[None]:
    """The ORM's and the driver's words for a database that is away become ours."""
    try:
        yield
    except _LOST as error:
        raise Unavailable("The database cannot be reached.") from error
