"""The client for asyncio: the same conversations as `Client`'s, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
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


class AsyncClient:
    """As `Client`. For one event loop."""

    def __init__(
        self,
        base_url: str,
        token: str,
        *,
        tenant: str | None = None,
        retry: Retry | None = None,
        timeout_s: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.core = Core(retry or Retry())
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(**web.options(base_url, token, tenant), transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def run(
        self, talk: Conversation[T], pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> T:
        """Hold a conversation of `core`'s. `pause` may raise to end it."""
        answer: Answer | None = None
        try:
            while True:
                try:
                    step = talk.send(answer)
                except StopIteration as end:
                    value: T = end.value
                    return value
                answer = None
                if isinstance(step, Pause):
                    await pause(step.seconds)
                else:
                    answer = await self._send(step.request)
        finally:
            talk.close()

    async def _send(self, request: Request) -> Answer:
        try:
            return web.reply(await self._http.request(**web.arguments(request, self._timeout_s)))
        except web.NO_REPLY as error:
            return web.no_reply(error)

    # Producing

    async def enqueue(self, kind: str, payload: object = ABSENT, **options: Unpack[JobOptions]) -> Accepted:
        """Make one job durable; `options` are those of `NewJob`. Once, however often it had to be sent."""
        return await self.run(self.core.enqueue(NewJob(kind, payload, **options)))

    async def enqueue_batch(self, jobs: Iterable[NewJob]) -> list[Accepted]:
        """Make jobs durable, in as few calls as it takes. Raises BatchIncomplete if one was not accepted."""
        return await self.run(self.core.enqueue_batch(jobs))

    async def job(self, job_id: str, *, include_payload: bool = False) -> Job:
        return await self.run(self.core.job(job_id, include_payload=include_payload))

    async def jobs(self, wanted: JobFilter | None = None) -> AsyncIterator[Job]:
        """All jobs that the filter lets through, newest first, page by page as they are looked at."""
        cursor: str | None = None
        while True:
            page, cursor = await self.run(self.core.jobs_page(wanted or JobFilter(), cursor))
            for job in page:
                yield job
            if cursor is None:
                return

    async def result(self, job_id: str) -> Result:
        """How it ended. Raises NotFound until it has."""
        return await self.run(self.core.result(job_id))

    async def why(self, job_id: str) -> dict[str, Any]:
        """What holds a job, as the API says it."""
        return await self.run(self.core.why(job_id))

    async def cancel(self, job_id: str, *, reason: str | None = None) -> Cancelled:
        """End a waiting job, or ask the worker of a running one to stop. Raises AlreadyFinished."""
        return await self.run(self.core.cancel(job_id, reason))

    # Working: for workers of your own; `AsyncWorker` does all of this

    async def claim(
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
        return await self.run(
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

    async def renew(
        self, lease: Lease, *, lease_s: int | None = None, checkpoint: object = ABSENT, started: bool = True
    ) -> Renewed:
        """Extend a lease from now on, and keep a checkpoint. Raises LeaseLost or MaxRuntime."""
        more = given({"lease_s": lease_s}) | {"started": started}
        if checkpoint is not ABSENT:
            more["checkpoint"] = checkpoint
        return await self.run(self.core.renew(lease, more))

    async def complete(self, lease: Lease, result: object = None) -> Completed:
        """Commit a result. Raises LeaseLost when the job is no longer this lease's."""
        return await self.run(self.core.complete(lease, result))

    async def fail(
        self,
        lease: Lease,
        error_class: ErrorClass = "transient",
        message: str = "",
        *,
        retry_after_s: int | None = None,
    ) -> Failed:
        return await self.run(self.core.fail(lease, error_class, message, retry_after_s))

    async def release(self, lease: Lease, *, delay_s: int | None = None) -> Released:
        """Give a job back; the attempt is not charged."""
        return await self.run(self.core.release(lease, delay_s))

    # Messages

    def queue(self, name: str) -> AsyncMessageQueue:
        return AsyncMessageQueue(self, name)


class AsyncMessageQueue:
    """The messages of one queue. As `MessageQueue`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client
        self._core = MessagesCore(client.core, name)

    async def send(
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
        return await self._client.run(
            self._core.send(
                body,
                priority=priority,
                deliver_at=deliver_at,
                delay_s=delay_s,
                dedup_key=dedup_key,
                expires_in_s=expires_in_s,
            )
        )

    async def receive(
        self, *, limit: int = 1, wait_s: int = 0, lease_s: int | None = None, max_priority: int | None = None
    ) -> list[Message]:
        """Take up to `limit` messages, most urgent first; wait up to `wait_s` for the first."""
        return await self._client.run(
            self._core.receive(limit=limit, wait_s=wait_s, lease_s=lease_s, max_priority=max_priority)
        )

    async def ack(self, *messages: Message | str) -> Settled:
        return await self.settle(ack=messages)

    async def extend(self, *messages: Message | str, lease_s: int | None = None) -> Settled:
        """Hold them longer: `lease_s` from now on, or as long as they were received for."""
        return await self.settle(extend=[(one, lease_s) for one in messages])

    async def release(self, *messages: Message | str) -> Settled:
        """Give them back; the delivery is not counted."""
        return await self.settle(release=messages)

    async def fail(self, *messages: Message | str, message: str = "") -> Settled:
        """Count a failed delivery, with what went wrong."""
        return await self.settle(fail=[(one, message) for one in messages])

    async def settle(
        self,
        *,
        ack: Receipts = (),
        extend: Iterable[tuple[Message | str, int | None]] = (),
        release: Receipts = (),
        fail: Iterable[tuple[Message | str, str]] = (),
    ) -> Settled:
        """All of these in one call, at most 1,000; each receipt stands alone."""
        return await self._client.run(self._core.settle(ack=ack, extend=extend, release=release, fail=fail))

    async def stats(self) -> dict[str, Any]:
        """What waits, as the API says it."""
        return await self._client.run(self._core.stats())
