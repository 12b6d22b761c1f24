"""What pages show of jobs: the lines of a list, the chips of a query, one job with its history. No HTTP here.

The operators' admin and the tenants' own pages build on it; whose jobs may show is an argument, and where a line leads
to is a function of the page's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from jobqueue import query, reads, search, timeline
from jobqueue.ids import format_id
from jobqueue.models import Queue
from jobqueue.query import BadQuery, Query
from jobqueue.reads import JobView, ResultView
from jobqueue.search import JobLine
from jobqueue.states import State
from jobqueue.timeline import Bar, Event, ForkRow, History
from jobqueue.types import Scope
from jobqueue.verdict import verdict
from jobqueue.why import Why, why
from jobsplatform import merging
from jobsplatform.errors import Invalid, JobsPlatformError
from jobsplatform.wording import one_line
from tenants import auditlog
from tenants.models import Tenant

ROWS: Final = 50  # of a page
AUDIT_SHOWN: Final = 20  # entries about a job that its page shows
ERROR_CHARS: Final = 120  # of an error in a list

HrefOf = Callable[[int], str]  # job id → address of its page


# Lists


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a list. `next_at`: when it is due or its lease ends; `next_is`: which of them."""

    line: JobLine
    name: str
    href: str
    tenant: str
    queue: str
    band: str
    error: str
    next_is: str
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class Chip:
    """A condition of the query, and the list without it."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of jobs with its query bar. `refusal`: why the query cannot be read; then nothing is listed."""

    text: str
    chips: list[Chip] = field(default_factory=list)
    suggestions: list[Chip] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    refusal: str = ""
    older: str | None = None
    newest: str | None = None
    searched_back_to: datetime | None = None
    unknown_shards: list[int] = field(default_factory=list)
    fields: Sequence[str] = query.FIELDS
    shows_tenant: bool = True


def listing(
    text: str,
    *,
    scope: Scope,
    href_of: HrefOf,
    before: str | None = None,
    keep: Sequence[tuple[str, str]] = (),
    now: datetime | None = None,
) -> Listing:
    """A page of what a query finds within `scope`. `keep`: parameters of the address beside the query's own.

    A scope of one tenant has no field `tenant:`.
    """
    fields = query.FIELDS if scope.tenant_id is None else query.TENANT_FIELDS
    shows_tenant = scope.tenant_id is None
    try:
        asked = query.parse(text, fields=fields)
        place = None if before is None else merging.parse_place(before)
        page = search.page(asked, scope=scope, before=place, limit=ROWS, now=now)
    except (BadQuery, Invalid) as error:
        return Listing(text, refusal=one_line(error.detail), fields=fields, shows_tenant=shows_tenant)

    def address(of: Query, place: merging.Place | None = None) -> str:
        parameters = [*keep, *([("q", of.text)] if of.terms else [])]
        parameters += [("before", merging.place_text(place))] if place is not None else []
        return "?" + urlencode(parameters)

    return Listing(
        asked.text,
        chips=[Chip(term.text, address(asked.without(term))) for term in asked.terms],
        suggestions=_suggestions(asked, address),
        rows=rows(page.rows, href_of=href_of),
        older=None if page.following is None else address(asked, page.following),
        newest=None if before is None else address(asked),
        searched_back_to=page.searched_back_to,
        unknown_shards=page.unknown,
        fields=fields,
        shows_tenant=shows_tenant,
    )


def _suggestions(asked: Query, address: Callable[[Query], str]) -> list[Chip]:
    """One-click narrowings: the states that the query does not name."""
    if asked.value("state") is not None or asked.value("id") is not None:
        return []
    return [Chip(f"state:{state}", address(asked.with_("state", state))) for state in query.STATES]


def rows(lines: Sequence[JobLine], *, href_of: HrefOf) -> list[Row]:
    """Lines with the names of their numbers, looked up for all at once."""
    names = _Names({line.tenant_id for line in lines}, {line.queue_id for line in lines})
    return [_row(line, names, href_of) for line in lines]


class _Names:
    """The names of some tenants, queues and bands."""

    def __init__(self, tenant_ids: set[int], queue_ids: set[int]) -> None:
        self._tenants = dict(Tenant.objects.filter(pk__in=tenant_ids).values_list("pk", "slug"))
        found = Queue.objects.filter(pk__in=queue_ids).values_list("pk", "name", "bands")
        self._queues = {pk: (name, [band["name"] for band in bands]) for pk, name, bands in found}

    def tenant(self, tenant_id: int) -> str:
        return self._tenants.get(tenant_id, f"#{tenant_id}")

    def queue(self, queue_id: int) -> str:
        return self._queues.get(queue_id, (f"#{queue_id}", []))[0]

    def band(self, queue_id: int, index: int) -> str:
        bands = self._queues.get(queue_id, ("", []))[1]
        return bands[index] if 0 <= index < len(bands) else str(index)


