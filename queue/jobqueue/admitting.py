"""Asks the limits on intake of one shard, and holds places below depths until the insert has filled them.

The one invariant: what waits and what is reserved never pass a depth together by admissions. A place is reserved in
a short transaction of its own, under the lock of the limits that cover it and after a count in a later statement;
its commit waits for no disk (the insert's flush covers it). `enqueue` deletes the reservation in the statement that
makes the job wait, and refuses where it is gone. So enqueues of one tenant never wait for each other's commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from django.db import connections

from jobsplatform import events, sql
from jobsplatform.errors import DeadlineInfeasible, JobsPlatformError, Unavailable, UnknownOutcome
from tenants import admission
from tenants.admission import Admitted, Ask, Cause, Limit, Refused, Scope, Verdict

NEEDS_NONE: Final = 0  # a reservation's id for a job that was asked for and needs none
ROUNDS_MAX: Final = 3  # limits that are new need their rows first
_WITHOUT_FLUSH: Final = b"SELECT set_config('synchronous_commit', 'off', true)"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A job's way past the limits: the reservation that its insert must delete, and the allowances it spent from."""

    reservation: int
    allowances: tuple[int, ...]


def admit(
    asks: Sequence[Ask], *, alias: str, now: datetime | None = None
) -> list[Ticket | JobsPlatformError]:
    """A ticket or a refusal for each ask, in order. Raises Unavailable."""
    limits, verdicts, held = _under_lock(asks, alias, now)
    for limit in limits:
        if limit.has_reached_warning:
            scope, depth = limit.scope, limit.max_depth
            events.emit(
                "quota_warning",
                tenant_id=scope.tenant_id,
                queue=scope.queue,
                band=scope.band,
                max_depth=depth,
            )
    drains = _drains(verdicts, alias, now)
    answers = [
        _ticket(ask, verdict, held)
        if isinstance(verdict, Admitted)
        else admission.error(verdict, drains.get(verdict.limit.scope))
        for ask, verdict in zip(asks, verdicts, strict=True)
    ]
    _tell(asks, answers)
    return answers


def give_back(tickets: Iterable[Ticket], *, alias: str) -> None:
    """Return the tokens of admitted jobs that were not stored. A failure costs their tenant these tokens, no more."""
    counts = Counter(allowance for ticket in tickets for allowance in ticket.allowances)
    if counts:
        params = {"ids": list(counts), "counts": list(counts.values())}
        with suppress(JobsPlatformError):
            sql.rows("tenants/give_back", params, alias=alias, writes=True)


def infeasible(
    asks: Sequence[tuple[Ask, datetime]], *, alias: str, now: datetime | None = None
) -> list[DeadlineInfeasible | None]:
    """For each ask and its deadline: the refusal if the present drain would start it too late."""
    scopes = list(dict.fromkeys(ask.scope for ask, _ in asks))
    rows = sql.rows("jobqueue/outlook", _columns(scopes) | {"now": now}, alias=alias) if scopes else []
    starts = {scopes[ord_ - 1]: start for ord_, start in rows}
    return [_infeasible(starts.get(ask.scope), deadline) for ask, deadline in asks]


def _infeasible(start: datetime | None, deadline: datetime) -> DeadlineInfeasible | None:
    if start is None or start < deadline:
        return None
    return DeadlineInfeasible(f"At the present drain the job would start at {start:%Y-%m-%dT%H:%M:%SZ}.")


# Under the lock


def _under_lock(
    asks: Sequence[Ask], alias: str, now: datetime | None
) -> tuple[list[Limit], list[Verdict], dict[Scope, int]]:
    """The limits, the verdicts, and the reservations that were made, by scope."""
    is_nested = connections[alias].in_atomic_block
    try:
        return sql.short_transaction(
            alias, lambda connection: _Admission(connection, asks, now, is_nested=is_nested).run()
        )
    except UnknownOutcome as lost:  # nothing was accepted: at worst places stay held until they are swept
        raise Unavailable("The database was lost while limits were asked.") from lost


