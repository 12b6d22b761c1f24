"""A task's call as a job's payload, and back; and the kind of job that a task is."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final, NamedTuple

from jobqueue.declarations import KIND
from jobqueue.limits import PAYLOAD_BYTES_MAX
from jobqueue.worker.documents import encode

_OTHER = re.compile(r"[^a-z0-9._-]")
_TAIL_CHARS: Final = 51  # with a hyphen and a hash of 12 digits: the 64 that a kind may have


class TaskCall(NamedTuple):
    """What is asked of a task. `priority` is the number as given: a band cannot be turned back into it."""

    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    priority: int


def kind_of(path: str) -> str:
    """The kind of a task: its module path, or what is left of one that no kind may be, and its hash."""
    if KIND.fullmatch(path):
        return path
    digest = hashlib.sha256(path.encode()).hexdigest()[:12]
    tail = _OTHER.sub("-", path.lower())[-_TAIL_CHARS:].lstrip("._-")
    return f"{tail}-{digest}" if tail else digest


def dump(call: TaskCall) -> str:
    """The payload's text. Raises InvalidDocument (a ValueError) for arguments that the queue cannot store."""
    members: dict[str, Any] = {"task": call.path, "args": call.args, "kwargs": call.kwargs}
    if call.priority:
        members["priority"] = call.priority
    return encode(members, bytes_max=PAYLOAD_BYTES_MAX)


def load(text: str | None) -> TaskCall | None:
    """None for a payload that is no task's call."""
    match None if text is None else json.loads(text):
        case {"task": str(path), "args": list(args), "kwargs": dict(kwargs), **more}:
            return TaskCall(path, args, kwargs, _priority(more.get("priority")))
    return None


def _priority(value: object) -> int:
    """A payload may have been written by anyone: what is no priority counts as none."""
    if isinstance(value, int) and not isinstance(value, bool) and -100 <= value <= 100:
        return value
    return 0
