"""Django's Tasks on this platform: `TASKS = {"default": {"BACKEND": "jobqueue.tasks.QueueBackend", …}}`.

`QueueBackend` stores tasks in the platform's own database, in the caller's transaction; `HttpBackend` sends them
with a token. Nothing here is imported before it is asked for: the platform runs without a Tasks framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobqueue.tasks.backend import QueueBackend
    from jobqueue.tasks.failures import TaskCancelled, TaskDead, TaskExpired, WorkerLost
    from jobqueue.tasks.http_backend import HttpBackend
    from jobqueue.tasks.task import QueueTask

_HOMES = {
    "HttpBackend": "http_backend",
    "QueueBackend": "backend",
    "QueueTask": "task",
    "TaskCancelled": "failures",
    "TaskDead": "failures",
    "TaskExpired": "failures",
    "WorkerLost": "failures",
}

__all__ = [
    "HttpBackend",
    "QueueBackend",
    "QueueTask",
    "TaskCancelled",
    "TaskDead",
    "TaskExpired",
    "WorkerLost",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
