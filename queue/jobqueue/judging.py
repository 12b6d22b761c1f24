"""Judges dependencies on a shard: what their calls told moves breaker, concurrency limit and ramp.

The algebra is `policy.breaker` and `policy.limit`; here one transaction holds the row, consumes what statements wrote,
decides, and stores. Failures are judged as soon as they are known, so that an outage opens the breaker after a few
calls; everything else by the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Final, NamedTuple

import psycopg
from django.db import DatabaseError, InterfaceError
from django.db.models import Q

from jobqueue.models import Dependency
from jobqueue.policy import breaker as breakers
from jobqueue.policy.breaker import Breaker, BreakerState, Probe, Rules
from jobqueue.policy.limit import Limit
from jobqueue.states import AttemptOutcome, ErrorClass
from jobsplatform import database, events, everywhere, sql
from jobsplatform.errors import Unavailable, UnknownOutcome

FOLD_LIMIT: Final = 50_000  # rows that one judgement consumes


class _Facts(NamedTuple):
    """The row of `dependency_facts`."""

    breaker: str
    counted_from: datetime | None
    probe_at: datetime | None
    probe_job_id: int | None
    ramp_from: datetime | None
    limit_now: float | None
    max_running: int | None
    halved_at: datetime | None
    share: float | None
    calls_min: int
    window_s: int
    probe_after_s: int
    ramp_s: int
    calls: int
    failures: int
    is_probe_held: bool | None
    outcome: str | None
    error_class: str | None
    at: datetime

    @property
    def rules(self) -> Rules:
        return Rules(self.share, self.calls_min, self.window_s, self.probe_after_s, self.ramp_s)

    @property
    def standing(self) -> Breaker:
        has_probe = self.probe_job_id is not None
        state = BreakerState(self.breaker)
        return Breaker(state, self.counted_from, self.probe_at, has_probe, self.ramp_from)

    @property
    def limit(self) -> Limit:
        return Limit(self.limit_now, self.max_running, self.halved_at)

    @property
    def probe(self) -> Probe:
        """What became of the half-open breaker's job."""
        if self.probe_job_id is None:
            return Probe.NONE
        if self.outcome is None:
            return Probe.RUNNING if self.is_probe_held else Probe.FAILED  # lapsed: a lost probe has failed
        if self.outcome == AttemptOutcome.SUCCEEDED:
            return Probe.SUCCEEDED
        if self.outcome in (AttemptOutcome.RELEASED, AttemptOutcome.CANCELLED):
            return Probe.SILENT
        return Probe.SILENT if self.error_class == ErrorClass.PERMANENT else Probe.FAILED


def judge(now: datetime | None = None) -> int:
    """Judge every dependency of which something is new, on every shard. Returns how many changed."""
    return everywhere.upkeep(lambda alias: judge_on(alias, now=now))


def judge_on(alias: str, now: datetime | None = None) -> int:
    """`judge` on one shard."""
    return _judge_due(alias, failing=False, now=now)


def judge_failing(alias: str, now: datetime | None = None) -> int:
    """Judge those whose calls have just failed. One that another judges is left to it: there is more to come.

    Called after a failure was committed, which an error here must not put in doubt: then the dispatcher judges.
    """
    try:
        return _judge_due(alias, failing=True, now=now)
    except (Unavailable, UnknownOutcome):
        return 0


def close(alias: str, name: str, now: datetime | None = None) -> bool:
    """Close a breaker by an operator's word: earlier calls count no more, starts ramp up. False: it was closed."""

    def decide(facts: _Facts) -> Breaker:
        is_closed = facts.breaker == BreakerState.CLOSED
        return facts.standing if is_closed else breakers.closed(facts.at)

    return _judge_one(alias, name, decide, waits=True, now=now)


def _judge_due(alias: str, *, failing: bool, now: datetime | None) -> int:
    names = sql.rows("jobqueue/dependency_due", {"failing": failing}, alias=alias)
    return sum(_judge_one(alias, name, _decided, waits=not failing, now=now) for (name,) in names)


