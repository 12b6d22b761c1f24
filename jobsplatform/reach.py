"""What this process knows of databases that do not answer: calls to them fail at once until a probe is answered.

A lost connection, a failed attempt at one, or a statement that takes long makes a database suspect: a thread of its
own asks it, by a connection of its own. If it does not answer, nobody waits for it any more: new calls are refused,
and connections on which somebody waits are cut. Probes go on, half a second apart, until one is answered, so that
work is back within two seconds of a healing.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
import weakref
from contextlib import suppress
from typing import Any, Final

import psycopg
from django.db import connections
from prometheus_client import Gauge

from jobsplatform import events

PROBE_SECONDS: Final = 0.5  # between two probes
PROBE_CONNECT_SECONDS: Final = 2  # libpq's least
LONG_SECONDS: Final = (
    2.0  # a statement that takes longer makes its database suspect; a healthy one answers the probe
)
LOOK_SECONDS: Final = 0.5
LATE_MAX: Final = 2  # probes in a row that may be late; a refusal is believed at once

# The server is there and says so.
_ANSWERS: Final = (
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "no more connections allowed",
)
_NOT_FOR_A_PROBE: Final = (
    "pool",
    "prepare_threshold",
    "server_side_binding",
    "isolation_level",
    "assume_role",
    "connect_timeout",
)

_up = Gauge(
    "jobsplatform_database_up",
    "Whether this process reaches a database (0: calls to it are refused until it answers a probe).",
    ("database",),
    multiprocess_mode="livemin",
)


class _Memory:
    """One a process; a forked one begins anew, for threads do not live through a fork."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.down: dict[str, float] = {}  # since when, by this process's own clock
        self.probed: set[str] = set()
        self.running: dict[int, tuple[str, float]] = {}  # statement → its database, and when it began
        self.met: dict[str, weakref.WeakSet[Any]] = {}
        self.looks = False


_memory = _Memory()
_numbers = itertools.count()


def _begin_anew() -> None:
    global _memory
    _memory = _Memory()


os.register_at_fork(after_in_child=_begin_anew)


def is_down(alias: str) -> bool:
    """Whether this database did not answer when it was last asked."""
    return alias in _memory.down


def down() -> frozenset[str]:
    """The databases that do not answer."""
    return frozenset(_memory.down)


def suspect(alias: str) -> None:
    """Find out whether a database answers at all, in a thread that goes on until it does."""
    memory = _memory
    with memory.lock:
        if alias in memory.probed:
            return
        memory.probed.add(alias)
    threading.Thread(target=_probe, args=(memory, alias), name=f"probe-{alias}", daemon=True).start()


def met(alias: str, connection: Any) -> None:
    """A connection that is to be cut when its database stops answering."""
    with _memory.lock:
        _memory.met.setdefault(alias, weakref.WeakSet()).add(connection)


class watched:
    """While this runs, the database must answer or be found out. (A generator would take twice as long.)"""

    __slots__ = ("_alias", "_memory", "_number")

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def __enter__(self) -> None:
        memory = self._memory = _memory
        self._number = next(_numbers)
        memory.running[self._number] = (self._alias, time.monotonic())
        if not memory.looks:
            _start_looking(memory)

    def __exit__(self, *failure: object) -> None:
        self._memory.running.pop(self._number, None)


def forget() -> None:
    """Drop what is remembered; probes under way find that out."""
    _begin_anew()


def _start_looking(memory: _Memory) -> None:
    with memory.lock:
        if memory.looks:
            return
        memory.looks = True
    threading.Thread(target=_look, args=(memory,), name="reach", daemon=True).start()


def _look(memory: _Memory) -> None:
    """Suspect the databases of statements that take long; of one that answered, again after as long a time."""
    asked: dict[str, float] = {}
    while memory is _memory:
        time.sleep(LOOK_SECONDS)
        long_ago = time.monotonic() - LONG_SECONDS
        for alias in {alias for alias, began in list(memory.running.values()) if began < long_ago}:
            if asked.get(alias, 0.0) < long_ago:
                asked[alias] = time.monotonic()
                suspect(alias)


def _probe(memory: _Memory, alias: str) -> None:
    since: float | None = None
    late = 0
    while memory is _memory:
        try:
            answers = answers_now(alias)
        except psycopg.errors.ConnectionTimeout:
            late += 1
            if late < LATE_MAX:  # a busy machine may be slow once
                continue
            answers = False
        with memory.lock:
            if answers:
                memory.down.pop(alias, None)
                memory.probed.discard(alias)
            elif since is None:
                since = memory.down[alias] = time.monotonic()
        _up.labels(alias).set(int(answers))
        if answers:
            if since is not None:
                events.emit("database_back", database=alias, seconds=round(time.monotonic() - since, 1))
            return
        _cut(memory, alias)
        time.sleep(PROBE_SECONDS)


def _cut(memory: _Memory, alias: str) -> None:
    """End the connections to a database that does not answer, and the waits on them."""
    with memory.lock:
        held = list(memory.met.pop(alias, ()))
    if not held:
        return
    events.emit("database_down", database=alias, count=len(held))
    for connection in held:
        with suppress(Exception), socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)  # it may be closed by now


def answers_now(alias: str) -> bool:
    """Whether a database answers a question, asked by a connection of its own. Raises psycopg's ConnectionTimeout."""
    entry = connections.settings.get(alias)
    if entry is None:  # it is none of the settings' (any more): nobody waits for it
        return True
    places = {"host": "HOST", "port": "PORT", "dbname": "NAME", "user": "USER", "password": "PASSWORD"}
    wanted: dict[str, Any] = {key: entry[field] for key, field in places.items() if entry.get(field)}
    options = {key: value for key, value in entry["OPTIONS"].items() if key not in _NOT_FOR_A_PROBE}
    parameters = {**options, **wanted, "connect_timeout": PROBE_CONNECT_SECONDS}
    parameters["application_name"] = "jobsplatform probe"
    try:
        with psycopg.connect(**parameters, autocommit=True, prepare_threshold=None) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.errors.ConnectionTimeout:
        raise
    except (psycopg.Error, OSError) as error:
        return any(words in str(error) for words in _ANSWERS)
