"""A job as Django's `TaskResult`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from jobqueue.states import AttemptOutcome, DeadReason, State
from jobqueue.tasks import failures, texts
from jobqueue.tasks.framework import TaskError, TaskResult, TaskResultStatus

STATUSES = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.READY: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.EXPIRED: TaskResultStatus.FAILED,
}
ATTEMPTS_MAX = 100  # the newest; older ones are not told


class Tried(Protocol):
    """What is read of an attempt, whichever way it was fetched."""

    @property
    def worker(self) -> str: ...
    @property
    def claimed_at(self) -> datetime: ...
    @property
    def outcome(self) -> str | None: ...
    @property
    def error_class(self) -> str | None: ...
    @property
    def message(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What a result is made of. `attempts` oldest first; `value` is the parsed result of a job that succeeded."""

    id: str
    state: str
    created_at: datetime
    finished_at: datetime | None
    dead_reason: str | None = None
    attempts: Sequence[Tried] = field(default_factory=tuple)
    value: Any = None


def fresh(task: Any, args: Any, kwargs: Any, *, backend: str) -> TaskResult[Any]:
    """The result of a call that is not stored yet: its id is empty. Raises TypeError for arguments that are no JSON."""
    return TaskResult(
        task=task,
        id="",
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=kwargs,
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def fill(result: TaskResult[Any], facts: JobFacts) -> TaskResult[Any]:
    """Write the facts into `result` (these objects are frozen for everybody but their backend)."""
    charged = [one for one in facts.attempts if one.outcome != AttemptOutcome.RELEASED]
    put(
        result,
        id=facts.id,
        status=STATUSES[State(facts.state)],
        enqueued_at=facts.created_at,
        started_at=charged[0].claimed_at if charged else None,
        last_attempted_at=charged[-1].claimed_at if charged else None,
        finished_at=facts.finished_at,
        worker_ids=[one.worker for one in charged],
        errors=[*_errors(charged), *_ended_by(facts)],
        _return_value=facts.value,
    )
    return result


def put(result: TaskResult[Any], **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _errors(attempts: Iterable[Tried]) -> list[TaskError]:
    return [
        _error(one) for one in attempts if one.outcome in (AttemptOutcome.FAILED, AttemptOutcome.LEASE_LOST)
    ]


def _error(attempt: Tried) -> TaskError:
    if attempt.outcome == AttemptOutcome.LEASE_LOST:
        return _named(failures.WorkerLost, f"worker {attempt.worker or '?'} held it last")
    told = texts.read(attempt.message or "")
    if told.path is None:
        return _named(failures.TaskDead, told.traceback or attempt.error_class or "failed")
    return TaskError(exception_class_path=told.path, traceback=told.traceback)


def _ended_by(facts: JobFacts) -> list[TaskError]:
    """What no attempt tells: the platform's own word for the end."""
    if facts.state == State.CANCELLED:
        return [_named(failures.TaskCancelled, "cancelled on request")]
    if facts.state == State.EXPIRED:
        return [_named(failures.TaskExpired, "the deadline passed before the first attempt")]
    told = (None, DeadReason.INVALID, DeadReason.EXHAUSTED, DeadReason.UNCERTAIN)
    if facts.state == State.DEAD and facts.dead_reason not in told:
        return [_named(failures.TaskDead, str(facts.dead_reason))]
    return []


def _named(kind: type[Exception], words: str) -> TaskError:
    path = f"{kind.__module__}.{kind.__qualname__}"
    return TaskError(exception_class_path=path, traceback=f"{path}: {words}\n")
