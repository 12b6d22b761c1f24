"""Tells other processes of ready work: after the commit, coalesced, on a connection of its own.

Bands 0 and 1 are told at once, by the thread that made them ready, which waits for no answer; others with all that
comes within 20 ms, by a thread for it. While the database is away what is to be
told is dropped, not kept: whoever listens looks by itself when it is back.
"""

from __future__ import annotations

import select
import threading
import time
from typing import Any, Final

import psycopg
from django.conf import settings

from jobqueue.hub import notes, sessions
from jobqueue.wakeup import Mark
from jobsplatform import events

COALESCE_SECONDS: Final = 0.02
URGENT_SECONDS: Final = 0.002  # between two notifications, however urgent: no flood of them
AWAY_SECONDS: Final = 1.0  # a database that refused is not asked again sooner
FLUSH_SECONDS: Final = 1.0

# NOTIFY gets a transaction id, so its commit would wait for the disk; a hint need not survive a crash.
_POSTED: Final = b"SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
_PREPARED: Final = b"notify"


class Notifier:
    """One a process. `tell` never waits and never fails."""

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._marks: dict[str, set[Mark]] = {}
        self._due_at = float("inf")
        self._sent_at = 0.0
        self._connections: dict[str, psycopg.Connection[Any]] = {}
        self._away_until: dict[str, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_over = self._is_sending = False

    def tell(self, alias: str, marks: frozenset[Mark]) -> None:
        with self._changed:
            now = time.monotonic()
            is_urgent = any(mark.is_urgent for mark in marks)
            if is_urgent and now >= self._sent_at + URGENT_SECONDS and self._posted(alias, marks):
                self._sent_at = now
                return
            self._marks.setdefault(alias, set()).update(marks)
            pause = URGENT_SECONDS if is_urgent else COALESCE_SECONDS
            due_at = max(now, self._sent_at + pause) if is_urgent else now + pause
            if self._thread is None and not self._is_over:
                self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
                self._thread.start()
            if due_at < self._due_at:  # else it wakes early enough, and each waking holds up who enqueues
                self._due_at = due_at
                self._changed.notify()

    def flush(self) -> None:
        """Tell what is to be told, for a process that ends; at most a second."""
        ends = time.monotonic() + FLUSH_SECONDS
        with self._changed:
            self._due_at = min(self._due_at, 0.0) if self._marks else self._due_at
            self._changed.notify()
            while (self._marks or self._is_sending) and self._thread is not None and time.monotonic() < ends:
                self._changed.wait(0.02)

    def stop(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(10)

    def _posted(self, alias: str, marks: frozenset[Mark]) -> bool:
        """Tell now, and wait for nothing. False where that cannot be: the thread has the connection, or makes one."""
        connection = self._connections.get(alias)
        if connection is None or self._is_sending:
            return False
        texts = list(notes.write(self._sender, marks))
        try:
            if len(texts) > 1 or not _is_free(connection) or _is_readable(connection):
                return False  # (what is left to read is the end of the session)
            _post(connection, texts[0])
        except psycopg.Error:
            return False  # the thread finds out
        return True

    # In its thread

    def _run(self) -> None:
        while (marks := self._next()) is not None:
            for alias, told in marks.items():
                self._send(alias, told)
            with self._changed:
                self._is_sending = False
                self._sent_at = time.monotonic()
                self._changed.notify_all()
        for connection in self._connections.values():
            connection.close()

    def _next(self) -> dict[str, set[Mark]] | None:
        with self._changed:
            while not self._is_over:
                now = time.monotonic()
                if self._marks and self._due_at <= now:
                    marks, self._marks, self._due_at = self._marks, {}, float("inf")
                    self._is_sending = True
                    return marks
                self._changed.wait(None if not self._marks else self._due_at - now)
        return None

    def _send(self, alias: str, marks: set[Mark]) -> None:
        if time.monotonic() < self._away_until.get(alias, 0.0):
            return
        for attempt in range(2):  # a connection that the server has closed meanwhile is found out by using it
            try:
                connection = self._connection(alias)
                _free(connection)
                for text in notes.write(self._sender, marks):
                    _post(connection, text)
                    _free(connection)
                return
            except (psycopg.Error, OSError) as error:
                held = self._connections.pop(alias, None)
                if held is not None:
                    held.close()
                if attempt or held is None:
                    self._away_until[alias] = time.monotonic() + AWAY_SECONDS
                    events.emit("notify_failed", database=alias, error=repr(error)[:300])
                    return

    def _connection(self, alias: str) -> psycopg.Connection[Any]:
        if alias not in self._connections:
            connection = sessions.connect(alias, "notifier")
            if settings.JOBS_PREPARED_STATEMENTS:
                connection.pgconn.prepare(_PREPARED, _POSTED)
            self._connections[alias] = connection
        return self._connections[alias]


def _post(connection: psycopg.Connection[Any], text: str) -> None:
    """Send one notification. Its answer is to be read before the next one."""
    params = [sessions.CHANNEL.encode(), text.encode()]
    if settings.JOBS_PREPARED_STATEMENTS:  # the server takes longer to read the statement than to run it
        connection.pgconn.send_query_prepared(_PREPARED, params)
    else:
        connection.pgconn.send_query_params(_POSTED, params)
    connection.pgconn.flush()


def _is_free(connection: psycopg.Connection[Any]) -> bool:
    """Whether what was posted on it last is answered. Raises psycopg.Error for a session that was ended."""
    connection.pgconn.consume_input()
    while not connection.pgconn.is_busy():
        result = connection.pgconn.get_result()
        if result is None:
            return True
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise psycopg.OperationalError(result.error_message.decode("utf-8", "replace"))
    return False


def _free(connection: psycopg.Connection[Any]) -> None:
    """Wait until it is. Raises psycopg.Error; TimeoutError."""
    ends = time.monotonic() + FLUSH_SECONDS
    while not _is_free(connection):
        if time.monotonic() > ends:
            raise TimeoutError
        _is_readable(connection, 0.1)


def _is_readable(connection: psycopg.Connection[Any], wait_s: float = 0) -> bool:
    return bool(select.select([connection.fileno()], [], [], wait_s)[0])