def _decided(facts: _Facts) -> Breaker:
    return facts.standing.judged(
        facts.rules, calls=facts.calls, failures=facts.failures, probe=facts.probe, now=facts.at
    )


def _judge_one(
    alias: str, name: str, decide: Callable[[_Facts], Breaker], *, waits: bool, now: datetime | None
) -> bool:
    """Judge one dependency in a transaction. Returns whether its breaker changed its state."""
    may_probe = _may_probe(alias, name, now)

    def action(connection: psycopg.Connection[sql.Row]) -> tuple[str, str] | None:
        connection.execute(sql.BY_INDEX)
        statement = "jobqueue/dependency_wait" if waits else "jobqueue/dependency_try"
        if not sql.send(connection, statement, {"name": name}).fetchall():
            return None
        folded = sql.send(connection, "jobqueue/dependency_fold", {"name": name, "limit": FOLD_LIMIT})
        read = sql.send(connection, "jobqueue/dependency_facts", {"name": name, "now": now})
        facts = _Facts(*read.fetchall()[0])
        after = decide(facts)
        if facts.breaker == BreakerState.OPEN and after.state is BreakerState.HALF_OPEN and not may_probe:
            after = facts.standing
        limit = _limit(facts, *folded.fetchall()[0])
        if (after, limit) != (facts.standing, facts.limit):
            sql.send(connection, "jobqueue/dependency_store", _row(name, after, limit))
        return facts.breaker, after.state.value

    led = sql.short_transaction(alias, action)
    if led is None or led[0] == led[1]:
        return False
    if led[0] == BreakerState.HALF_OPEN:
        _give_permit_back(alias, name)
    events.emit(f"breaker_{led[1]}", dependency=name, shard=database.number_of(alias), before=led[0])
    return True


def _limit(facts: _Facts, succeeded: int, overloaded: int, overloaded_from: datetime | None) -> Limit:
    return facts.limit.after(
        succeeded=succeeded, overloaded=overloaded, overloaded_from=overloaded_from, at=facts.at
    )


def _row(name: str, after: Breaker, limit: Limit) -> dict[str, object]:
    values = asdict(after)
    state = values.pop("state")
    stored = {"limit_now": limit.now, "halved_at": limit.halved_at}
    return {"name": name, "breaker": state.value, **values, **stored}


# The permit: while several shards are there, control lets one of them probe


def _may_probe(alias: str, name: str, now: datetime | None) -> bool:
    """Whether this shard may go from open to half open now. Takes the permit where there are several shards."""
    if len(database.aliases()) == 1:
        return True
    states = sql.rows("jobqueue/dependency_states", {"name": name, "now": now}, alias=alias)
    is_due = any(state[2] == BreakerState.OPEN and state[3] <= state[-1] for state in states)
    if not is_due:
        return False
    number = database.number_of(alias)
    free = Q(probe_shard__isnull=True) | Q(probe_shard=number)
    try:
        return bool(Dependency.objects.filter(free, name=name).update(probe_shard=number))
    except (DatabaseError, InterfaceError):
        return False  # without control nobody is let through


def _give_permit_back(alias: str, name: str) -> None:
    if len(database.aliases()) > 1:
        with suppress(DatabaseError, InterfaceError):  # `take_permits_back` sees to it
            Dependency.objects.filter(name=name, probe_shard=database.number_of(alias)).update(
                probe_shard=None
            )


def take_permits_back(standing: Mapping[tuple[str, int], str]) -> int:
    """Free the permits of shards whose breakers have closed (dependency and shard → breaker). Returns how many."""
    held = Dependency.objects.exclude(probe_shard=None).values_list("name", "probe_shard")
    over = [(name, shard) for name, shard in held if standing.get((name, shard or 0)) == BreakerState.CLOSED]
    for name, shard in over:
        Dependency.objects.filter(name=name, probe_shard=shard).update(probe_shard=None)
    return len(over)
