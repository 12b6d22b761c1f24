"""Why a job waits: what holds it, what comes first, and when its turn may come.

Computed from what a claim reads and by what a claim decides (`policy.line`), without a lock and within bounds: beyond
the first starts the policy's order is carried on in proportion. A tenant's caller is told of its own jobs alone.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg

from jobqueue import claiming, policies, reads, why_dependency
from jobqueue.limits import CLAIM_PROBES_MAX, REREADS_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.policy.line import Line
from jobqueue.policy.parts import Part
from jobqueue.policy.types import Head, Policy, State, Take
from jobqueue.states import State as JobState
from jobqueue.states import WaitReason
from jobqueue.types import Gate, Scope
from jobsplatform import database, sql
from jobsplatform.errors import Unavailable
from jobsplatform.instants import format_instant, format_optional

# In the order of the checks; what is not here yet holds nothing yet.
GATES: Final = (
    "not_due",
    "retry_wait",
    "no_capable_worker",
    "paused",
    "deadline",
    "dependency",
    "breaker",
    "rate",
    "tenant_quota",
    "band_share",
    "none",
)
CAPABLE_SECONDS: Final = 60  # a worker that has not asked for so long is not counted on
STARTS_AHEAD_MAX: Final = 200  # starts that are planned one by one
RANK_MAX: Final = 10_000  # jobs of its own tenant and band before it are counted so far
DRAIN_MINUTES: Final = 5  # the drain is measured over them


@dataclass(frozen=True, slots=True)
class Why:
    """`position` is 1 for the next to start; None for a job that is not in line. Bounds of the start are instants."""

    state: str
    gates: tuple[Gate, ...]
    position: int | None = None
    ahead: int | None = None
    start_between: tuple[datetime, datetime] | None = None

    def members(self) -> dict[str, Any]:
        """As the contract spells it."""
        start = self.start_between
        return {
            "state": self.state,
            "gates": [gate._asdict() | {"until": format_optional(gate.until)} for gate in self.gates],
            "position": self.position,
            "ahead": self.ahead,
            "start_between": None if start is None else [format_instant(instant) for instant in start],
        }


class _Facts(NamedTuple):
    """The row of `why_job`."""

    fresh: bool | None
    position: datetime | None
    deadline: datetime | None
    due_at: datetime | None
    reason: str | None
    queue_id: int
    band: int
    tenant_id: int
    kind: str
    is_queue_paused: bool
    is_tenant_paused: bool
    claim_class: bytes | None
    kinds: list[str] | None
    max_priority: int | None
    is_capable: bool
    at: datetime
    dependency: str
    gated_until: datetime | None
    needs_budget: bool  # it is a retry that is due


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a job stands. `rank`: jobs of its tenant in its band before it; `in_band`: jobs of its band ahead."""

    rank: int
    ahead: int
    in_band: int
    is_exact: bool = True
    by_band: Counter[int] = field(default_factory=Counter)


def why(job_id: int, *, scope: Scope, now: datetime | None = None) -> Why:
    """What holds a job. Raises NotFound; Unavailable when it kept moving while it was looked at."""
    for _ in range(REREADS_MAX):
        view = reads.job(job_id, scope=scope)
        if view.state == JobState.RUNNING:
            return Why(view.state, (Gate("none", "It runs."),))
        if view.state not in (JobState.READY, JobState.SCHEDULED):
            assert view.state is not None
            return Why(view.state, (Gate("none", "It has ended."),))
        alias = database.alias_of(job_id)
        assert alias is not None, "it was read from there"
        params = {"job_id": job_id, "capable_s": CAPABLE_SECONDS, "now": now}
        rows = sql.rows("jobqueue/why_job", params, alias=alias)
        if rows:
            return _Asked(job_id, alias, scope, _Facts(*rows[0])).answer()
    raise Unavailable("The job is moving; repeat.")


