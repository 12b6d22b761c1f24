"""The queue. `from jobqueue import handler` is all that an app needs to do work."""

from jobqueue.worker.context import JobContext
from jobqueue.worker.outcomes import (
    Done,
    InvalidCheckpoint,
    LeaseLost,
    NotDone,
    Overload,
    Permanent,
    Release,
    StillUnknown,
    Transient,
    Uncertain,
    safe_to_repeat,
)
from jobqueue.worker.registry import handler

__all__ = [
    "Done",
    "InvalidCheckpoint",
    "JobContext",
    "LeaseLost",
    "NotDone",
    "Overload",
    "Permanent",
    "Release",
    "StillUnknown",
    "Transient",
    "Uncertain",
    "handler",
    "safe_to_repeat",
]
