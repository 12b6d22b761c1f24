"""Finding jobs: a page of what a query asks for, newest first, over every shard, in bounded reads along indexes.

Who asks is an argument beside the query: a tenant's scope cannot be widened by what the query says. Where no index
leads to what is asked, a window of the newest jobs is looked at, and the answer says how far back it reaches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from django.db import DatabaseError

from jobqueue import policies, reads
from jobqueue.ids import parse_id
from jobqueue.query import BadQuery, Query
from jobqueue.states import ERROR_CLASSES, DeadReason, State
from jobqueue.types import Scope
from jobsplatform import database, merging, sql
from jobsplatform.errors import Invalid, JobsPlatformError, NotFound
from tenants.models import Tenant

WINDOW: Final = 5_000  # jobs that one read looks at on a shard: 3 to 15 µs each
FEW: Final = 2_000  # jobs of some lanes in one place that are taken whole
LANES_MAX: Final = 20_000  # lanes that one search tells apart; of more, jobs are looked at one by one
KEY_PAIRS_MAX: Final = 20_000  # (tenant, queue) pairs that are asked for a key: about 3 µs each
KEY_JOBS_MAX: Final = 1_000
READ_SECONDS: Final = 3  # of one statement; then the shard counts as one that did not answer
MARGIN: Final = timedelta(minutes=1)  # by which ids may be out of the order of their instants

_WAITING: Final = (State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)
_FINGERPRINT = re.compile(r"[0-9a-f]{16}").fullmatch


class JobLine(NamedTuple):
    """A job as a list shows it. `error` is the beginning of the last error's message."""

    job_id: int
    tenant_id: int
    queue_id: int
    kind: str
    priority: int
    state: str | None
    request_key: str | None
    created_at: datetime
    attempts_used: int | None
    max_attempts: int
    generation: int | None
    redrive_generation: int | None
    due_at: datetime | None
    claimed_at: datetime | None
    expires_at: datetime | None
    worker: str | None
    finished_at: datetime | None
    error_class: str | None
    error: str | None
    dead_reason: str | None


class Listed(Protocol):
    """What pages are merged by."""

    @property
    def job_id(self) -> int: ...

    @property
    def created_at(self) -> datetime: ...


L = TypeVar("L", bound=Listed)


class Lines(Protocol[L]):
    """Reads what is shown of jobs of one shard, newest first."""

    def __call__(self, job_ids: Collection[int], *, alias: str, scope: Scope) -> list[L]: ...


