"""The sample site inside the test process, and a worker's hands to run what it enqueues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jobqueue import leases, upkeep
from jobqueue.claiming import Lease
from jobqueue.worker import registry, verdicts
from jobqueue.worker.context import JobContext
from tests import cast

if TYPE_CHECKING:
    from pytest_django import Settings

OPTIONS = {"TENANT": "acme", "ON_COMMIT": False}


class Alone:
    """What a context asks of its engine."""

    def save_checkpoint(self, job: JobContext, text: str) -> None: ...

    def note_done(self, job: JobContext) -> None: ...

    def queue_name(self, queue_id: int) -> str:
        from jobqueue import policies

        return policies.names({queue_id})[queue_id]

    def tenant_slug(self, tenant_id: int) -> str:
        return ""


class Site:
    """`tasks` are the sample site's; `use` changes TASKS."""

    tasks: ModuleType

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, *_framework_apps(), "tests.tasks_site.shop"]
        self.use()
        from tests.tasks_site.shop import tasks

        self.tasks = tasks

    def use(self, backend: str = "jobqueue.tasks.QueueBackend", queues: Any = (), **options: Any) -> None:
        entry = {"BACKEND": backend, "QUEUES": list(queues), "OPTIONS": OPTIONS | options}
        self._settings.TASKS = {"default": entry}

    @property
    def backend(self) -> Any:
        from jobqueue.tasks.framework import task_backends

        return task_backends["default"]

    def work(self, *, limit: int = 10) -> list[Lease]:
        """Claim and run what is ready, as a worker does."""
        return work(registry.discover(), limit=limit)

    def try_again(self) -> None:
        """Make due what waits for its next attempt, and run it."""
        upkeep.promote(now=cast.at(0))
        self.work()


def work(handlers: Mapping[str, registry.Handler], *, limit: int = 10) -> list[Lease]:
    """Claim what is ready in the default queue, run it, tell how it went."""
    found = cast.claim(now=None, limit=limit, kinds=tuple(handlers))
    for lease in found:
        _settle(_verdict(JobContext(lease, 0, time.monotonic(), Alone()), handlers[lease.kind]))
    return found


def _verdict(job: JobContext, handler: registry.Handler) -> verdicts.Verdict | None:
    try:
        verdict: verdicts.Verdict | None = verdicts.of_result(job.lease, handler(job))
    except BaseException as error:
        verdict = verdicts.of_exception(job.lease, error)
    return None if job.is_done else verdict


def _settle(verdict: verdicts.Verdict | None) -> None:
    answer: object = None
    match verdict:
        case leases.Complete():
            (answer,) = leases.complete([verdict])
        case leases.Fail():
            (answer,) = leases.fail([verdict])
        case leases.Release():
            (answer,) = leases.release([verdict])
    assert not isinstance(answer, Exception), answer


def _framework_apps() -> list[str]:
    from tests.tasks_site.settings import FRAMEWORK_APPS

    return FRAMEWORK_APPS
