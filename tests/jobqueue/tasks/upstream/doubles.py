"""Our backend in the places of those that Django's own suite was written for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.test import TestCase
from django.test import TransactionTestCase as _TransactionTestCase

from jobqueue.tasks import QueueBackend
from jobqueue.tasks.calls import kind_of
from jobqueue.tasks.running import Runner
from tests import cast, tasks_cast

DATABASES = {"default", cast.SHARD}


class SimpleTestCase(TestCase):
    """The suite's backends need no database; ours does."""

    databases = DATABASES


class TransactionTestCase(_TransactionTestCase):
    databases = DATABASES

    def _fixture_teardown(self) -> None:
        """Jobs go; tenants and queues stay."""
        forget_all()


def forget_all() -> None:
    for (job_id,) in cast.read("SELECT id FROM queue_job"):
        cast.forget_job(job_id)


class Queued(QueueBackend):
    """In the place of DummyBackend: it stores, and nobody works."""

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        given = params.get("OPTIONS", {})
        ours = {"TENANT": "acme", "ON_COMMIT": False, "MAX_ATTEMPTS": 1, "MODULES": ["tasks.tasks"]}
        super().__init__(alias, {**params, "OPTIONS": ours | given})
        self.options = given
        self.results: list[Any] = []  # as they were read back

    def clear(self) -> None:
        self.results.clear()
        forget_all()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(self.get_result(result.id))
        return result


class Worked(Queued):
    """In the place of ImmediateBackend: a worker takes each task at once."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        path = task.module_path
        tasks_cast.work({kind_of(path): Runner(path, self)})
        result.refresh()
        return result