Page = merging.Page[JobLine]
Place = merging.Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A query whose names are known: numbers of tenant and queue; None: any."""

    job_id: int | None = None
    key: str | None = None
    state: str | None = None
    tenant_id: int | None = None
    queue_id: int | None = None
    kind: str | None = None
    first_band: int | None = None
    last_band: int | None = None
    error_class: str | None = None
    error_text: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    older_s: int | None = None
    younger_s: int | None = None
    created_before: datetime | None = None
    created_after: datetime | None = None

    @property
    def lanes_are_asked(self) -> bool:
        """Whether lanes tell what is asked for."""
        return any(part is not None for part in (self.tenant_id, self.queue_id, self.kind, self.first_band))

    @property
    def is_plain(self) -> bool:
        """Whether everything that a read looks at is shown: then it need not look at more than a page."""
        narrowing = (self.queue_id, self.kind, self.first_band, self.error_class, self.error_text)
        of_the_dead = (self.reason, self.fingerprint)
        dated = (self.older_s, self.younger_s, self.created_before, self.created_after)
        is_narrowed = any(part is not None for part in (*narrowing, *of_the_dead, *dated))
        return not is_narrowed and None in (self.tenant_id, self.state)


def resolve(query: Query, *, scope: Scope) -> Wanted | None:
    """The query with its names looked up, within `scope`; None when it cannot match anything.

    Raises BadQuery for names that do not exist. A scope of one tenant knows no other's name.
    """
    tenant_id = scope.tenant_id
    slug = query.value("tenant")
    if slug is not None:
        owner = _tenant_id(slug) if scope.tenant_id is None else _tenant_id_or_none(slug)
        if scope.tenant_id is not None and owner != scope.tenant_id:
            return None
        tenant_id = owner
    queue = _queue(query.value("queue"))
    bands = query.bands()
    named = query.value("priority")
    if named is not None and bands is None:
        bands = _band(named, queue)
    older_s, younger_s = query.age_seconds()
    errors = _error(query.value("error"))
    state = query.value("state")
    if "fingerprint" in errors or "reason" in errors:  # dead letters alone have them
        if state not in (None, State.DEAD):
            return None
        state = State.DEAD
    job_id = query.value("id")
    return Wanted(
        job_id=None if job_id is None else _job_id(job_id),
        key=query.value("key"),
        state=state,
        tenant_id=tenant_id,
        queue_id=None if queue is None else queue.id,
        kind=query.value("kind"),
        first_band=None if bands is None else bands[0],
        last_band=None if bands is None else bands[1],
        older_s=older_s,
        younger_s=younger_s,
        error_class=errors.get("error_class"),
        error_text=errors.get("error_text"),
        reason=errors.get("reason"),
        fingerprint=errors.get("fingerprint"),
    )


def _job_id(text: str) -> int:
    try:
        return parse_id(text)
    except NotFound:
        raise BadQuery(f"id: “{text}” is no job's id, such as 0-42.", text) from None


def _tenant_id(slug: str) -> int:
    found = _tenant_id_or_none(slug)
    if found is None:
        raise BadQuery(f"There is no tenant “{slug}”.", slug)
    return found


def _tenant_id_or_none(slug: str) -> int | None:
    return Tenant.objects.filter(slug=slug).values_list("pk", flat=True).first()


def _queue(name: str | None) -> policies.QueuePolicy | None:
    if name is None:
        return None
    try:
        return policies.by_name(name)
    except NotFound:
        raise BadQuery(f"There is no queue “{name}”.", name) from None


def _band(name: str, queue: policies.QueuePolicy | None) -> tuple[int, int]:
    if queue is None:
        raise BadQuery("priority: a band's name needs queue: beside it; a number does not.", name)
    try:
        index = queue.priority(name)
    except Invalid as error:
        raise BadQuery(f"priority: {error.detail}", name) from None
    return index, index


def _error(value: str | None) -> dict[str, str]:
    """Which column a text of `error:` means: a class, a reason of death, a fingerprint, else what a message says."""
    if value is None:
        return {}
    if value in ERROR_CLASSES:
        return {"error_class": value}
    if value in DeadReason.values:
        return {"reason": value}
    return {"fingerprint": value} if _FINGERPRINT(value) is not None else {"error_text": value}


# Pages


def page(
    query: Query, *, scope: Scope, before: Place | None = None, limit: int, now: datetime | None = None
) -> Page:
    """A page of the jobs that a query asks for within `scope`. Raises BadQuery."""
    wanted = resolve(query, scope=scope)
    if wanted is None:
        return Page([], None)
    return page_of(wanted, scope=scope, before=before, limit=limit, now=now, lines=lines_of)


def page_of(
    wanted: Wanted,
    *,
    scope: Scope,
    before: Place | None,
    limit: int,
    lines: Lines[L],
    now: datetime | None = None,
) -> merging.Page[L]:
    """As `page`, of a query whose names are known; `lines` reads what is shown of the jobs that were found."""
    assert scope.tenant_id in (None, wanted.tenant_id), "a search never leaves its scope"
    params = _params(wanted, scope, now)
    named = _named(wanted)
    parts: list[merging.Part[L]] = []
    for number, alias in database.aliases().items():
        below = (before or {}).get(number)
        if below == 0:
            parts.append(merging.Part(number, [], 0))
            continue

        def shown(ids: Sequence[int], alias: str = alias) -> list[L]:
            return lines(ids, alias=alias, scope=scope)

        try:
            here = None if named is None else [one for one in named if database.alias_of(one) == alias]
            parts.append(_read(number, alias, _Asked(wanted, params, here), below, limit, shown))
        except (DatabaseError, JobsPlatformError):
            parts.append(merging.Part(number, [], None, began=below))
    return merging.merged(parts, limit=limit, at=lambda line: line.created_at, id_of=lambda line: line.job_id)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a shard is asked for. `named`: the jobs there that the query names; None: it names none."""

    wanted: Wanted
    params: Mapping[str, Any]
    named: list[int] | None


def _params(wanted: Wanted, scope: Scope, now: datetime | None) -> dict[str, Any]:
    """What every statement of a search reads."""
    at = now
    if at is None and (wanted.older_s is not None or wanted.younger_s is not None):
        at = reads.clock()
    lanes = ("state", "queue_id", "kind", "first_band", "last_band")
    errors = ("error_class", "error_text", "reason", "fingerprint")
    ends = (wanted.created_before, _ago(wanted.older_s, at))
    starts = (wanted.created_after, _ago(wanted.younger_s, at))
    return {name: getattr(wanted, name) for name in (*lanes, *errors)} | {
        "tenant_id": wanted.tenant_id,
        "queue_ids": scope.params()["queue_ids"],
        "created_before": min((end for end in ends if end is not None), default=None),
        "created_after": max((start for start in starts if start is not None), default=None),
    }


def _ago(seconds: int | None, at: datetime | None) -> datetime | None:
    return None if seconds is None or at is None else at - timedelta(seconds=seconds)


