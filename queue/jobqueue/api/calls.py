"""From a call to what the verbs take: whose jobs it may touch, and which queues it names."""

from __future__ import annotations

import re

from jobqueue import policies
from jobqueue.policies import QueuePolicy
from jobqueue.types import Scope
from jobsplatform.errors import FieldError, InsufficientScope, Invalid, JobsPlatformError, NotFound
from jobsplatform.fields import NAME_PATTERN
from jobsplatform.http import Call

_NAME = re.compile(NAME_PATTERN, re.ASCII).fullmatch


def scope_of(call: Call) -> Scope:
    """What the caller may see and touch. A queue that its token names and that is gone counts for nothing."""
    names = call.known.queue_names
    queue_ids = None if names is None else tuple(_existing(name) for name in sorted(names))
    return Scope(
        tenant_id=None if call.tenant is None else call.tenant.id,
        queue_ids=None if queue_ids is None else tuple(i for i in queue_ids if i is not None),
        token_id=call.known.token_id,
    )


def queue_in_body(name: str, pointer: str = "/queue") -> QueuePolicy:
    """The queue that a body or query names. Raises Invalid at `pointer`."""
    try:
        return policies.by_name(name)
    except NotFound:
        raise Invalid.at(pointer, "There is no such queue.", "unknown_queue") from None


def queue_in_path(call: Call) -> QueuePolicy | None:
    """The queue that the path names; None: there is none, which is 404 after all that is 400 and 403."""
    name = call.path["queue"]
    if _NAME(name) is None:
        return None
    try:
        return policies.by_name(name)
    except NotFound:
        return None


def found_queue(call: Call, queue: QueuePolicy | None) -> QueuePolicy:
    """The path's queue. Raises NotFound, or InsufficientScope where the caller's token excludes it."""
    if queue is None:
        raise NotFound("There is no such queue.")
    require_queue(call, queue)
    return queue


def require_queue(call: Call, queue: QueuePolicy) -> None:
    """Raise InsufficientScope for a queue that the caller's token excludes."""
    names = call.known.queue_names
    if names is not None and queue.name not in names:
        raise InsufficientScope("The token excludes this queue.")


def at_item(error: JobsPlatformError, parent: str) -> JobsPlatformError:
    """The error with its pointers below an item of a list."""
    if not isinstance(error, Invalid):
        return error
    moved = [
        fault if fault.pointer.startswith(parent) else FieldError(parent + fault.pointer, *fault[1:])
        for fault in error.errors
    ]
    return Invalid(error.detail, errors=moved)


def _existing(name: str) -> int | None:
    try:
        return policies.by_name(name).id
    except NotFound:
        return None
