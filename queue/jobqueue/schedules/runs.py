"""Runs a schedule now, because somebody asks: a job beside its fires, also while it is paused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobqueue import admitting, kinds, lanes, wakeup
from jobqueue.ids import format_id
from jobqueue.lanes import LaneKey
from jobqueue.limits import REREADS_MAX
from jobqueue.schedule_models import Schedule
from jobqueue.schedules import reads, register
from jobqueue.schedules.firing import HOMELESS, INTAKE_PAUSED, RUNS_MAX, UNADMITTED, heal
from jobqueue.states import FireOutcome
from jobqueue.types import Scope
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError, TenantSuspended, Unavailable
from tenants import audit
from tenants.admission import Ask

REPEATED: Final = "repeated"


@dataclass(frozen=True, slots=True)
class Run:
    """The job of a run; `replayed` when the key had asked for it before."""

    job_id: int
    replayed: bool


def run_now(
    schedule_id: int,
    *,
    scope: Scope,
    actor: str,
    key: str | None = None,
    reason: str = "",
    now: datetime | None = None,
) -> Run:
    """Make a job of the schedule now. With the same `key` again: the same job.

    `overlap` does not hold it back, but the fires that follow see it. Raises NotFound, TenantSuspended, Unavailable
    (intake is paused, or the shard away), QuotaExceeded, RateLimited, QueueFull, UnknownOutcome.
    """
    row = reads.find(schedule_id, scope=scope)
    if row.tenant.is_suspended:
        raise TenantSuspended
    alias = database.aliases().get(row.shard)
    if alias is None:
        raise Unavailable(f"Shard {row.shard} is not known here.")
    return _Running(row, alias, actor, key, reason, now).run()


class _Running:
    """One request, until it has its job."""

    def __init__(
        self, row: Schedule, alias: str, actor: str, key: str | None, reason: str, now: datetime | None
    ) -> None:
        self.row, self.alias, self.actor, self.key = row, alias, actor, key
        self.reason, self.now = reason, now
        self.ticket: admitting.Ticket | None = None

    def run(self) -> Run:
        for _ in range(REREADS_MAX):
            job_id, outcome = sql.in_transaction(self.alias, self._make)
            if outcome in (FireOutcome.FIRED, REPEATED):
                self._give_back(outcome)
                wakeup.ready(self.alias, {wakeup.Mark(self.row.queue_id, self.row.priority)})
                return Run(job_id, outcome == REPEATED)
            self._prepare(outcome)
        raise Unavailable("The schedule is being changed; repeat.")

    def _make(self) -> tuple[int, str | None]:
        """The statement, and the audit of a run that it made. `homeless` also where the schedule is not there."""
        known = kinds.load([self.row.kind], alias=self.alias).get(self.row.kind)
        dependency = "" if known is None else known.dependency or ""
        lane = LaneKey(self.row.queue_id, self.row.priority, self.row.tenant_id, self.row.kind, dependency)
        lane_id = lanes.lane_ids([lane], alias=self.alias).get(lane)
        if lane_id is None:
            raise lanes.too_many()
        params: dict[str, Any] = {
            "schedule_id": self.row.pk,
            "lane_id": lane_id,
            "reservation": None if self.ticket is None else self.ticket.reservation,
            "run_key": self.key,
            "runs_max": RUNS_MAX,
            "now": self.now,
        }
        rows = sql.rows("jobqueue/schedule_run", params, alias=self.alias)
        job_id, outcome = rows[0] if rows else (0, HOMELESS)
        if outcome == FireOutcome.FIRED:
            audit.record(
                "schedule.run",
                f"schedule:{self.row.pk}",
                actor=self.actor,
                tenant_id=self.row.tenant_id,
                reason=self.reason,
                details={"job_id": format_id(job_id)},
                alias=self.alias,
            )
        return job_id, outcome

    def _prepare(self, outcome: str | None) -> None:
        """Make the next try possible, or raise."""
        if outcome == INTAKE_PAUSED:
            raise Unavailable(
                "The queue takes no new work at the moment.", retry_after=5, reason="intake_paused"
            )
        if outcome == HOMELESS:
            heal({self.row.queue_id})
            register.tell_again(self.row.pk)
        if outcome == UNADMITTED:
            self._admit()

    def _admit(self) -> None:
        size = len(self.row.payload.encode())
        ask = Ask(self.row.tenant_id, self.row.queue.name, self.row.priority, size)
        (verdict,) = admitting.admit([ask], alias=self.alias, now=self.now)
        if isinstance(verdict, JobsPlatformError):
            raise verdict
        self.ticket = verdict

    def _give_back(self, outcome: str | None) -> None:
        if self.ticket is not None and outcome == REPEATED:
            admitting.give_back([self.ticket], alias=self.alias)
