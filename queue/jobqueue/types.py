"""Small frozen types that modules of the queue pass to each other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Scope:
    """What a caller may see and touch: its tenant (None: the whole fleet) and queues (None: every queue)."""

    tenant_id: int | None = None
    queue_ids: tuple[int, ...] | None = None
    token_id: int | None = None

    def params(self) -> dict[str, Any]:
        """The parameters that the fragment `{in_scope}` reads."""
        queue_ids = None if self.queue_ids is None else list(self.queue_ids)
        return {"tenant_id": self.tenant_id, "queue_ids": queue_ids}


FLEET = Scope()


class Gate(NamedTuple):
    """One thing that holds a job; `until` is when it will not any more, where that is known."""

    gate: str
    detail: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadTicket:
    """A job that leaves the schedule: its ticket, why, and the last error."""

    job_id: int
    reason: str
    at: datetime
    error_class: str | None
    message: str | None
    lane_id: int
    first_ready_at: datetime | None
    max_attempts: int
    deadline: datetime | None
    payload_version: int
    redrive_generation: int
    attempt: int
    generation: int
    crashes: int
    lapses: int
    releases: int
    reconcile: bool
    checkpoint: str | None


def short_hash(*parts: object) -> bytes:
    """16 bytes that recognise a call by its arguments. Parts are told apart by their length."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part if isinstance(part, bytes) else repr(part).encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.digest()[:16]


def token_hash(token: bytes) -> bytes:
    """What the attempt keeps of a lease token (the statements compute the same)."""
    return hashlib.sha256(token).digest()[:16]
