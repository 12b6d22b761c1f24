"""The client for threads: each call returns when the platform has answered it, or raises.

Safe to share between threads; make one and keep it, its connections are reused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from jobsplatform_client import web
from jobsplatform_client.core import Core
from jobsplatform_client.exchange import Answer, Conversation, Pause, Request
from jobsplatform_client.messages import MessagesCore, Receipts
from jobsplatform_client.retry import Retry
from jobsplatform_client.values import (
    ABSENT,
    Accepted,
    Cancelled,
    Claimed,
    Completed,
    ErrorClass,
    Failed,
    Job,
    JobFilter,
    JobOptions,
    Lease,
    Message,
    NewJob,
    Released,
    Renewed,
    Result,
    Sent,
    Settled,
    given,
)

T = TypeVar("T")


class Client:
    """One caller of one platform.

    `base_url` as in `http://127.0.0.1:8000`; `tenant` only for a fleet token that produces. `timeout_s` bounds one
    try, `retry` says how a call is repeated. `transport` is httpx's, for a custom one.
    """

    def __init__(
        self,
        base_url: str,
        token: str,
        *,
        tenant: str | None = None,
        retry: Retry | None = None,
        timeout_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.core = Core(retry or Retry())
        self._timeout_s = timeout_s
        self._http = httpx.Client(**web.options(base_url, token, tenant), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def run(self, talk: Conversation[T], pause: Callable[[float], object] = time.sleep) -> T:
        """Hold a conversation of `core`'s. `pause` may raise to end it."""
        answer: Answer | None = None
        try:
            while True:
                step = talk.send(answer)
                answer = None
                if isinstance(step, Pause):
                    pause(step.seconds)
                else:
                    answer = self._send(step.request)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            talk.close()

    def _send(self, request: Request) -> Answer:
        try:
            return web.reply(self._http.request(**web.arguments(request, self._timeout_s)))
        except web.NO_REPLY as error:
            return web.no_reply(error)

    # Producing

    def enqueue(self, kind: str, payload: object = ABSENT, **options: Unpack[JobOptions]) -> Accepted:
        """Make one job durable; `options` are those of `NewJob`. Once, however often it had to be sent."""
        return self.run(self.core.enqueue(NewJob(kind, payload, **options)))

    def enqueue_batch(self, jobs: Iterable[NewJob]) -> list[Accepted]:
        """Make jobs durable, in as few calls as it takes. Raises BatchIncomplete if one was not accepted."""
        return self.run(self.core.enqueue_batch(jobs))

    def job(self, job_id: str, *, include_payload: bool = False) -> Job:
        return self.run(self.core.job(job_id, include_payload=include_payload))

    def jobs(self, wanted: JobFilter | None = None) -> Iterator[Job]:
        """All jobs that the filter lets through, newest first, page by page as they are looked at."""
        cursor: str | None = None
        while True:
            page, cursor = self.run(self.core.jobs_page(wanted or JobFilter(), cursor))
            yield from page
            if cursor is None:
                return

    def result(self, job_id: str) -> Result:
        """How it ended. Raises NotFound until it has."""
        return self.run(self.core.result(job_id))

    def why(self, job_id: str) -> dict[str, Any]:
        """What holds a job, as the API says it."""
        return self.run(self.core.why(job_id))

    def cancel(self, job_id: str, *, reason: str | None = None) -> Cancelled:
        """End a waiting job, or ask the worker of a running one to stop. Raises AlreadyFinished."""
        return self.run(self.core.cancel(job_id, reason))

    # Working: for workers of your own; `Worker` does all of this

    def claim(
        self,
        *,
        capabilities: Iterable[str] | None = None,
        limit: int = 1,
        queue: str | None = None,
        lease_s: int | None = None,
        wait_s: int = 0,
        max_priority: int | None = None,
        worker: str | None = None,
        claim_key: str | None = None,
        prefetch: bool = False,
    ) -> Claimed:
        """Lease up to `limit` jobs, most urgent first; wait up to `wait_s` for the first."""
        return self.run(
            self.core.claim(
                capabilities=None if capabilities is None else sorted(capabilities),
                limit=limit,
                queue=queue,
                lease_s=lease_s,
                wait_s=wait_s,
                max_priority=max_priority,
                worker=worker,
                claim_key=claim_key,
                prefetch=prefetch,
            )
        )

    def renew(
        self, lease: Lease, *, lease_s: int | None = None, checkpoint: object = ABSENT, started: bool = True
    ) -> Renewed:
        """Extend a lease from now on, and keep a checkpoint. Raises LeaseLost or MaxRuntime."""
        more = given({"lease_s": lease_s}) | {"started": started}
        if checkpoint is not ABSENT:
            more["checkpoint"] = checkpoint
        return self.run(self.core.renew(lease, more))

    def complete(self, lease: Lease, result: object = None) -> Completed:
        """Commit a result. Raises LeaseLost when the job is no longer this lease's."""
        return self.run(self.core.complete(lease, result))

    def fail(
        self,
        lease: Lease,
        error_class: ErrorClass = "transient",
        message: str = "",
        *,
        retry_after_s: int | None = None,
    ) -> Failed:
        return self.run(self.core.fail(lease, error_class, message, retry_after_s))

    def release(self, lease: Lease, *, delay_s: int | None = None) -> Released:
        """Give a job back; the attempt is not charged."""
        return self.run(self.core.release(lease, delay_s))

    # Messages

    def queue(self, name: str) -> MessageQueue:
        return MessageQueue(self, name)


