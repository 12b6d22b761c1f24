"""The backend for sites that hold a token and nothing else: `HttpBackend`. It needs none of the platform's apps."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import transaction

from jobqueue.ids import parse_id
from jobqueue.tasks import calls, results
from jobqueue.tasks.base import Backend, Extras
from jobqueue.tasks.framework import TaskResult, TaskResultDoesNotExist
from jobqueue.tasks.transport import Api, Members
from jobsplatform.errors import InsufficientScope, NotFound

BANDS, DEFAULT_BAND = 5, 2  # of the preset `five`; BANDS names those of other queues


class HttpBackend(Backend):
    """Sends tasks to the platform's API. The token needs the scopes `produce` and, for results, `read`.

    A call without a request key gets one, so that a lost answer can be asked for again without a second job.
    """

    known_options = Backend.known_options | {"URL", "TOKEN", "TIMEOUT_S", "PATIENCE_S"}

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._apis: dict[str | None, Api] = {}

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any]:
        """Send the task; with ON_COMMIT after the caller's commit, and its result has no id before that.

        Raises InvalidTask, the platform's refusals, Unavailable, and UnknownOutcome when no answer came.
        """
        result = self.checked(task, args, kwargs)
        extras = Extras.of(task, result)
        body = json.dumps(self._body(task, result, extras), ensure_ascii=False)
        send = partial(self._send, result, body, extras.tenant, is_named=extras.request_key is not None)
        if self.is_in_transaction():
            transaction.on_commit(send, using=self.database)
        else:
            send()
        return result

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """The present state of a task of the token's tenant. Raises TaskResultDoesNotExist."""
        api, path = self._api(None), f"/v1/jobs/{result_id}"
        try:
            parse_id(result_id)  # what no job could have is not sent: it would be another path
            job = api.get(f"{path}?include=payload")
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        call = calls.load(json.dumps(job["payload"]))
        task = None if call is None or job["kind"] != calls.kind_of(call.path) else self.find(call.path)
        if call is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        told = self.told(
            task, queue=job["queue"], priority=call.priority, run_after=_instant(job["not_before"])
        )
        result = results.fresh(told, call.args, call.kwargs, backend=self.alias)
        return results.fill(result, _facts(api, path, job))

    def check(self, **kwargs: Any) -> Iterable[CheckMessage]:
        yield from super().check(**kwargs)
        for name in ("URL", "TOKEN"):
            if not self.options.get(name):
                yield Error(f'TASKS[{self.alias!r}] needs "OPTIONS": {{"{name}": …}}.', id="queue.E012")

    def _body(self, task: Any, result: TaskResult[Any], extras: Extras) -> Members:
        call = calls.TaskCall(task.module_path, result.args, result.kwargs, task.priority)
        band = self.band(task.priority, BANDS, DEFAULT_BAND)
        chosen = {
            "priority": None if task.priority == 0 and self.bands is None else band,
            "not_before": None if task.run_after is None else task.run_after.isoformat(),
            "max_attempts": extras.max_attempts or self.max_attempts,
            "dependency": extras.dependency,
        }
        return {
            "kind": calls.kind_of(task.module_path),
            "payload": json.loads(calls.dump(call)),
            "queue": task.queue_name,
            "request_key": extras.request_key or f"task-{uuid.uuid4().hex}",
            **{name: value for name, value in chosen.items() if value is not None},
        }

    def _send(self, result: TaskResult[Any], body: str, tenant: str | None, *, is_named: bool) -> None:
        api = self._api(tenant)
        job = api.post("/v1/jobs", body)
        results.fill(result, _facts_of_replay(api, job) if job["replayed"] else _shown(job))
        if not (job["replayed"] and is_named):  # a key that was made up here names what a lost try has made
            self.announce_enqueued(result)

    def _api(self, tenant: str | None) -> Api:
        wanted = tenant or self.tenant
        if wanted not in self._apis:
            self._apis[wanted] = Api(
                self.options["URL"],
                self.options["TOKEN"],
                tenant=wanted,
                timeout_s=self.options.get("TIMEOUT_S", 10),
                patience_s=self.options.get("PATIENCE_S", 30),
            )
        return self._apis[wanted]


@dataclass(frozen=True, slots=True)
class _Attempt:
    worker: str
    claimed_at: datetime
    outcome: str | None
    error_class: str | None
    message: str | None


def _shown(job: Members) -> results.JobFacts:
    created_at, finished_at = _instant(job["created_at"]), _instant(job["finished_at"])
    assert created_at is not None, "every job has been created"
    return results.JobFacts(
        id=job["job_id"],
        state=job["state"],
        created_at=created_at,
        finished_at=finished_at,
        dead_reason=job["dead_reason"],
    )


def _facts(api: Api, path: str, job: Members) -> results.JobFacts:
    """With attempts, and the value of a job that succeeded."""
    items = api.get(f"{path}/attempts?limit={results.ATTEMPTS_MAX}")["items"]
    value = api.get(f"{path}/result")["result"] if job["state"] == "succeeded" else None
    return replace(_shown(job), attempts=[_attempt(one) for one in reversed(items)], value=value)


def _facts_of_replay(api: Api, job: Members) -> results.JobFacts:
    """As far as the token may read: the task is stored, whoever may look at it."""
    try:
        return _facts(api, f"/v1/jobs/{job['job_id']}", job)
    except InsufficientScope:
        return _shown(job)


def _attempt(item: Members) -> _Attempt:
    claimed_at = _instant(item["claimed_at"])
    assert claimed_at is not None, "every attempt began with a claim"
    return _Attempt(item["worker"], claimed_at, item["outcome"], item["error_class"], item["message"])


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