class _Admission:
    """One admission: locks, counts, judges, reserves."""

    def __init__(
        self,
        connection: psycopg.Connection[sql.Row],
        asks: Sequence[Ask],
        now: datetime | None,
        *,
        is_nested: bool,
    ) -> None:
        self.connection, self.asks, self.now, self.is_nested = connection, asks, now, is_nested
        self.scopes = sorted({scope for ask in asks for scope in ask.scopes})
        self.at = now

    def run(self) -> tuple[list[Limit], list[Verdict], dict[Scope, int]]:
        if not self.is_nested:  # the setting would reach the commit of the transaction around this one
            self.connection.execute(_WITHOUT_FLUSH)
        sql.by_one_plan(self.connection)
        limits = self._locked()
        self._count([limit for limit in limits if limit.must_count(self._asked(limit.scope))])
        verdicts = admission.judge(self.asks, {limit.scope: limit for limit in limits})
        self._note_refusals(verdicts)
        return limits, verdicts, self._reserve(limits, verdicts)

    def _locked(self) -> list[Limit]:
        """What is left of every limit that covers an ask, held until the end of the transaction."""
        for _ in range(ROUNDS_MAX):
            self._send("tenants/allowance_lock", _columns(self.scopes))
            rows = self._send("jobqueue/admit_limits", _columns(self.scopes) | {"now": self.now}).fetchall()
            limits = [_limit(row) for row in rows]
            missing = sorted(limit.scope for limit in limits if limit.allowance is None)
            if not missing:
                self.at = rows[0][-1] if rows else None
                return limits
            self._send("tenants/allowance_make", _columns(missing))
        raise Unavailable("The limits are being changed; repeat.")

    def _asked(self, scope: Scope) -> int:
        return sum(scope in ask.scopes for ask in self.asks)

    def _count(self, limits: Sequence[Limit]) -> None:
        """Count what waits under these limits, in a statement after the one that locked them."""
        if not limits:
            return
        params = _columns([limit.scope for limit in limits]) | {
            "bounds": [limit.max_depth for limit in limits]
        }
        for ord_, waiting in self._send("jobqueue/depth_count", params).fetchall():
            limits[ord_ - 1].count(int(waiting))

    def _reserve(self, limits: Sequence[Limit], verdicts: Sequence[Verdict]) -> dict[Scope, int]:
        """Store what is left, and a reservation for each scope in which admitted jobs take up depth."""
        places = Counter(
            ask.scope
            for ask, verdict in zip(self.asks, verdicts, strict=True)
            if isinstance(verdict, Admitted) and any(limit.max_depth is not None for limit in verdict.limits)
        )
        spent = [limit for limit in limits if limit.is_worth_keeping]
        if not spent and not places:
            return {}
        params = {
            "ids": [limit.allowance for limit in spent],
            "tokens": [limit.tokens for limit in spent],
            "rooms": [limit.room for limit in spent],
            "counted_for": [limit.max_depth for limit in spent],
            "is_counted": [limit.is_counted for limit in spent],
            "jobs": list(places.values()),
            "at": self.at,
        }
        rows = self._send("tenants/reserve", params | _columns(list(places))).fetchall()
        return {Scope(*scope): reservation for reservation, *scope in rows}

    def _note_refusals(self, verdicts: Sequence[Verdict]) -> None:
        """Leave rows of what was turned away, for upkeep to count; their commit waits for no disk."""
        turned_away = Counter(
            (Scope(ask.tenant_id, verdict.limit.scope.queue, verdict.limit.scope.band), verdict.named)
            for ask, verdict in zip(self.asks, verdicts, strict=True)
            if isinstance(verdict, Refused)
        )
        if turned_away:
            params = _columns([scope for scope, _ in turned_away]) | {
                "causes": [cause for _, cause in turned_away],
                "jobs": list(turned_away.values()),
                "at": self.at,
            }
            self._send("tenants/refuse", params)

    def _send(self, statement: str, params: dict[str, Any]) -> psycopg.Cursor[sql.Row]:
        return sql.send(self.connection, statement, params)


def _columns(scopes: Sequence[Scope]) -> dict[str, Any]:
    return {
        "tenant_ids": [scope.tenant_id for scope in scopes],
        "queues": [scope.queue for scope in scopes],
        "bands": [scope.band for scope in scopes],
    }


def _limit(row: sql.Row) -> Limit:
    (
        tenant_id,
        queue,
        band,
        max_depth,
        max_payload_bytes,
        rate,
        burst,
        allowance,
        tokens,
        room,
        counted_s,
        _,
    ) = row
    return Limit(
        Scope(tenant_id, queue, band),
        max_depth,
        max_payload_bytes,
        rate,
        burst,
        allowance,
        tokens,
        room,
        counted_s,
    )


# Answers


def _ticket(ask: Ask, verdict: Admitted, held: dict[Scope, int]) -> Ticket:
    spent = tuple(limit.allowance for limit in verdict.limits if limit.tokens is not None and limit.allowance)
    takes_depth = any(limit.max_depth is not None for limit in verdict.limits)
    return Ticket(held[ask.scope] if takes_depth else NEEDS_NONE, spent)


def _drains(verdicts: Sequence[Verdict], alias: str, now: datetime | None) -> dict[Scope, float]:
    """How many jobs a second leave the scopes that are full; those without measurements are missing."""
    scopes = sorted({v.limit.scope for v in verdicts if isinstance(v, Refused) and v.cause is Cause.DEPTH})
    if not scopes:
        return {}
    rows = sql.rows("jobqueue/drain", _columns(scopes) | {"now": now}, alias=alias)
    return {scopes[ord_ - 1]: rate for ord_, rate in rows}


def _tell(asks: Sequence[Ask], answers: Sequence[Ticket | JobsPlatformError]) -> None:
    refusals = Counter(
        (ask.queue, answer.code)
        for ask, answer in zip(asks, answers, strict=True)
        if isinstance(answer, JobsPlatformError)
    )
    for (queue, code), count in refusals.items():
        events.emit("refused", queue=queue, outcome=code, count=count)