def _read(
    number: int,
    alias: str,
    asked: _Asked,
    below: int | None,
    limit: int,
    shown: Callable[[Sequence[int]], list[L]],
) -> merging.Part[L]:
    with sql.bounded_read(alias, READ_SECONDS):
        before, above = _between(asked.params, alias, below)
        place = {"before": before, "above": above, "limit": limit + 1}
        ids, window_to, is_last = _ids(asked, dict(asked.params) | place, alias)
        lines = shown(ids[:limit])
        if len(ids) > limit:
            return merging.Part(number, lines, ids[limit - 1])
        if is_last or window_to is None:
            return merging.Part(number, lines, 0)
        return merging.Part(number, lines, window_to, _accepted_at(window_to, alias))


def _between(params: Mapping[str, Any], alias: str, below: int | None) -> tuple[int | None, int | None]:
    """The ids between which jobs of the wanted age lie."""
    above = None
    if params["created_before"] is not None:
        latest = _id_at(params["created_before"] + MARGIN, alias)
        below = latest if below is None else min(below, latest)
    if params["created_after"] is not None:
        above = _id_at(params["created_after"] - MARGIN, alias) - 1
    return below, above


def _id_at(at: datetime, alias: str) -> int:
    return int(sql.rows("jobqueue/job_id_at", {"at": at}, alias=alias)[0][0])


def _accepted_at(job_id: int, alias: str) -> datetime | None:
    rows = sql.rows("jobqueue/job_accepted", {"job_id": job_id}, alias=alias)
    return rows[0][0] if rows else None


def _ids(asked: _Asked, params: dict[str, Any], alias: str) -> tuple[list[int], int | None, bool]:
    """(ids, where the window ended, whether nothing older is left), by the shortest way there is."""
    wanted = asked.wanted
    if asked.named is not None:
        return _one("jobqueue/search_named", params | {"job_ids": asked.named}, alias)
    window = params["limit"] if wanted.is_plain and params["queue_ids"] is None else WINDOW
    params |= {"window": max(window, params["limit"])}
    if wanted.state not in _WAITING:
        return _one("jobqueue/search_jobs", params, alias)
    lanes = _lanes(wanted, params, alias)
    if lanes is not None and not lanes:
        return [], None, True
    # A tenant's search looks at no other's jobs: where its own are many, it walks along them alone.
    walks = wanted.tenant_id is None
    placed = params | {"lane_ids": lanes, "few": FEW, "walks": walks}
    ids, window_to, is_last, are_few = sql.rows("jobqueue/search_place", placed, alias=alias)[0]
    if are_few or walks:
        return ids, window_to, is_last
    return _one("jobqueue/search_jobs", params, alias)


def _one(statement: str, params: Mapping[str, Any], alias: str) -> tuple[list[int], int | None, bool]:
    ids, window_to, is_last = sql.rows(statement, params, alias=alias)[0]
    return ids, window_to, is_last


def _named(wanted: Wanted) -> list[int] | None:
    """The ids of jobs that a query names, on whichever shard: a key may have moved on without its job. None: it names
    none.
    """
    ids: set[int] | None = None if wanted.job_id is None else {wanted.job_id}
    if wanted.key is not None:
        keyed = {job_id for alias in database.aliases().values() for job_id in _keyed(wanted, alias)}
        ids = keyed if ids is None else ids & keyed
    return None if ids is None else sorted(ids)


def _keyed(wanted: Wanted, alias: str) -> list[int]:
    """The ids of jobs whose key lies on a shard; none of one that does not answer: its jobs are unknown as well."""
    params = {"key": wanted.key, "tenant_id": wanted.tenant_id, "pairs_max": KEY_PAIRS_MAX}
    try:
        with sql.bounded_read(alias, READ_SECONDS):
            rows = sql.rows("jobqueue/search_keys", params | {"limit": KEY_JOBS_MAX}, alias=alias)
    except (DatabaseError, JobsPlatformError):
        return []
    return [row[0] for row in rows]


def _lanes(wanted: Wanted, params: Mapping[str, Any], alias: str) -> list[int] | None:
    """The lanes that are asked for; None: every lane, or too many to tell apart."""
    if not wanted.lanes_are_asked and params["queue_ids"] is None:
        return None
    rows = sql.rows("jobqueue/search_lanes", dict(params) | {"limit": LANES_MAX + 1}, alias=alias)
    return None if len(rows) > LANES_MAX else [row[0] for row in rows]


def lines_of(job_ids: Collection[int], *, alias: str, scope: Scope) -> list[JobLine]:
    """The lines of jobs of one shard, newest first; those between two places are left out."""
    if not job_ids:
        return []
    params = {"job_ids": list(job_ids), **scope.params()}
    found = (JobLine(*row) for row in sql.rows("jobqueue/job_lines", params, alias=alias))
    return [line for line in found if line.state is not None]
