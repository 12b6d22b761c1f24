"""The backend for sites that have the platform's database: `QueueBackend`.

`enqueue` is in the caller's transaction wherever that transaction is open on a shard; elsewhere it commits at once,
or with ON_COMMIT after the caller's commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.db import transaction

from jobqueue import policies, reads
from jobqueue.enqueue import Accepted, NewJob
from jobqueue.ids import format_id, parse_id
from jobqueue.policies import QueuePolicy
from jobqueue.states import State
from jobqueue.tasks import calls, placing, results
from jobqueue.tasks.base import Backend, Extras
from jobqueue.tasks.framework import InvalidTask, TaskResult, TaskResultDoesNotExist
from jobqueue.types import FLEET
from jobsplatform import database, tracing
from jobsplatform.errors import JobsPlatformError, NotFound, TenantSuspended
from tenants import access
from tenants.access import TenantRef


class QueueBackend(Backend):
    """Stores tasks as jobs of the platform. Options: see docs/django-tasks.md."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any]:
        """Accept the task; with ON_COMMIT its result has no id before the caller's commit.

        Raises InvalidTask for one that no worker could run, and the platform's refusals (RequestKeyConflict,
        QuotaExceeded, …; UnknownOutcome when the commit's fate is not known).
        """
        result = self.checked(task, args, kwargs)
        job = self._new_job(task, result)
        if self.is_in_transaction() and placing.open_shard() is None:
            transaction.on_commit(partial(self._store, result, job), using=self.database)
        else:
            self._store(result, job)
        return result

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """The present state of any task of this site. Raises TaskResultDoesNotExist."""
        try:
            view = reads.job(parse_id(result_id), scope=FLEET)
            call = calls.load(reads.payload(view.job_id, scope=FLEET)[0])
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        task = None if call is None or view.kind != calls.kind_of(call.path) else self.find(call.path)
        if call is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        queue = policies.names({view.queue_id}).get(view.queue_id)
        told = self.told(task, queue=queue, priority=call.priority, run_after=view.not_before)
        result = results.fresh(told, call.args, call.kwargs, backend=self.alias)
        return results.fill(result, _facts(view))

    def check(self, **kwargs: Any) -> Iterable[CheckMessage]:
        yield from super().check(**kwargs)
        yield from self._check_tenant()
        if self.on_commit is None and self.database not in database.aliases().values():
            yield Warning(
                f"Tasks are not part of transactions on {self.database!r}: the queue's shards are other databases.",
                hint='Set "ON_COMMIT": True to enqueue after the commit, or False to enqueue at once.',
                id="queue.W010",
            )

    def _check_tenant(self) -> Iterable[CheckMessage]:
        if not self.tenant:
            yield Error(
                f"TASKS[{self.alias!r}] does not say whose the jobs are.",
                hint='Set "OPTIONS": {"TENANT": "<slug>"}.',
                id="queue.E010",
            )

    # Storing

    def _new_job(self, task: Any, result: TaskResult[Any]) -> NewJob:
        extras = Extras.of(task, result)
        queue = self._queue(task.queue_name)
        call = calls.TaskCall(task.module_path, result.args, result.kwargs, task.priority)
        return NewJob(
            tenant_id=self._tenant(extras.tenant).id,
            queue=queue,
            kind=calls.kind_of(task.module_path),
            priority=queue.priority(self.band(task.priority, len(queue.bands), queue.default_priority)),
            payload=calls.dump(call),
            request_key=extras.request_key,
            not_before=task.run_after,
            max_attempts=extras.max_attempts or self.max_attempts,
            dependency=extras.dependency,
            traceparent=tracing.current(),
        )

    def _store(self, result: TaskResult[Any], job: NewJob) -> None:
        outcome = placing.store(job)
        if isinstance(outcome, JobsPlatformError):
            raise outcome
        self._tell(result, outcome)

    def _tell(self, result: TaskResult[Any], accepted: Accepted) -> None:
        name = format_id(accepted.job_id)
        if accepted.stored is None:
            results.fill(result, _facts(reads.job(accepted.job_id, scope=FLEET)))
        else:
            results.put(result, id=name, enqueued_at=accepted.stored.at)
            self.announce_enqueued(result)

    def _queue(self, name: str) -> QueuePolicy:
        try:
            return policies.by_name(name)
        except NotFound:
            raise InvalidTask(f"There is no queue {name!r}.") from None

    def _tenant(self, slug: str | None) -> TenantRef:
        wanted = slug or self.tenant
        tenant = None if wanted is None else access.tenant_by_slug(wanted)
        if tenant is None:
            raise InvalidTask(f"There is no tenant {wanted!r}: whose is the task?")
        if tenant.is_suspended:
            raise TenantSuspended
        return tenant


def _facts(view: reads.JobView) -> results.JobFacts:
    """The job with its attempts and its value, each read after the state that calls for it."""
    value = None
    if view.state == State.SUCCEEDED:
        value = json.loads(reads.result(view.job_id, scope=FLEET).body or "null")
    newest, _ = reads.attempts(view.job_id, scope=FLEET, before=None, limit=results.ATTEMPTS_MAX)
    assert view.state is not None, "reads.job reads again until there is one"
    return results.JobFacts(
        id=format_id(view.job_id),
        state=view.state,
        created_at=view.created_at,
        finished_at=view.finished_at,
        dead_reason=view.dead_reason,
        attempts=newest[::-1],
        value=value,
    )