class _Asked:
    """One question about a job that waits."""

    def __init__(self, job_id: int, alias: str, scope: Scope, facts: _Facts) -> None:
        self.job_id, self.alias, self.facts = job_id, alias, facts
        self.own_tenant = scope.tenant_id  # None: it may be told of every tenant's jobs
        name = policies.names({facts.queue_id})[facts.queue_id]
        self.queue: QueuePolicy = policies.by_name(name)
        self.policy: Policy = self.queue.scheduling

    @property
    def _lanes(self) -> dict[str, Any]:
        """Its tenant's lanes of its band, as parameters."""
        facts = self.facts
        return {"queue_id": facts.queue_id, "priority": facts.band, "tenant_id": facts.tenant_id}

    def answer(self) -> Why:
        facts = self.facts
        gates = self._held_back()
        gates += why_dependency.gates(facts.dependency, self.alias, facts.at)
        if facts.due_at is not None:
            return Why(JobState.SCHEDULED, _ordered([self._not_due(), *gates]))
        quotas = self._quotas()
        place = self._place()
        is_held = any(gate.gate != "deadline" for gate in gates)
        start = None if is_held or self._is_late else self._start(place, is_limited=bool(quotas))
        if (
            start is not None
            and facts.deadline is not None
            and not self._is_late
            and facts.deadline < start[0]
        ):
            detail = "At the present pace its turn comes after its deadline."
            gates.append(Gate("deadline", detail, facts.deadline))
        gates += quotas
        if place.ahead:
            gates.append(Gate("band_share", self._first(place)))
        free = Gate("none", "Nothing holds it: it starts with the next claim.")
        return Why(JobState.READY, _ordered(gates or [free]), place.ahead + 1, place.ahead, start)

    # What holds it

    @property
    def _is_late(self) -> bool:
        return self.facts.deadline is not None and self.facts.deadline <= self.facts.at

    def _not_due(self) -> Gate:
        due_at = self.facts.due_at
        if self.facts.needs_budget:
            detail = f"It is due for another try; the retry budget of queue {self.queue.name} lets it through in turn."
            return Gate("retry_wait", detail)
        if self.facts.reason == WaitReason.RETRY:
            return Gate("retry_wait", "An attempt failed; it is tried again then.", due_at)
        return Gate("not_due", "It is delayed until then.", due_at)

    def _held_back(self) -> list[Gate]:
        """What holds it whoever else waits."""
        facts, gates = self.facts, []
        if not facts.is_capable and facts.due_at is None:
            band = self.policy.bands[facts.band].name
            detail = f"No worker has asked for {facts.kind} in {band} within {CAPABLE_SECONDS} s."
            gates.append(Gate("no_capable_worker", detail))
        if facts.is_queue_paused:
            gates.append(Gate("paused", f"Queue {self.queue.name} is paused."))
        if facts.is_tenant_paused:
            gates.append(Gate("paused", "Its tenant is paused."))
        if facts.gated_until is not None:
            detail = f"Too many jobs of kind {facts.kind} of its tenant were poison: its lane is held back."
            gates.append(Gate("paused", detail, facts.gated_until))
        if self._is_late:
            gates.append(Gate("deadline", "Its deadline has passed: it starts no more.", facts.deadline))
        return gates

    def _quotas(self) -> list[Gate]:
        gates = []
        for queue, band, most, running in sql.rows("jobqueue/why_limits", self._lanes, alias=self.alias):
            if running >= most:
                part = "over all queues" if not queue else f"in queue {queue}"
                part += "" if band is None else f", band {self.policy.bands[band].name}"
                gates.append(Gate("tenant_quota", f"Its tenant runs {running} of {most} jobs {part}."))
        return gates

    def _first(self, place: _Place) -> str:
        """In words, what comes before it."""
        count = f"{place.ahead:,}" if place.is_exact else f"About {place.ahead:,}"
        whose = "" if self.own_tenant is None else "of its tenant "
        text = f"{count} {'job' if place.ahead == 1 else 'jobs'} {whose}first"
        parts = [f"{n} in {self.policy.bands[band].name}" for band, n in sorted(place.by_band.items())]
        if not parts:
            return f"{text}."
        start = ":" if place.is_exact else f"; of the next {place.by_band.total()}:"
        return f"{text}{start} {', '.join(parts)}."

    # Where it stands

    def _place(self) -> _Place:
        facts = self.facts
        params = self._lanes | {"fresh": facts.fresh, "position": facts.position}
        params |= {"job_id": self.job_id, "bound": RANK_MAX}
        rank = int(sql.rows("jobqueue/why_rank", params, alias=self.alias)[0][0])
        takes = self._line().until(self.job_id, STARTS_AHEAD_MAX)
        is_met = bool(takes) and takes[-1].head.job_id == self.job_id
        before = takes[:-1] if is_met else takes
        by_band = Counter(take.head.priority for take in before)
        place = _Place(rank, len(before), by_band[facts.band], by_band=by_band)
        return place if is_met else self._carried_on(place, before)

    def _carried_on(self, place: _Place, planned: Sequence[Take]) -> _Place:
        """Its place behind the planned starts, if its tenant goes on to get the part that it had of them."""
        facts = self.facts
        own = sum((t.head.tenant_id, t.head.priority) == (facts.tenant_id, facts.band) for t in planned)
        left = max(0, place.rank - own)
        part = own / len(planned) if own and len(planned) >= STARTS_AHEAD_MAX else 1.0
        ahead = len(planned) + round(left / part)
        in_band = place.in_band + round(left / part * place.in_band / len(planned)) if own else place.rank
        return replace(place, ahead=ahead, in_band=in_band, is_exact=False)

    def _line(self) -> Line:
        parts = {
            Part.STRICT: [i for i, band in enumerate(self.policy.bands) if band.strict],
            Part.WEIGHTED: [i for i, band in enumerate(self.policy.bands) if not band.strict],
        }
        read = {part: self._read(part, bands) for part, bands in parts.items()}
        return Line(
            self.policy,
            {part: state for part, (state, _) in read.items()},
            {part: heads for part, (_, heads) in read.items()},
            now=self.facts.at,
        )

    def _read(self, part: Part, bands: list[int]) -> tuple[State, list[Head]]:
        """The state and heads of one part, as the next claim that could take the job would read them."""
        last = self.facts.max_priority
        asked = [band for band in bands if last is None or band <= last]
        if not asked:
            return State(), []

        def read(connection: psycopg.Connection[sql.Row]) -> tuple[State, list[sql.Row]]:
            sql.by_one_plan(connection)
            params = self._head_params(part, asked)
            state = sql.send(connection, "jobqueue/claim_state", params)
            heads = sql.send(connection, "jobqueue/claim_heads", params)
            *stored, _ = state.fetchall()[0]
            return State.from_json(*stored) if self.own_tenant is None else State(), heads.fetchall()

        state, rows = sql.short_transaction(self.alias, read)
        # The room of a limited tenant or dependency is taken not to run out.
        endless = {row[-1]: sys.maxsize for row in rows if row[-1] is not None}
        return state, claiming.heads_of(rows, {row[2]: [] for row in rows}, endless)

    def _head_params(self, part: Part, bands: list[int]) -> dict[str, Any]:
        facts = self.facts
        return {
            "queue_id": facts.queue_id,
            "claim_class": facts.claim_class or b"",
            "part": part,
            "bands": bands,
            "after": None if self.own_tenant is None else [0] * len(bands),
            "kinds": facts.kinds,
            "tenant_id": self.own_tenant,
            "busy": None,
            "wanted": STARTS_AHEAD_MAX,
            "heads": CLAIM_PROBES_MAX,
            "probes": CLAIM_PROBES_MAX,
            "is_costed": self.policy.is_costed,
            "now": facts.at,
        }

    # When

    def _start(self, place: _Place, *, is_limited: bool) -> tuple[datetime, datetime] | None:
        """Between which instants its turn comes at the pace of the last minutes; None without starts in them."""
        facts = self.facts
        is_own = is_limited or self.own_tenant is not None
        waiting = place.rank if is_own else place.in_band
        params = self._lanes | {"minutes": DRAIN_MINUTES, "now": facts.at}
        params["tenant_id"] = facts.tenant_id if is_own else None
        minutes = [int(row[0]) for row in sql.rows("jobqueue/why_drain", params, alias=self.alias)]
        if not minutes:
            return None
        slow = min(min(minutes), sum(minutes) / DRAIN_MINUTES)
        return (
            facts.at + timedelta(minutes=waiting / max(minutes)),
            facts.at + timedelta(minutes=(waiting + 1) / slow),
        )


def _ordered(gates: list[Gate]) -> tuple[Gate, ...]:
    return tuple(sorted(gates, key=lambda gate: GATES.index(gate.gate)))
