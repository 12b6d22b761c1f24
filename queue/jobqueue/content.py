"""What a request asks for, as a fingerprint: kind, priority, payload, timing and dependency."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from jobqueue.policy.slots import slot_of
from jobsplatform import strictjson

if TYPE_CHECKING:
    from jobqueue.enqueue import NewJob


def fingerprint(job: NewJob) -> bytes:
    """32 bytes that are equal for equal content. In a payload, member order and white space don't count, digits do."""
    digest = hashlib.sha256()
    payload = b"" if job.payload is None else strictjson.canonical(job.payload)
    expiry = None if job.expires_from_due else job.expires_in_s  # a message's default says nothing
    timing = (job.not_before, job.delay_s, job.deadline, expiry)
    parts = (job.kind, job.priority, job.payload is None, job.payload_ref, job.dependency, *map(str, timing))
    for part in (repr(parts).encode(), payload):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def slot(identity: tuple[int, int, int, str]) -> int:
    """The slot of a request key, 0 to 4,095."""
    return slot_of(*identity)
