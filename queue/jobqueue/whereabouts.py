"""Where a job stands, read by one statement over all places, so that no answer mixes two instants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobqueue.states import State
from jobqueue.types import Scope
from jobsplatform import sql

ENDED = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED, State.EXPIRED})


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """One job's place (`state` None: between two places) and how the asked generation ended."""

    state: str | None
    asked_generation: int
    latest_generation: int | None
    lapsed: bool | None
    is_callers: bool | None
    payload_hash: bytes | None
    finished_at: datetime | None
    late: bool | None
    ended_by_caller: bool | None
    call_hash: bytes | None
    outcome: str | None
    led_to: str | None
    next_at: datetime | None
    reason: str | None
    ended_at: datetime

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def was_ended_by(self, call_hash: bytes) -> bool:
        """Whether this very call, by the lease's holder, ended the asked generation."""
        return bool(self.ended_by_caller) and self.call_hash == call_hash

    def is_live_lease_of(self, generation: int) -> bool:
        """Whether the caller's lease is live after all: the statement met it between two instants."""
        return self._is_latest_of_caller and generation == self.latest_generation and self.lapsed is False

    @property
    def lapsed_lease_is_callers(self) -> bool:
        """The caller's was the latest generation and it lapsed, whether or not the reaper has taken it back."""
        if self.state == State.RUNNING:
            return self._is_latest_of_caller and bool(self.lapsed)
        latest = self.asked_generation == self.latest_generation
        return latest and bool(self.ended_by_caller) and self.outcome == "lease_lost"

    @property
    def is_of_its_worker(self) -> bool:
        """Whether the caller is who was given the asked generation, which runs, has lapsed or has ended."""
        return bool(self.ended_by_caller) or self._is_latest_of_caller

    @property
    def _is_latest_of_caller(self) -> bool:
        running = self.state == State.RUNNING
        return running and self.asked_generation == self.latest_generation and bool(self.is_callers)


def find(
    asked: Sequence[tuple[int, int, bytes]], *, alias: str, scope: Scope, now: datetime | None = None
) -> dict[int, Whereabouts]:
    """Position in `asked` (job id, generation, token hash) → whereabouts, of the jobs that the caller may see."""
    if not asked:
        return {}
    job_ids, generations, hashes = (list(column) for column in zip(*asked, strict=True))
    params = {"job_ids": job_ids, "generations": generations, "token_hashes": hashes, "now": now}
    rows = sql.rows("jobqueue/whereabouts", params | scope.params(), alias=alias)
    return {ord_ - 1: _whereabouts(generations[ord_ - 1], state, *rest) for ord_, state, *rest in rows}


def _whereabouts(generation: int, state: str | None, *rest: Any) -> Whereabouts:
    latest, lapsed, is_callers, payload_hash, *tail = rest
    finished_at, late, ended_by_caller, call_hash, *end = tail
    return Whereabouts(
        state,
        generation,
        latest,
        lapsed,
        is_callers,
        _bytes(payload_hash),
        finished_at,
        late,
        ended_by_caller,
        _bytes(call_hash),
        *end,
    )


def _bytes(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)
