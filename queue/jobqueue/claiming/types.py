"""What a claim asks for and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from jobqueue.policies import QueuePolicy
from jobqueue.types import short_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker asks for. `kinds` None: any; `max_priority`: the largest band index it wants."""

    queues: tuple[QueuePolicy, ...]
    kinds: tuple[str, ...] | None = None
    limit: int = 1
    lease_s: int | None = None
    max_priority: int | None = None
    worker: str = ""
    claim_key: str | None = None
    prefetch: bool = False

    @property
    def call_hash(self) -> bytes:
        """Recognises a repeat with the same arguments."""
        queues = sorted(queue.id for queue in self.queues)
        kinds = None if self.kinds is None else sorted(self.kinds)
        return short_hash("claim", queues, kinds, self.limit, self.lease_s, self.max_priority, self.prefetch)


class Lease(NamedTuple):
    """The right to run one generation of a job until `expires_at`. `payload` and `checkpoint` are JSON texts.

    `crashes`: leases of this job that lapsed while it ran; more than none makes it a suspect.
    """

    job_id: int
    generation: int
    attempt: int
    token: bytes
    claimed_at: datetime
    expires_at: datetime
    max_run_at: datetime
    deadline: datetime | None
    reconcile: bool
    checkpoint: str | None
    redrive_generation: int
    queue_id: int
    tenant_id: int
    kind: str
    priority: int
    payload: str | None
    payload_ref: str | None
    request_key: str | None
    traceparent: str | None
    earlier_generations: list[int]
    crashes: int = 0


class Taken(NamedTuple):
    """A row of `claim_take` and `claim_repeat`."""

    job_id: int
    lane_id: int
    generation: int
    attempt: int
    token: bytes
    claimed_at: datetime
    expires_at: datetime
    max_run_at: datetime
    deadline: datetime | None
    reconcile: bool
    checkpoint: str | None
    payload_version: int
    redrive_generation: int
    crashes: int
