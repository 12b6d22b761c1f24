"""What a handler knows of the job that it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from jobqueue import ids
from jobqueue.limits import CHECKPOINT_BYTES_MAX
from jobqueue.worker.documents import InvalidDocument, encode
from jobqueue.worker.outcomes import InvalidCheckpoint, LeaseLost
from jobsplatform import database

if TYPE_CHECKING:
    from jobqueue.claiming import Lease
    from jobqueue.worker.ending import Ending


class Backing(Protocol):
    """What a context asks of the engine that made it."""

    def save_checkpoint(self, job: JobContext, text: str) -> None:
        """Return once `text` is durable. Raises LeaseLost."""

    def note_done(self, job: JobContext) -> None:
        """The job's completion is committed while its handler still runs."""

    def queue_name(self, queue_id: int) -> str: ...

    def tenant_slug(self, tenant_id: int) -> str: ...


class JobContext:
    """One leased job, in the hands of one handler. Safe to read from any thread.

    `operation_id` is what a receiver of external effects should dedupe on: it is the same for every attempt
    and redrive. `reconcile` says that an earlier attempt's external call may have happened
    (`earlier_generations`).
    """

    __slots__ = (
        "_backing",
        "_payload",
        "began_at",
        "is_cancelled",
        "is_done",
        "is_ending",
        "is_lost",
        "lease",
        "place",
        "taken_at",
    )

    def __init__(self, lease: Lease, place: int, taken_at: float, backing: Backing) -> None:
        self.lease = lease
        self.began_at = time.monotonic()  # when it was queued here; from its start on, when that was
        self.place = place
        self.taken_at = taken_at
        self._backing = backing
        self.is_cancelled = self.is_ending = self.is_lost = False  # set by the engine
        self.is_done = (
            False  # completed by `transaction()`: what the handler does from then on counts no more
        )
        self._payload: Any = _UNREAD

    # Identity

    @property
    def job_id(self) -> str:
        return ids.format_id(self.lease.job_id)

    @property
    def operation_id(self) -> str:
        return ids.format_id(self.lease.job_id)

    @property
    def request_key(self) -> str | None:
        return self.lease.request_key

    @property
    def kind(self) -> str:
        return self.lease.kind

    @property
    def queue(self) -> str:
        return self._backing.queue_name(self.lease.queue_id)

    @property
    def tenant(self) -> str:
        """The slug of the tenant that the job belongs to."""
        return self._backing.tenant_slug(self.lease.tenant_id)

    @property
    def priority(self) -> int:
        """Index of the job's band, 0 is the most urgent."""
        return self.lease.priority

    @property
    def traceparent(self) -> str | None:
        return self.lease.traceparent

    # This attempt

    @property
    def attempt(self) -> int:
        """1 for the first try that is charged."""
        return self.lease.attempt

    @property
    def generation(self) -> int:
        """Counts claims; never repeats or falls, through redrives too."""
        return self.lease.generation

    @property
    def redrive_generation(self) -> int:
        return self.lease.redrive_generation

    @property
    def reconcile(self) -> bool:
        """An earlier attempt ended uncertain: find out what happened before acting again."""
        return self.lease.reconcile

    @property
    def earlier_generations(self) -> tuple[int, ...]:
        return tuple(self.lease.earlier_generations)

    @property
    def deadline(self) -> datetime | None:
        return self.lease.deadline

    @property
    def remaining_s(self) -> float:
        """Seconds until this attempt must end: the earlier of the queue's `max_run_s` and the deadline."""
        lease = self.lease
        end = lease.max_run_at if lease.deadline is None else min(lease.max_run_at, lease.deadline)
        return (end - lease.claimed_at).total_seconds() - (time.monotonic() - self.taken_at)

    # Input

    @property
    def payload(self) -> Any:
        """The payload as Python values, parsed at the first use; None for a job that has a `payload_ref`.

        Any JSON value that a producer chose: a handler that cannot use it raises `Permanent`.
        """
        if self._payload is _UNREAD:
            self._payload = None if self.lease.payload is None else json.loads(self.lease.payload)
        return self._payload

    @property
    def payload_text(self) -> str | None:
        """The payload's JSON, digit for digit as it was sent."""
        return self.lease.payload

    @property
    def payload_ref(self) -> str | None:
        return self.lease.payload_ref

    @property
    def checkpoint_data(self) -> Any:
        """What an earlier attempt left with `checkpoint()`; None without one."""
        return None if self.lease.checkpoint is None else json.loads(self.lease.checkpoint)

    # While it runs

    @property
    def cancelled(self) -> bool:
        """Someone asked to cancel the job; a handler that stops early should raise `Release` or return."""
        return self.is_cancelled

    @property
    def lease_lost(self) -> bool:
        """This attempt no longer holds the job, or soon will not: stop, nothing it does will count."""
        return self.is_lost or self.is_ending

    def checkpoint(self, value: object) -> None:
        """Store `value` (JSON, at most 16 KiB) durably for the attempts after this one.

        Raises LeaseLost when the job is no longer this attempt's, InvalidCheckpoint for a value that cannot
        be stored. While the database is away it waits, up to the end of the lease.
        """
        if self.is_lost:
            raise LeaseLost(f"the lease of job {self.job_id} is lost")
        try:
            text = encode(value, bytes_max=CHECKPOINT_BYTES_MAX)
        except InvalidDocument as error:
            raise InvalidCheckpoint(f"the checkpoint cannot be stored: {error}") from error
        self._backing.save_checkpoint(self, text)

    @contextmanager
    def transaction(self) -> Iterator[Ending]:
        """Commit what the block writes to the job's database together with the job's completion, or neither.

        The block gets an `Ending`: write with `using=ending.alias`, set `ending.result`. After it the job is done:
        the handler's return value, and an exception, count no more. Raises LeaseLost when the job is no longer this
        attempt's (the effect is rolled back), RuntimeError in a second block or inside another transaction.
        """
        from jobqueue.worker.ending import together  # needs Django to be set up

        if self.is_done:
            raise RuntimeError(f"job {self.job_id} is done: it has one transaction")
        alias = database.alias_of(self.lease.job_id)
        if self.is_lost or alias is None:
            raise LeaseLost(f"the lease of job {self.job_id} is lost")
        with together(self.lease, alias) as ending:
            yield ending
        self.is_done = True
        self._backing.note_done(self)

    def __repr__(self) -> str:
        return f"<job {self.job_id} {self.kind} generation {self.generation}>"


class _Unread:
    __slots__ = ()


_UNREAD = _Unread()
