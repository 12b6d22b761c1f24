"""Waiting for work, and being told of it.

`core` parks consumers and claims for them; `notifier` tells other processes of ready work, `listener` hears them.
Here is what of these a process has: one of each, made when it is first needed and never before a fork.
"""

from __future__ import annotations

import atexit
import os
import secrets
import threading
from collections.abc import Callable

from django.conf import settings

from jobqueue import wakeup
from jobqueue.claiming import summaries
from jobqueue.hub.core import Hub
from jobqueue.hub.listener import Hear, Listener
from jobqueue.hub.notifier import Notifier
from jobsplatform import database
from jobsplatform.stopping import stopping

_lock = threading.Lock()
_hub: Hub | None = None
_listeners: list[Listener] = []
_notifier: Notifier | None = None
_sender = ""


def sender() -> str:
    """How this process signs its notifications, so that it does not heed its own."""
    global _sender
    if not _sender:
        _sender = f"{os.getpid():x}.{secrets.token_hex(4)}"
    return _sender


def current() -> Hub:
    """The hub of this process."""
    global _hub
    if _hub is None:
        with _lock:
            if _hub is None:
                made = Hub(parked_max=settings.JOBS_PARKED_MAX, is_stopping=lambda: stopping.is_set())
                wakeup.hear(made.hint)
                _listeners.extend(listen(made.hint, made.resync))
                _hub = made
    return _hub


def listen(hear: Hear, resync: Callable[[], None]) -> list[Listener]:
    """Listeners on every shard, started; none where notifications are switched off."""
    if not settings.JOBS_NOTIFICATIONS:
        return []

    def heard(alias: str, marks: frozenset[wakeup.Mark]) -> None:
        summaries.hint(alias, marks)
        hear(alias, marks)

    made = [Listener(alias, sender(), heard, resync) for alias in database.aliases().values()]
    for one in made:
        one.start()
    return made


def tell_others() -> None:
    """From now on this process tells others of the work that it makes ready."""
    global _notifier
    if _notifier is None and settings.JOBS_NOTIFICATIONS:
        _notifier = Notifier(sender())
        wakeup.hear(_notifier.tell)
        atexit.register(_notifier.flush)


def forget() -> None:
    """End what this process has of it (tests, whose databases come and go)."""
    global _hub
    with _lock:
        ended, _hub = _hub, None
        for listener in _listeners:
            listener.stop()
        _listeners.clear()
    if ended is not None:
        wakeup.forget_hearer(ended.hint)
        ended.stop()