def _row(line: JobLine, names: _Names, href_of: HrefOf) -> Row:
    said = one_line(line.error or "")
    said = said if len(said) <= ERROR_CHARS else f"{said[: ERROR_CHARS - 1]}…"
    next_is, next_at = ("due", line.due_at) if line.due_at else ("lease ends", line.expires_at)
    return Row(
        line,
        format_id(line.job_id),
        href_of(line.job_id),
        names.tenant(line.tenant_id),
        names.queue(line.queue_id),
        names.band(line.queue_id, line.priority),
        ": ".join(filter(None, [line.dead_reason, line.error_class, said])),
        next_is,
        next_at,
    )


# One job


@dataclass(frozen=True, slots=True)
class Step:
    """An event of the timeline with its bar and how long it took."""

    event: Event
    bar: Bar
    seconds: float | None
    href: str | None  # of another job that it leads to


@dataclass(frozen=True, slots=True)
class JobPage:
    """Everything that a job's page shows. Content is by size and hash alone."""

    view: JobView
    name: str
    tenant: str
    queue: str
    band: str
    verdict: str
    why: Why | None
    steps: list[Step]
    is_cut: bool
    result: ResultView | None
    result_bytes: int | None
    worker: str | None
    redrives: list[timeline.ReturnRow]
    corrections: list[timeline.ReturnRow]
    origin: tuple[str, str] | None  # name and address of the job that it was forked from
    forks: list[tuple[str, str]]
    entries: list[auditlog.Entry]
    at: datetime

    @property
    def can_be_cancelled(self) -> bool:
        """Whether a cancel would change anything now."""
        waits = self.view.state in (State.SCHEDULED, State.READY)
        return waits or (self.view.state == State.RUNNING and not self.view.cancel_requested)

    @property
    def can_be_hastened(self) -> bool:
        late = self.view.deadline is not None and self.view.deadline <= self.at
        return self.view.state == State.SCHEDULED and not late

    @property
    def is_dead(self) -> bool:
        return self.view.state == State.DEAD


def job_page(job_id: int, *, scope: Scope, href_of: HrefOf, now: datetime | None = None) -> JobPage:
    """Read all that a job's page shows. Raises NotFound; Unavailable while the job keeps moving."""
    view = reads.job(job_id, scope=scope)
    told = timeline.history(job_id, scope=scope)
    at = now or reads.clock()
    held = _why(job_id, scope, now)
    found = timeline.events(view, told)
    names = _Names({view.tenant_id}, {view.queue_id})
    result = _result(view, scope)
    forks = [row for row in told.forks if row.origin_job_id == job_id]
    worker = told.attempts[-1].worker if told.attempts and view.state == State.RUNNING else None
    target = auditlog.Filter(target=f"job:{format_id(job_id)}")
    entries = auditlog.page(target, tenant_id=scope.tenant_id or view.tenant_id, limit=AUDIT_SHOWN)
    return JobPage(
        view,
        format_id(job_id),
        names.tenant(view.tenant_id),
        names.queue(view.queue_id),
        names.band(view.queue_id, view.priority),
        verdict(view, held, worker=worker, now=at),
        held,
        [
            Step(event, bar, event.seconds(at), None if event.job_id is None else href_of(event.job_id))
            for event, bar in zip(found, timeline.bars(found, at), strict=True)
        ],
        told.is_cut,
        result,
        None if result is None or result.body is None else len(result.body.encode()),
        worker,
        [row for row in told.returns if row.kind == "redriven"],
        [row for row in told.returns if row.kind == "corrected"],
        _origin(told, job_id, href_of),
        [(format_id(row.job_id), href_of(row.job_id)) for row in forks],
        entries.rows,
        at,
    )


def _why(job_id: int, scope: Scope, now: datetime | None) -> Why | None:
    """What holds the job; None where that cannot be said just now: the page shows the rest."""
    try:
        return why(job_id, scope=scope, now=now)
    except JobsPlatformError:
        return None


def _result(view: JobView, scope: Scope) -> ResultView | None:
    if view.state not in (State.SUCCEEDED, State.CANCELLED, State.EXPIRED):
        return None
    with suppress(JobsPlatformError):
        return reads.result(view.job_id, scope=scope)
    return None


def _origin(told: History, job_id: int, href_of: HrefOf) -> tuple[str, str] | None:
    made: ForkRow | None = next((row for row in told.forks if row.job_id == job_id), None)
    return None if made is None else (format_id(made.origin_job_id), href_of(made.origin_job_id))
