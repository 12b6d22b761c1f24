"""What both backends share: options, validation, bands, and the way to a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.core.checks import CheckMessage, Error
from django.db import connections

from jobqueue.declarations import KIND
from jobqueue.tasks import catalogue, priorities, results
from jobqueue.tasks.framework import BaseTaskBackend, InvalidTask, TaskResult, task_enqueued
from jobqueue.tasks.task import QueueTask
from jobsplatform.fields import Fault, normal_key

ATTEMPTS_MAX = 100


class Backend(BaseTaskBackend):
    """Base of `QueueBackend` and `HttpBackend`."""

    task_class = QueueTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    known_options: ClassVar[frozenset[str]] = frozenset(
        {"TENANT", "MAX_ATTEMPTS", "BANDS", "MODULES", "ON_COMMIT", "DATABASE"}
    )

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, dict(params))
        self.tenant: str | None = self.options.get("TENANT")
        self.max_attempts: int | None = self.options.get("MAX_ATTEMPTS")
        self.bands: Mapping[int, int | str] | None = self.options.get("BANDS")
        self.modules: list[str] | None = self.options.get("MODULES")
        self.on_commit: bool | None = self.options.get("ON_COMMIT")
        self.database: str = self.options.get("DATABASE", "default")

    def validate_task(self, task: Any) -> None:
        """Everything that can be said without a database: tasks are made while modules are imported."""
        super().validate_task(task)
        attempts = getattr(task, "max_attempts", None)
        if attempts is not None and not _is_count(attempts):
            raise InvalidTask(f"max_attempts must be a whole number between 1 and {ATTEMPTS_MAX}.")
        dependency = getattr(task, "dependency", None)
        if dependency is not None and KIND.fullmatch(dependency) is None:
            raise InvalidTask(f"{dependency!r} is no name of a dependency.")
        if (backoff := getattr(task, "backoff", None)) is not None and not callable(backoff):
            raise InvalidTask("backoff must be a function of the exception and the task's result.")

    def checked(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any]:
        """A result to be filled in. Raises InvalidTask, and TypeError for arguments that are no JSON."""
        self.validate_task(task)
        if self.find(task.module_path) is None:
            raise InvalidTask(
                f"No worker would find {task.module_path}: its module must be the `tasks` of an installed app,"
                " or be named in OPTIONS['MODULES']."
            )
        return results.fresh(task, args, kwargs, backend=self.alias)

    def tasks(self) -> Mapping[str, Any]:
        """Module path → task, of all that this backend may run."""
        return catalogue.tasks_of(self.modules)

    def find(self, path: str) -> Any:
        """The task of that path, or None: nothing is imported because a path names it."""
        found = self.tasks().get(path)
        if found is None or found.backend == self.alias:
            return found
        return found.using(backend=self.alias)

    def told(self, task: Any, *, queue: str | None, **values: Any) -> Any:
        """The task with what a job says of it, but for a queue that is none of the site's: Django would refuse it."""
        known = queue if not self.queues or queue in self.queues else None
        return task.using(queue_name=known, **values)

    def band(self, priority: int, bands: int, default: int) -> int | str:
        if self.bands is not None:
            return priorities.chosen(priority, self.bands)
        return priorities.band_of(priority, bands=bands, default=default)

    def is_in_transaction(self) -> bool:
        """Whether ON_COMMIT asks to wait for the end of the caller's transaction, and there is one."""
        return bool(self.on_commit) and connections[self.database].in_atomic_block

    def announce_enqueued(self, result: TaskResult[Any]) -> None:
        """What a receiver raises is logged: the task is stored, and its caller must not believe otherwise."""
        task_enqueued.send_robust(type(self), task_result=result)

    def check(self, **kwargs: Any) -> Iterable[CheckMessage]:
        unknown = sorted(set(self.options) - self.known_options)
        if unknown:
            yield Error(
                f"TASKS[{self.alias!r}] has unknown options: {', '.join(unknown)}.",
                hint=f"There are {', '.join(sorted(self.known_options))}.",
                id="queue.E011",
            )
        if self.max_attempts is not None and not _is_count(self.max_attempts):
            yield Error(
                f"MAX_ATTEMPTS of TASKS[{self.alias!r}] must be a whole number between 1 and {ATTEMPTS_MAX}.",
                id="queue.E013",
            )


def _is_count(attempts: object) -> bool:
    return type(attempts) is int and 1 <= attempts <= ATTEMPTS_MAX


def _key(key: object) -> str:
    """A request key as the API has it: in another form it would never meet the key of a request. Raises InvalidTask."""
    if not isinstance(key, str):
        raise InvalidTask(f"request_key must be a text, not {type(key).__name__}.")
    try:
        return normal_key(key)
    except Fault as fault:
        raise InvalidTask(f"request_key: {fault.detail}") from None


@dataclass(frozen=True, slots=True)
class Extras:
    """What a call asks for beyond Django's own; all None for a task of another class."""

    max_attempts: int | None
    request_key: str | None
    tenant: str | None
    dependency: str | None

    @classmethod
    def of(cls, task: Any, result: TaskResult[Any]) -> Extras:
        key = getattr(task, "request_key", None)
        if callable(key):
            key = key(*result.args, **result.kwargs)
        return cls(
            getattr(task, "max_attempts", None),
            None if key is None else _key(key),
            getattr(task, "tenant", None),
            getattr(task, "dependency", None),
        )
