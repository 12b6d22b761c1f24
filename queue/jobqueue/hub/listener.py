"""Hears of ready work from other processes. Whatever happens to it costs speed alone: polling is the truth.

A lost session is made anew within seconds, and then everyone looks at once for what was missed. Behind a pooler in
transaction mode LISTEN means nothing: that is noticed, told once, and polling goes on.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
from django.conf import settings
from prometheus_client import Gauge
from psycopg.sql import SQL, Identifier

from jobqueue.hub import notes, sessions
from jobqueue.wakeup import Mark
from jobsplatform import events

LOOK_SECONDS: Final = 0.5  # how soon a stop is seen
PROBE_SECONDS: Final = 10  # a silent session is asked so often whether it lives
BACKOFF_FIRST_SECONDS: Final = 0.1
POOLED_SECONDS: Final = 300  # until a pooled place is looked at anew

Hear = Callable[[str, frozenset[Mark]], None]

_up = Gauge(
    "jobsplatform_listener_up",
    "Whether this process hears notifications of a database (0: it polls).",
    ("database",),
    multiprocess_mode="livemin",
)


class Listener:
    """Listens to one database until it is stopped."""

    def __init__(self, alias: str, sender: str, hear: Hear, resync: Callable[[], None]) -> None:
        self.alias = alias
        self.is_up = False
        self._sender, self._hear, self._resync = sender, hear, resync
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"listener-{alias}", daemon=True)

    def start(self) -> None:
        self._note(False)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _run(self) -> None:
        failures = 0
        while not self._over.is_set():
            try:
                with sessions.connect(self.alias, "listener") as connection:
                    if sessions.is_pooled(connection):
                        self._leave_it()
                        continue
                    failures = 0
                    self._listen(connection)
            except (psycopg.Error, OSError) as error:
                if self.is_up or failures == 0:
                    events.emit("listener_lost", database=self.alias, error=repr(error)[:300])
                self._note(False)
                pause_s = min(settings.JOBS_RECONNECT_SECONDS, BACKOFF_FIRST_SECONDS * 2**failures)
                failures = min(failures + 1, 10)
                self._over.wait(pause_s * random.uniform(0.5, 1.0))
        self.is_up = (
            False  # the gauge stays: a process that has ended in good order is nothing to worry about
        )

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(SQL("LISTEN {}").format(Identifier(sessions.CHANNEL)))
        self._note(True)
        events.emit("listener_up", database=self.alias)
        self._resync()
        silent_s = 0.0
        while not self._over.is_set():
            heard = False
            for notification in connection.notifies(timeout=LOOK_SECONDS, stop_after=1):
                heard = True
                self._take(notification.payload)
            silent_s = 0.0 if heard else silent_s + LOOK_SECONDS
            if silent_s >= PROBE_SECONDS:
                connection.execute("SELECT 1")
                silent_s = 0.0

    def _take(self, payload: str) -> None:
        sender, marks = notes.read(payload)
        if sender != self._sender and marks:  # what this process did it knows already
            self._hear(self.alias, marks)

    def _leave_it(self) -> None:
        events.emit("listener_pooled", database=self.alias, mode="polling")
        self._note(False)
        self._over.wait(POOLED_SECONDS)

    def _note(self, is_up: bool) -> None:
        self.is_up = is_up
        _up.labels(self.alias).set(int(is_up))
