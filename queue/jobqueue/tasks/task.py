"""The `Task` of these backends: Django's, with what the platform can do beyond it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobqueue.tasks.framework import Task, TaskResult

if TYPE_CHECKING:
    Backoff = Callable[[BaseException, TaskResult[Any]], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTask(Task):  # type: ignore[type-arg]  # Django's own is not generic
    """Each of these may stand in `@task(…)` or in `using(…)`; None: the backend's or the queue's."""

    max_attempts: int | None = None  # 1 to 100
    backoff: Backoff | None = None  # seconds to wait at least before the next try; None: there is none
    request_key: str | Callable[..., str] | None = None  # made of the task's arguments, if it is a function
    tenant: str | None = None  # slug
    dependency: str | None = None

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **extras: Any,
    ) -> QueueTask:
        """This task with other settings. TypeError for an extra that it does not have.

        `backoff` is asked in the worker, of the task that its module holds: here it is of no use to a single call.
        """
        given = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            **extras,
        }
        return replace(self, **{name: value for name, value in given.items() if value is not None})
