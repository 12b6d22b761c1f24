"""What a handler knows of the job that it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from jobsplatform_client.worker.book import Held


class _Job:
    """One leased job in the hands of one handler.

    `operation_id` is what a receiver of outside effects should dedupe on: it is the same for every attempt and
    redrive. `reconcile`: an earlier attempt's outside call may have happened (`earlier_generations`).
    """

    __slots__ = ("_held",)

    def __init__(self, held: Held) -> None:
        self._held = held

    def __repr__(self) -> str:
        return f"<job {self.job_id} {self.kind} generation {self.generation}>"

    # Identity

    @property
    def job_id(self) -> str:
        return self._held.lease.job_id

    @property
    def operation_id(self) -> str:
        return self._held.lease.operation_id

    @property
    def request_key(self) -> str | None:
        return self._held.lease.request_key

    @property
    def kind(self) -> str:
        return self._held.lease.kind

    @property
    def queue(self) -> str:
        return self._held.lease.queue

    @property
    def tenant(self) -> str:
        return self._held.lease.tenant

    @property
    def priority(self) -> int:
        """Index of the job's band, 0 is the most urgent."""
        return self._held.lease.priority

    @property
    def traceparent(self) -> str | None:
        return self._held.lease.traceparent

    # This attempt

    @property
    def attempt(self) -> int:
        return self._held.lease.attempt

    @property
    def generation(self) -> int:
        return self._held.lease.generation

    @property
    def redrive_generation(self) -> int:
        return self._held.lease.redrive_generation

    @property
    def reconcile(self) -> bool:
        return self._held.lease.reconcile

    @property
    def earlier_generations(self) -> tuple[int, ...]:
        return self._held.lease.earlier_generations

    @property
    def deadline(self) -> datetime | None:
        return self._held.lease.deadline

    # Input

    @property
    def payload(self) -> Any:
        return self._held.lease.payload

    @property
    def payload_ref(self) -> str | None:
        return self._held.lease.payload_ref

    @property
    def checkpoint_data(self) -> Any:
        """What an earlier attempt left with `checkpoint()`; None without one."""
        return self._held.lease.checkpoint

    # While it runs

    @property
    def cancelled(self) -> bool:
        """Someone asked to cancel the job; a handler that stops early should raise `Release` or return."""
        return self._held.cancel_requested

    @property
    def lease_lost(self) -> bool:
        """This attempt no longer holds the job: stop, nothing it does will count."""
        return self._held.lost is not None

    @property
    def worker_ending(self) -> bool:
        """The worker drains: finish, or leave a checkpoint and raise `Release`."""
        return self._held.is_worker_ending


class JobContext(_Job):
    """A job in a handler of `Worker`."""

    __slots__ = ("_save",)

    def __init__(self, held: Held, save: Callable[[Held, object], None]) -> None:
        super().__init__(held)
        self._save = save

    def checkpoint(self, value: object) -> None:
        """Store `value` (JSON, at most 16 KiB) for the attempts after this one; returns when it is durable.

        Raises errors.LeaseLost when the job is no longer this attempt's.
        """
        self._save(self._held, value)


class AsyncJobContext(_Job):
    """A job in a handler of `AsyncWorker`."""

    __slots__ = ("_save",)

    def __init__(self, held: Held, save: Callable[[Held, object], Awaitable[None]]) -> None:
        super().__init__(held)
        self._save = save

    async def checkpoint(self, value: object) -> None:
        """As `JobContext.checkpoint`."""
        await self._save(self._held, value)
