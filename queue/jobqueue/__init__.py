"""The queue. `from jobqueue import handler` is all that an app needs to do work."""

from jobqueue.worker.context import JobContext
from jobqueue.worker.outcomes import (
    InvalidCheckpoint,
    LeaseLost,
    Overload,
    Permanent,
    Release,
    Transient,
    Uncertain,
)
from jobqueue.worker.registry import handler

__all__ = [
    "InvalidCheckpoint",
    "JobContext",
    "LeaseLost",
    "Overload",
    "Permanent",
    "Release",
    "Transient",
    "Uncertain",
    "handler",
]
