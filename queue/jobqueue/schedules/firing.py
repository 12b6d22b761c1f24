"""Fires schedules: what is due becomes jobs, each instant once, however many dispatchers there are.

A round reads what is due, decides by the pure policy, and lets one statement make the fires' rows, their jobs and the
schedules' next instants. Whoever is second finds the schedule moved on, and does nothing.

What keeps a fire from its job without a schedule's own doing (intake is paused, the tenant is suspended, a quota is
full) holds the schedule: it is looked at again a little later, and by then `missed` says what becomes of fires that
were overtaken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import DatabaseError, InterfaceError

from jobqueue import admitting, kinds, lanes, policies, wakeup
from jobqueue.lanes import LaneKey
from jobqueue.policy.catchup import Decision, Missed, decide, due
from jobqueue.schedules import expressions
from jobqueue.states import FireOutcome
from jobsplatform import events, everywhere, sql
from jobsplatform.errors import Invalid, JobsPlatformError
from tenants.admission import Ask
from tenants.models import Tenant

PACE_SECONDS: Final = 1.0  # between fires that are made up
RUNS_MAX: Final = 100  # jobs of earlier fires that `overlap` looks at
HOLD_SECONDS: Final = 5  # paused intake, a suspended tenant
HOLD_SECONDS_MAX: Final = 30  # a full quota, by its Retry-After
KEEP_SECONDS: Final = 30 * 86_400  # of the history of fires
UNREADABLE_SECONDS: Final = 60  # an expression or a zone that this process does not know

INTAKE_PAUSED: Final = "intake_paused"
UNADMITTED: Final = "unadmitted"
HOMELESS: Final = "homeless"

_suspended: set[int] = set()  # as the control database said when it was last reached


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule that is due, and what was decided about it."""

    schedule_id: int
    version: int
    next_at: datetime
    lane: LaneKey
    queue: str
    payload_bytes: int
    decision: Decision

    @property
    def ask(self) -> Ask:
        """What limits on intake must know of its job."""
        return Ask(self.lane.tenant_id, self.queue, self.lane.priority, self.payload_bytes)


def fire(limit: int = 1_000, now: datetime | None = None) -> int:
    """Make the fires of up to `limit` schedules that are due. Returns how many this call settled or held.

    Those that another dispatcher took at this moment do not count: who is second need not hurry back.

    A shard that cannot be reached does not hold up the others.
    """
    return everywhere.upkeep(lambda alias: _Round(alias, now).run(limit))


