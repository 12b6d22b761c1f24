"""Tells the worker which kinds it can do for Django's Tasks."""

from __future__ import annotations

from django.conf import settings


def register() -> None:
    """Register each task of each `QueueBackend` in TASKS as the handler of its kind. Without TASKS nothing is done.

    Raises ValueError where a kind has another handler already, ImportError for a task module that is broken.
    """
    if not getattr(settings, "TASKS", None):
        return
    from jobqueue.tasks.backend import QueueBackend
    from jobqueue.tasks.calls import kind_of
    from jobqueue.tasks.framework import task_backends
    from jobqueue.tasks.running import Runner
    from jobqueue.worker import registry

    taken: set[str] = set()
    for backend in task_backends.all():
        if isinstance(backend, QueueBackend):
            for path in backend.tasks().keys() - taken:
                taken.add(path)  # two backends on one queue: the first one's settings hold
                registry.handler(kind_of(path))(Runner(path, backend))
