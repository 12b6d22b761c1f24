"""Calls of producers: put work in, look at it, cancel it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from jobqueue import kinds, leases, listing, reads, reveal
from jobqueue.api import bodies, names, wire
from jobqueue.api.calls import at_item, queue_in_body, require_queue, scope_of
from jobqueue.api.wire import Members
from jobqueue.enqueue import Accepted, NewJob, enqueue
from jobqueue.ids import format_id, parse_id
from jobqueue.limits import BATCH_BODY_BYTES_MAX, HORIZON, JOB_BODY_BYTES_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.types import Scope
from jobqueue.why import why
from jobsplatform import cursors, everywhere, tracing
from jobsplatform.errors import Invalid, JobsPlatformError, NotFound
from jobsplatform.http import Call, Endpoint, Reply, splice
from jobsplatform.problem import document
from jobsplatform.shapes import Checked

QueueOf = Callable[[str], QueuePolicy]


class Enqueue(Endpoint):
    """Accept one job. 201: its intent is durable. 200: the request key had already named it."""

    body = bodies.NEW_JOB
    body_bytes_max = JOB_BODY_BYTES_MAX
    needs_tenant = True
    takes_idempotency_key = True
    refusals = frozenset({422})
    replies = {201: wire.JOB_ACCEPTED, 200: wire.JOB_REPLAYED}

    def check(self, call: Call) -> None:
        self.job = new_job(call, call.body, queue_in_body, request_key(call))

    def act(self, call: Call) -> Reply:
        require_queue(call, self.job.queue)
        with tracing.producing(self.job.queue.name, self.job.traceparent or _trace_of(call)) as traceparent:
            outcome = enqueue([replace(self.job, traceparent=traceparent)])[0]
        if isinstance(outcome, JobsPlatformError):
            raise outcome
        members = shown(outcome, self.job, call)
        location = {"Location": f"/v1/jobs/{members['job_id']}"}
        return Reply(200 if outcome.replayed else 201, members, location)


class EnqueueBatch(Endpoint):
    """Accept up to 1,000 jobs, each alone; answers in their order."""

    body = bodies.BATCH
    body_bytes_max = BATCH_BODY_BYTES_MAX
    needs_tenant = True
    takes_idempotency_key = True
    replies = {200: wire.ITEM_RESULTS}

    def check(self, call: Call) -> None:
        if call.idempotency_key is not None:
            raise Invalid(
                "The jobs of a batch are recognised by their own request_key, not by Idempotency-Key."
            )

    def act(self, call: Call) -> Reply:
        queues: dict[str, QueuePolicy] = {}

        def queue_of(name: str) -> QueuePolicy:
            if name not in queues:
                queues[name] = queue_in_body(name)
            return queues[name]

        items: list[NewJob | JobsPlatformError] = [
            _item(call, checked, queue_of, f"/jobs/{index}")
            for index, checked in enumerate(call.body["jobs"])
        ]
        jobs = [item for item in items if isinstance(item, NewJob)]
        into = "/".join(sorted({job.queue.name for job in jobs})[:3])
        with tracing.producing(into, _trace_of(call), count=len(jobs)) as traceparent:
            traced = [replace(job, traceparent=job.traceparent or traceparent) for job in jobs]
            outcomes = iter(enqueue(traced))
        results = [
            _outcome(next(outcomes) if isinstance(item, NewJob) else item, f"/jobs/{index}")
            for index, item in enumerate(items)
        ]
        return Reply(200, {"results": results})


class ListJobs(Endpoint):
    """Jobs, newest first."""

    query = bodies.JOB_FILTER
    replies = {200: wire.JOB_PAGE}

    def check(self, call: Call) -> None:
        self.wanted = job_filter(call.query)
        self.before = cursors.read(call)

    def act(self, call: Call) -> Reply:
        limit, unknown = call.query["limit"], list[int]()
        views, last = listing.page(
            self.wanted, scope=scope_of(call), before=self.before, limit=limit, unknown=unknown
        )
        following = cursors.write(call, last)
        members = {"items": list(names.jobs(views)), "next": following, **everywhere.mark(unknown)}
        return Reply(200, members)


class ShowJob(Endpoint):
    """One job; with `include=payload` also its payload."""

    query = bodies.INCLUDE
    replies = {200: wire.JOB_SHOWN}

    def act(self, call: Call) -> Reply:
        job_id, scope = parse_id(call.path["job_id"]), scope_of(call)
        members = next(names.jobs([reads.job(job_id, scope=scope)]))
        if call.query["include"] is None:
            return Reply(200, members)
        payload, _ = reveal.payload(job_id, scope=scope, actor=call.known.actor)
        return Reply(200, splice(members, {"payload": payload or "null"}))


class ListAttempts(Endpoint):
    """How a job's generations went, newest first."""

    query = bodies.PAGE
    replies = {200: wire.ATTEMPT_PAGE}

    def check(self, call: Call) -> None:
        self.before = cursors.read(call)

    def act(self, call: Call) -> Reply:
        job_id = parse_id(call.path["job_id"])
        before = None if self.before is None else self.before[0]
        views, last = reads.attempts(job_id, scope=scope_of(call), before=before, limit=call.query["limit"])
        following = cursors.write(call, None if last is None else (last,))
        return Reply(200, {"items": [wire.attempt(view) for view in views], "next": following})