class _Round:
    """One look at one shard."""

    def __init__(self, alias: str, now: datetime | None) -> None:
        self.alias, self.now = alias, now
        self.held: list[tuple[int, int, datetime, int]] = []  # schedule, version, next_at, seconds
        self.fired: set[int] = set()  # schedules whose jobs were made
        self.counts: Counter[tuple[str, str]] = Counter()  # fires by queue and outcome
        self.missed = 0
        self.settled = 0
        self.homeless: list[Candidate] = []
        self.made_ready: set[wakeup.Mark] = set()
        self.kinds: dict[str, kinds.Kind] = {}

    def run(self, limit: int) -> int:
        rows = sql.rows("jobqueue/schedule_due", {"limit": limit, "now": self.now}, alias=self.alias)
        if not rows:
            return 0
        suspended = suspended_among({row[2] for row in rows})
        self.kinds = kinds.load({row[5] for row in rows}, alias=self.alias)
        candidates = [found for row in rows if (found := self._judge(row, suspended)) is not None]
        unadmitted = self._send(candidates, {})
        if self.homeless:
            unadmitted += self._send_healed()
        if unadmitted:
            self._send_admitted(unadmitted)
        self._hold()
        wakeup.ready(self.alias, self.made_ready)
        self._tell()
        return self.settled + len(self.held)

    def _judge(self, row: sql.Row, suspended: set[int]) -> Candidate | None:
        """What to do about one due schedule; None: it is held."""
        schedule_id, version, tenant_id, queue_id, priority, kind, cron, timezone, missed, *rest = row
        payload_bytes, next_at, queue, at = rest
        if tenant_id in suspended:
            self.held.append((schedule_id, version, next_at, HOLD_SECONDS))
            return None
        try:
            rule = expressions.rule(cron, timezone)
        except Invalid:
            self.held.append((schedule_id, version, next_at, UNREADABLE_SECONDS))
            events.emit("schedule_unreadable", schedule_id=schedule_id, timezone=timezone)
            return None
        decision = decide(Missed(missed), due(rule, next_at, at), at)
        known = self.kinds.get(kind)
        dependency = "" if known is None else known.dependency or ""
        lane = LaneKey(queue_id, priority, tenant_id, kind, dependency)
        return Candidate(schedule_id, version, next_at, lane, queue or "", payload_bytes, decision)

    def _send(self, candidates: Sequence[Candidate], reservations: dict[int, int]) -> list[Candidate]:
        """Run the statement. Returns those whose limits must be asked first."""
        if not candidates:
            return []
        params = self._params(candidates, reservations)
        unadmitted = []
        for ord_, _, outcome in sql.rows("jobqueue/schedule_fire", params, alias=self.alias, writes=True):
            candidate = candidates[ord_ - 1]
            if outcome == UNADMITTED:
                unadmitted.append(candidate)
            elif outcome == INTAKE_PAUSED:
                self._put_off(candidate, HOLD_SECONDS)
            elif outcome == HOMELESS:
                self.homeless.append(candidate)
            else:
                self._note(candidate, outcome)
        return unadmitted

    def _params(self, candidates: Sequence[Candidate], reservations: dict[int, int]) -> dict[str, Any]:
        lane_of = lanes.lane_ids({one.lane for one in candidates}, alias=self.alias)
        return {
            "schedule_ids": [one.schedule_id for one in candidates],
            "versions": [one.version for one in candidates],
            "next_ats": [one.next_at for one in candidates],
            "nominal_ats": [one.decision.fire for one in candidates],
            "following": [one.decision.following for one in candidates],
            "skipped": [one.decision.skipped for one in candidates],
            "is_paced": [one.decision.is_paced for one in candidates],
            "lane_ids": [lane_of.get(one.lane) for one in candidates],
            "reservations": [reservations.get(one.schedule_id) for one in candidates],
            "pace_s": PACE_SECONDS,
            "runs_max": RUNS_MAX,
            "now": self.now,
        }

    def _send_healed(self) -> list[Candidate]:
        """Make what was missing and try once more; who is homeless still is looked at again a little later."""
        again, self.homeless = self.homeless, []
        heal({one.lane.queue_id for one in again})
        unadmitted = self._send(again, {})
        for candidate in self.homeless:
            self._put_off(candidate, HOLD_SECONDS)
        return unadmitted

    def _note(self, candidate: Candidate, outcome: str | None) -> None:
        self.settled += 1
        self.missed += candidate.decision.skipped
        if outcome == FireOutcome.FIRED:
            self.fired.add(candidate.schedule_id)
            self.made_ready.add(wakeup.Mark(candidate.lane.queue_id, candidate.lane.priority))
        if outcome is not None:
            self.counts[candidate.queue, outcome] += 1

    def _send_admitted(self, candidates: Sequence[Candidate]) -> None:
        """Ask the limits on intake; fire what they admit and hold the rest."""
        verdicts = admitting.admit([one.ask for one in candidates], alias=self.alias, now=self.now)
        tickets: dict[int, admitting.Ticket] = {}
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            if isinstance(verdict, JobsPlatformError):
                self._put_off(candidate, min(verdict.retry_after or HOLD_SECONDS, HOLD_SECONDS_MAX))
            else:
                tickets[candidate.schedule_id] = verdict
        admitted = [one for one in candidates if one.schedule_id in tickets]
        self._send(admitted, {key: ticket.reservation for key, ticket in tickets.items()})
        unused = (ticket for key, ticket in tickets.items() if key not in self.fired)
        admitting.give_back(unused, alias=self.alias)

    def _put_off(self, candidate: Candidate, seconds: int) -> None:
        self.held.append((candidate.schedule_id, candidate.version, candidate.next_at, seconds))

    def _hold(self) -> None:
        if not self.held:
            return
        ids, versions, next_ats, seconds = (list(column) for column in zip(*self.held, strict=True))
        params = {"schedule_ids": ids, "versions": versions, "next_ats": next_ats, "holds_s": seconds}
        sql.rows("jobqueue/schedule_hold", params | {"now": self.now}, alias=self.alias, writes=True)

    def _tell(self) -> None:
        for (queue, outcome), count in self.counts.items():
            events.emit("fired", queue=queue, outcome=outcome, count=count)
        if self.missed:
            events.emit("fires_missed", count=self.missed)


def suspended_among(tenant_ids: Iterable[int]) -> set[int]:
    """Which of these tenants are suspended; while the control database is away, as it last said."""
    asked = set(tenant_ids)
    try:
        found = set(Tenant.objects.filter(pk__in=asked, is_suspended=True).values_list("pk", flat=True))
    except (DatabaseError, InterfaceError):
        return asked & _suspended
    _suspended.difference_update(asked - found)
    _suspended.update(found)
    return found


def heal(queue_ids: set[int]) -> None:
    """A lane or a policy row is missing on a shard (it was replaced, or missed a push): make them anew."""
    lanes.forget()
    for name in policies.names(queue_ids).values():
        policies.push_by_name(name)


def purge(limit: int = 5_000, now: datetime | None = None) -> int:
    """Forget fires that are older than `KEEP_SECONDS`, on every shard. Returns how many."""
    params = {"limit": limit, "keep_s": KEEP_SECONDS, "now": now}
    return everywhere.upkeep(
        lambda alias: int(sql.rows("jobqueue/purge_fires", params, alias=alias, writes=True)[0][0])
    )
