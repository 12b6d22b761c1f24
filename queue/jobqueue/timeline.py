"""What a job has been through, as a list of events: waits, runs, endings, calls that came too late, ways back.

`history` reads the rows; `events` is pure and makes of them what a page shows. No event is made up: each stands for
rows of the platform, and instants are the database's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db import DatabaseError

from jobqueue.reads import JobView
from jobqueue.states import State
from jobqueue.types import Scope
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, NotFound
from jobsplatform.wording import span

SHOWN_MAX: Final = 50  # attempts, late calls, ways back and forks that a history shows, each the newest

# Why a claim took a job, in words.
CHOSEN: Final = {
    "strict": "its band goes first",
    "share": "its band's share",
    "floor": "the floor of bulk work",
    "lent": "lent by an idle band",
}


class AttemptRow(NamedTuple):
    """A row of `timeline_attempts`."""

    generation: int
    attempt: int
    redrive_generation: int
    worker: str
    claimed_at: datetime
    ended_at: datetime | None
    next_at: datetime | None
    outcome: str | None
    led_to: str | None
    reason: str | None
    error_class: str | None
    message: str | None
    chosen: str
    policy_version: int


class LateRow(NamedTuple):
    """A row of `timeline_late`."""

    generation: int
    verb: str
    code: str
    at: datetime


class ReturnRow(NamedTuple):
    """A row of `timeline_returns`."""

    kind: str
    at: datetime
    actor: str
    note: str
    number: int
    was: str | None
    campaign_id: int | None
    audit_id: int | None


class ForkRow(NamedTuple):
    """A row of `timeline_forks`."""

    job_id: int
    origin_job_id: int
    at: datetime
    actor: str
    note: str


@dataclass(frozen=True, slots=True)
class History:
    """The newest rows of each sort, oldest first. `is_cut`: there were older ones."""

    attempts: Sequence[AttemptRow]
    late: Sequence[LateRow]
    returns: Sequence[ReturnRow]
    forks: Sequence[ForkRow]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a timeline. `until` None: an instant, or not over yet (`is_open`).

    `kind`: accepted, delay, wait, run, late, corrected, redriven, forked, ended. `tone`: good, bad, warn or plain.
    """

    kind: str
    at: datetime
    title: str
    until: datetime | None = None
    is_open: bool = False
    generation: int | None = None
    detail: str = ""
    message: str = ""
    tone: str = "plain"
    campaign_id: int | None = None
    job_id: int | None = None  # another job that it leads to

    def seconds(self, now: datetime) -> float | None:
        """How long it took, or takes until now; None for an instant."""
        if self.until is None and not self.is_open:
            return None
        return max(((self.until or now) - self.at).total_seconds(), 0.0)


def history(job_id: int, *, scope: Scope) -> History:
    """Read what happened to a job that the caller has been shown to see. Raises NotFound."""
    alias = database.alias_of(job_id)
    if alias is None:
        raise NotFound
    params = {"job_id": job_id, "limit": SHOWN_MAX + 1, **scope.params()}
    attempts = [AttemptRow(*row) for row in sql.rows("jobqueue/timeline_attempts", params, alias=alias)]
    late = [LateRow(*row) for row in sql.rows("jobqueue/timeline_late", params, alias=alias)]
    returns = [ReturnRow(*row) for row in sql.rows("jobqueue/timeline_returns", params, alias=alias)]
    if scope.tenant_id is not None:  # campaigns are numbered over all tenants
        returns = [row._replace(campaign_id=None) for row in returns]
    forks = list(_forks(job_id))
    is_cut = any(len(rows) > SHOWN_MAX for rows in (attempts, late, returns, forks))

    def oldest_first(rows: list[Any]) -> list[Any]:
        return rows[:SHOWN_MAX][::-1]

    return History(
        oldest_first(attempts), oldest_first(late), oldest_first(returns), oldest_first(forks), is_cut
    )


def _forks(job_id: int) -> Iterator[ForkRow]:
    """A fork stands on its own shard: each is asked, and one that is away is left out."""
    for alias in database.aliases().values():
        try:
            params = {"job_id": job_id, "limit": SHOWN_MAX + 1}
            yield from (ForkRow(*row) for row in sql.rows("jobqueue/timeline_forks", params, alias=alias))
        except (DatabaseError, JobsPlatformError):
            continue


# Events


def events(view: JobView, told: History) -> list[Event]:
    """The history of a job as events in their order."""
    found = [_accepted(view)] if not told.is_cut else []
    found += _tries(view, told)
    found += [_late(row) for row in told.late]
    found += [_return(row) for row in told.returns]
    found += [_fork(row, view.job_id) for row in told.forks]
    found += _end(view)
    # At one instant a wait ends before a run begins, and what ended a job stands last.
    return sorted(found, key=lambda event: (event.at, _ORDER.index(event.kind), event.generation or 0))


_ORDER: Final = (
    "accepted",
    "corrected",
    "redriven",
    "forked",
    "delay",
    "wait",
    "run",
    "late",
    "ended",
)


def _accepted(view: JobView) -> Event:
    detail = "" if view.request_key is None else f"Request key {view.request_key}"
    return Event("accepted", view.created_at, "Accepted", detail=detail)