class ShowResult(Endpoint):
    """How a job ended: 404 until it has."""

    replies = {200: wire.RESULT}

    def act(self, call: Call) -> Reply:
        return Reply(200, wire.result(reads.result(parse_id(call.path["job_id"]), scope=scope_of(call))))


class ShowWhy(Endpoint):
    """What holds a job, what comes first, and when its turn may come."""

    replies = {200: wire.WHY}

    def act(self, call: Call) -> Reply:
        return Reply(200, why(parse_id(call.path["job_id"]), scope=scope_of(call)).members())


class Cancel(Endpoint):
    """End a waiting job (200), or ask the worker of a running one to stop (202)."""

    body = bodies.CANCEL
    replies = {200: wire.CANCELLED, 202: wire.CANCELLED}

    def act(self, call: Call) -> Reply:
        done = leases.cancel(
            parse_id(call.path["job_id"]),
            actor=call.known.actor,
            reason=call.body["reason"] or "",
            scope=scope_of(call),
        )
        if done.cancel_requested:
            return Reply(202, {"state": done.state, "cancel_requested": True})
        return Reply(200, {"state": done.state})


# From bodies to jobs


def _trace_of(call: Call) -> str | None:
    """The trace that the request belongs to."""
    return tracing.sent(call.request.headers.get("traceparent"))


def request_key(call: Call) -> str | None:
    """The key of one job: from the body or the header. Raises Invalid when the two differ."""
    sent: str | None = call.body["request_key"]
    if call.idempotency_key is None:
        return sent
    if sent is not None and sent != call.idempotency_key:
        raise Invalid.at("/request_key", "Differs from the Idempotency-Key header.", "conflict")
    return call.idempotency_key


def new_job(call: Call, values: Mapping[str, Any], queue_of: QueueOf, key: str | None) -> NewJob:
    """The job that a checked body asks for. Raises Invalid for a queue, band or time that cannot be."""
    horizon = datetime.now(UTC) + HORIZON
    for name in ("not_before", "deadline"):
        if values[name] is not None and values[name] > horizon:
            raise Invalid.at(f"/{name}", "Lies more than ten years ahead.", "range")
    queue = queue_of(values["queue"] or kinds.queue_of(values["kind"]) or bodies.DEFAULT_QUEUE)
    assert call.tenant is not None, "the endpoint needs a tenant"
    return NewJob(
        tenant_id=call.tenant.id,
        queue=queue,
        kind=values["kind"],
        priority=queue.priority(values["priority"]),
        payload=values["payload"],
        payload_ref=values["payload_ref"],
        request_key=key,
        not_before=values["not_before"],
        delay_s=values["delay_s"],
        deadline=values["deadline"],
        expires_in_s=values["expires_in_s"],
        max_attempts=values["max_attempts"],
        dependency=values["dependency"],
        traceparent=values["traceparent"],
    )


def job_filter(query: Mapping[str, Any]) -> listing.JobFilter:
    """The filter that a query asks for. A band's name needs its queue."""
    queue = None if query["queue"] is None else queue_in_body(query["queue"])
    priority = query["priority"]
    if isinstance(priority, str):
        if queue is None:
            raise Invalid.at("/priority", "A band's name needs the queue.", "conflict")
        priority = queue.priority(priority)
    return listing.JobFilter(
        queue_id=None if queue is None else queue.id,
        state=query["state"],
        kind=query["kind"],
        priority=priority,
        request_key=query["request_key"],
        created_after=query["created_after"],
        created_before=query["created_before"],
    )


def _item(call: Call, checked: Checked, queue_of: QueueOf, parent: str) -> NewJob | JobsPlatformError:
    if (refusal := checked.refusal) is not None:
        return refusal
    try:
        job = new_job(call, checked.values, queue_of, checked.values["request_key"])
        require_queue(call, job.queue)
    except JobsPlatformError as error:
        return error
    return job


# Replies


def shown(accepted: Accepted, asked: NewJob, call: Call) -> Members:
    """The accepted job as it stands now. Of a purged one, what its request key still tells."""
    view = reads.just_enqueued(accepted, asked)
    if view is None:
        try:
            view = reads.job(accepted.job_id, scope=Scope(tenant_id=asked.tenant_id))
        except NotFound:
            return _purged(accepted, asked, call)
    assert call.tenant is not None, "the endpoint needs a tenant"
    # no name is looked up: a database that is lost by now must not deny what was committed
    effective = asked.queue.scheduling.effective_band(view.priority, view.waited_s)
    return {**wire.job(view, call.tenant.slug, asked.queue.name, effective), "replayed": accepted.replayed}


def _purged(accepted: Accepted, asked: NewJob, call: Call) -> Members:
    job_id = format_id(accepted.job_id)
    return {
        "job_id": job_id,
        "tenant": call.tenant and call.tenant.slug,
        "queue": asked.queue.name,
        "kind": asked.kind,
        "priority": asked.priority,
        "state": "purged",
        "request_key": asked.request_key,
        "operation_id": job_id,
        "replayed": True,
    }


def _outcome(outcome: Accepted | JobsPlatformError, parent: str) -> Members:
    if isinstance(outcome, JobsPlatformError):
        error = at_item(outcome, parent)
        return {"status": error.status, "problem": document(error)}
    status = 200 if outcome.replayed else 201
    return {"status": status, "job_id": format_id(outcome.job_id), "replayed": outcome.replayed}
