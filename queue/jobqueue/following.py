"""Follows jobs to their ends, for whoever put them in and waits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from jobqueue import reads
from jobqueue.reads import JobView
from jobqueue.states import State
from jobqueue.types import Scope
from jobsplatform.errors import NotFound, Unavailable

LOOK_AT_ONCE: Final = 500  # jobs a question to the database
PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0
_WAITING: Final = frozenset({State.SCHEDULED, State.READY, State.RUNNING})


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended; `detail` is its result's JSON, or why it did not succeed."""

    job_id: int
    state: str
    detail: str

    @property
    def succeeded(self) -> bool:
        return self.state == State.SUCCEEDED


def follow(job_ids: Sequence[int], *, scope: Scope) -> Iterator[Ending]:
    """Each job's end as it is found, until all have ended. While the database is away it waits."""
    waiting = deque(dict.fromkeys(job_ids))
    pause_s = PAUSE_SECONDS_MIN
    while waiting:
        turn = [waiting.popleft() for _ in range(min(LOOK_AT_ONCE, len(waiting)))]
        endings = _ended(turn, scope)
        yield from endings
        ended = {ending.job_id for ending in endings}
        waiting.extend(job_id for job_id in turn if job_id not in ended)
        pause_s = PAUSE_SECONDS_MIN if endings else min(pause_s * 1.5, PAUSE_SECONDS_MAX)
        if waiting:
            time.sleep(pause_s)


def _ended(job_ids: Sequence[int], scope: Scope) -> list[Ending]:
    try:
        views = reads.jobs(job_ids, scope=scope)
        return [
            _ending(job_id, views.get(job_id), scope)
            for job_id in job_ids
            if job_id not in views
            or (views[job_id].state not in _WAITING and views[job_id].state is not None)
        ]
    except Unavailable:
        return []


def _ending(job_id: int, view: JobView | None, scope: Scope) -> Ending:
    if view is None:
        return Ending(job_id, "purged", "")
    if view.state == State.SUCCEEDED:
        try:
            return Ending(job_id, view.state, reads.result(job_id, scope=scope).body or "null")
        except NotFound:  # retention took it between the two reads
            return Ending(job_id, view.state, "null")
    message = (view.error_message or "").strip().splitlines()[:1]
    return Ending(job_id, str(view.state), ": ".join(filter(None, [view.dead_reason, *message])))