def _tries(view: JobView, told: History) -> Iterator[Event]:
    """Each attempt with the waits before it, and the wait that goes on."""
    since: datetime | None = None if told.is_cut else view.created_at
    due = view.not_before
    for row in told.attempts:
        back = _latest_return(told, row.claimed_at, since)
        if back is not None:
            since, due = back.at, None
        yield from _waits(since, due, row.claimed_at, row.generation)
        yield _run(row)
        since, due = row.ended_at, row.next_at
    if view.state in (State.READY, State.SCHEDULED):
        back = _latest_return(told, None, since)
        since = back.at if back is not None else since
        if view.state == State.SCHEDULED and since is not None:
            yield Event("delay", since, "Waits for its instant", is_open=True, tone="warn")
        elif since is not None:
            ready_since = max(since, due) if due is not None and back is None else since
            if ready_since > since:
                yield Event("delay", since, _delay_title(since, view), until=ready_since)
            yield Event("wait", ready_since, "Waits in line", is_open=True)


def _delay_title(since: datetime, view: JobView) -> str:
    return "Delayed" if since == view.created_at else "Waits to be tried again"


def _latest_return(told: History, before: datetime | None, after: datetime | None) -> ReturnRow | None:
    """The redrive by which a job came back between two instants."""
    for row in reversed(told.returns):
        is_between = (before is None or row.at <= before) and (after is None or row.at >= after)
        if row.kind == "redriven" and is_between:
            return row
    return None


def _waits(
    since: datetime | None, due: datetime | None, claimed_at: datetime, generation: int
) -> Iterator[Event]:
    if since is None:
        return
    ready_at = since
    if due is not None and since < due <= claimed_at:
        yield Event("delay", since, "Waits for its instant", until=due, generation=generation)
        ready_at = due
    yield Event("wait", min(ready_at, claimed_at), "Waits in line", until=claimed_at, generation=generation)


_OUTCOME_TONES: Final = {"succeeded": "good", "failed": "bad", "lease_lost": "bad", "cancelled": "warn"}


def _run(row: AttemptRow) -> Event:
    if row.ended_at is None:
        title = f"Runs on {row.worker or 'a worker'}"
    else:
        title = f"{_said(row.outcome)} on {row.worker or 'a worker'}"
    parts = [f"Attempt {row.attempt}", CHOSEN.get(row.chosen, row.chosen), *_led(row)]
    return Event(
        "run",
        row.claimed_at,
        title,
        until=row.ended_at,
        is_open=row.ended_at is None,
        generation=row.generation,
        detail="; ".join(parts),
        message=": ".join(filter(None, [row.error_class, row.message])),
        tone=_OUTCOME_TONES.get(row.outcome or "", "plain"),
    )


def _led(row: AttemptRow) -> Iterator[str]:
    if row.led_to == State.DEAD:
        yield f"became a dead letter ({row.reason})"
    elif row.led_to == State.SCHEDULED and row.next_at is not None and row.ended_at is not None:
        yield f"to be tried again after {span((row.next_at - row.ended_at).total_seconds())}"
    elif row.led_to == State.READY and row.outcome == "lease_lost":
        yield "back to the front of its lane"


def _said(outcome: str | None) -> str:
    return (outcome or "").replace("_", " ").capitalize()


_LATE: Final = {
    "stale_generation": "a later generation had been given out",
    "lease_expired": "its lease had lapsed",
    "already_finished": "the job had ended",
    "result_conflict": "another result was durable",
}


def _late(row: LateRow) -> Event:
    why = _LATE.get(row.code, row.code.replace("_", " "))
    return Event(
        "late",
        row.at,
        f"Late {row.verb} refused",
        generation=row.generation,
        detail=f"{row.code}: {why}; nothing was changed.",
        tone="bad",
    )


def _return(row: ReturnRow) -> Event:
    if row.kind == "corrected":
        return Event(
            "corrected",
            row.at,
            f"Payload corrected by {row.actor}",
            detail=f"Version {row.number}: {row.note}",
        )
    by = f" in campaign {row.campaign_id}" if row.campaign_id is not None else ""
    return Event(
        "redriven",
        row.at,
        f"Redriven by {row.actor}{by}",
        detail=f"Redrive generation {row.number} (was dead as {row.was}): {row.note}",
        tone="good",
        campaign_id=row.campaign_id,
    )


def _fork(row: ForkRow, job_id: int) -> Event:
    if row.job_id == job_id:
        return Event(
            "forked",
            row.at,
            f"Made from another job by {row.actor}",
            detail=row.note,
            job_id=row.origin_job_id,
        )
    return Event("forked", row.at, f"Forked by {row.actor}", detail=row.note, job_id=row.job_id)


def _end(view: JobView) -> list[Event]:
    if view.finished_at is None or view.state is None:
        return []
    if view.state == State.DEAD:
        return [Event("ended", view.finished_at, f"Dead letter: {view.dead_reason}", tone="bad")]
    tone = "good" if view.state == State.SUCCEEDED else "warn"
    return [Event("ended", view.finished_at, view.state.capitalize(), tone=tone)]


# Bars


@dataclass(frozen=True, slots=True)
class Bar:
    """Where an event lies in the whole, in thousandths."""

    left: int
    width: int


def bars(found: Sequence[Event], now: datetime) -> list[Bar]:
    """A bar an event, over the time from the first to the last; what takes no time is as thin as can be seen."""
    if not found:
        return []
    begin = min(event.at for event in found)
    end = max([*(event.until or event.at for event in found), *(now for event in found if event.is_open)])
    whole = max((end - begin).total_seconds(), 0.001)

    def thousandths(length: timedelta) -> int:
        return round(min(max(length.total_seconds() / whole, 0.0), 1.0) * 1_000)

    made = []
    for event in found:
        left = min(thousandths(event.at - begin), 996)
        width = thousandths(timedelta(seconds=event.seconds(now) or 0.0))
        made.append(Bar(left, max(min(width, 1_000 - left), 4)))
    return made
