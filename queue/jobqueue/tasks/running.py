"""Runs a task as the handler of its kind: the way from a leased job to a function call, and from what it raises to an
outcome of the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from jobqueue import reads
from jobqueue.states import AttemptOutcome, State
from jobqueue.tasks import calls, results, texts
from jobqueue.tasks.base import Backend
from jobqueue.tasks.framework import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from jobqueue.types import FLEET
from jobqueue.worker import whoami
from jobqueue.worker.context import JobContext
from jobqueue.worker.outcomes import Failure, LeaseLost, Overload, Permanent, Release, Transient, Uncertain
from jobsplatform import events
from jobsplatform.errors import JobsPlatformError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTaskContext(TaskContext):
    """Django's context, and the job: `operation_id`, `checkpoint()`, `transaction()`, …"""

    job: JobContext


@dataclass(frozen=True, slots=True)
class Runner:
    """The handler of one task. Equal text for equal tasks: registering it again is no conflict."""

    path: str
    backend: Backend = field(repr=False)

    def __call__(self, job: JobContext) -> object:
        task, result = self._begin(job)
        try:
            task_started.send_robust(type(self.backend), task_result=result)
            value = normalize_json(self._call(task, result, job))
        except (Release, LeaseLost):
            raise
        except BaseException as error:
            if job.is_done:
                raise
            outcome = _outcome(task, result, job, error)
            if _is_last(outcome, job):
                self._finish(result, TaskResultStatus.FAILED)  # here: receivers look at the exception
            raise outcome from error
        results.put(result, _return_value=value)
        self._finish(result, TaskResultStatus.SUCCESSFUL)
        return value

    def _begin(self, job: JobContext) -> tuple[Any, TaskResult[Any]]:
        """The task and its result so far.

        Raises Permanent for a payload that does not call this task, Release while the database cannot tell.
        """
        call = calls.load(job.payload_text)
        if call is None or call.path != self.path:
            raise Permanent(f'the payload must be {{"task": "{self.path}", "args": […], "kwargs": {{…}}}}')
        task = self.backend.find(self.path)
        if task is None:
            raise Transient(f"this worker has no task {self.path} any more")
        told = self.backend.told(task, queue=job.queue, priority=call.priority)
        result = results.fresh(told, call.args, call.kwargs, backend=self.backend.alias)
        return task, results.fill(result, _facts(job))

    def _call(self, task: Any, result: TaskResult[Any], job: JobContext) -> object:
        if task.takes_context:
            context = JobTaskContext(task_result=result, job=job)
            return task.call(context, *result.args, **result.kwargs)
        return task.call(*result.args, **result.kwargs)

    def _finish(self, result: TaskResult[Any], status: TaskResultStatus) -> None:
        results.put(result, status=status, finished_at=timezone.now())
        task_finished.send_robust(type(self.backend), task_result=result)


@dataclass(frozen=True, slots=True)
class _Now:
    """The attempt that is being made."""

    worker: str
    claimed_at: Any
    outcome: str | None = None
    error_class: str | None = None
    message: str | None = None


def _facts(job: JobContext) -> results.JobFacts:
    """What is known before this attempt. A task never runs with a history that could not be read."""
    try:
        created_at = reads.job(job.lease.job_id, scope=FLEET).created_at
        earlier = _earlier(job) if job.generation > 1 else []
    except JobsPlatformError as error:
        raise Release from error
    now = _Now(whoami.worker, job.lease.claimed_at)
    return results.JobFacts(
        id=job.job_id, state=State.RUNNING, created_at=created_at, finished_at=None, attempts=[*earlier, now]
    )


def _earlier(job: JobContext) -> list[reads.AttemptView]:
    newest, _ = reads.attempts(
        job.lease.job_id, scope=FLEET, before=job.generation, limit=results.ATTEMPTS_MAX - 1
    )
    return [one for one in newest[::-1] if one.outcome != AttemptOutcome.RELEASED]


def _outcome(task: Any, result: TaskResult[Any], job: JobContext, error: BaseException) -> Failure:
    """The job's outcome for what the task raised; notes the error in `result`."""
    kind = type(error)
    message = texts.write(error)
    told = texts.read(message)
    path = f"{kind.__module__}.{kind.__qualname__}"
    result.errors.append(TaskError(exception_class_path=path, traceback=told.traceback))
    if isinstance(error, Failure):
        return _same_class(error, message)
    if isinstance(error, TypeError) and _is_of_the_value(error):
        return Permanent(message)  # the same value would come again
    wait_s = None
    if (backoff := getattr(task, "backoff", None)) is not None:
        try:
            wait_s = backoff(error, result)
        except Exception as failure:
            events.emit("backoff_failed", job_id=job.job_id, error=repr(failure)[:500])
        else:
            if wait_s is None:
                return Permanent(message)
    return Transient(message, retry_after_s=wait_s)


def _same_class(error: Failure, message: str) -> Failure:
    """A failure of the same error class; the site's own subclass may be made of other arguments."""
    kinds = (Overload, Permanent, Uncertain, Transient)
    kind = next((one for one in kinds if one.error_class == error.error_class), Transient)
    return kind(message, retry_after_s=error.retry_after_s)


def _is_of_the_value(error: BaseException) -> bool:
    """Whether `normalize_json` refused what the task returned, and not something inside the task."""
    frames = error.__traceback__
    names = []
    while frames is not None:
        names.append(frames.tb_frame.f_code)
        frames = frames.tb_next
    return len(names) > 1 and names[1] is normalize_json.__code__


def _is_last(outcome: Failure, job: JobContext) -> bool:
    """Will there be no further attempt? False when the database cannot say."""
    if outcome.error_class == "permanent":
        return True
    try:
        view = reads.job(job.lease.job_id, scope=FLEET)
    except JobsPlatformError:
        return False
    return view.attempts_used >= view.max_attempts
