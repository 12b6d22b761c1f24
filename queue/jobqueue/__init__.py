"""The queue. `from jobqueue import handler` is all that an app needs to do work."""

from jobqueue.worker.context import JobContext
from jobqueue.worker.outcomes import Overload, Permanent, Release, Transient, Uncertain
from jobqueue.worker.registry import handler

__all__ = ["JobContext", "Overload", "Permanent", "Release", "Transient", "Uncertain", "handler"]