class MessageQueue:
    """The messages of one queue."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client
        self._core = MessagesCore(client.core, name)

    def send(
        self,
        body: bytes | str,
        *,
        priority: int | str | None = None,
        deliver_at: datetime | None = None,
        delay_s: int | None = None,
        dedup_key: str | None = None,
        expires_in_s: int | None = None,
    ) -> Sent:
        """Make one message durable. A text is sent in UTF-8. Without a `dedup_key` the client makes one up."""
        return self._client.run(
            self._core.send(
                body,
                priority=priority,
                deliver_at=deliver_at,
                delay_s=delay_s,
                dedup_key=dedup_key,
                expires_in_s=expires_in_s,
            )
        )

    def receive(
        self, *, limit: int = 1, wait_s: int = 0, lease_s: int | None = None, max_priority: int | None = None
    ) -> list[Message]:
        """Take up to `limit` messages, most urgent first; wait up to `wait_s` for the first."""
        return self._client.run(
            self._core.receive(limit=limit, wait_s=wait_s, lease_s=lease_s, max_priority=max_priority)
        )

    def ack(self, *messages: Message | str) -> Settled:
        return self.settle(ack=messages)

    def extend(self, *messages: Message | str, lease_s: int | None = None) -> Settled:
        """Hold them longer: `lease_s` from now on, or as long as they were received for."""
        return self.settle(extend=[(one, lease_s) for one in messages])

    def release(self, *messages: Message | str) -> Settled:
        """Give them back; the delivery is not counted."""
        return self.settle(release=messages)

    def fail(self, *messages: Message | str, message: str = "") -> Settled:
        """Count a failed delivery, with what went wrong."""
        return self.settle(fail=[(one, message) for one in messages])

    def settle(
        self,
        *,
        ack: Receipts = (),
        extend: Iterable[tuple[Message | str, int | None]] = (),
        release: Receipts = (),
        fail: Iterable[tuple[Message | str, str]] = (),
    ) -> Settled:
        """All of these in one call, at most 1,000; each receipt stands alone."""
        return self._client.run(self._core.settle(ack=ack, extend=extend, release=release, fail=fail))

    def stats(self) -> dict[str, Any]:
        """What waits, as the API says it."""
        return self._client.run(self._core.stats())
