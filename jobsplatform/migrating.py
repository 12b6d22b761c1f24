"""Runs migrations beside live work: no statement waits longer than `LOCK_MS` for a lock, and none gives up at once.

An ALTER that waits behind a long reader (a `pg_dump`, a forgotten transaction) makes everything else wait behind it. So
each waits half a second at most, lets everyone pass, and tries again: a migration that is one transaction from its
beginning, another from the statement that failed. Building an index CONCURRENTLY blocks nobody and may wait.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.core.management import call_command
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from psycopg import errors as pg

LOCK_MS: Final = 500
PAUSE_SECONDS: Final = (1.0, 3.0)  # between two tries: what waited behind the last one has run by then
PATIENCE_SECONDS: Final = 600.0  # for a lock, of each statement or migration

Tell = Callable[[str], object]


def migrate(alias: str, *, patience_s: float = PATIENCE_SECONDS, tell: Tell = lambda line: None) -> int:
    """Bring one database up to date; returns how many migrations that took.

    Raises OperationalError when a lock was not to be had within `patience_s`.
    """
    executor = MigrationExecutor(connections[alias])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    ends_at = time.monotonic() + patience_s
    with _impatient(alias, patience_s, tell):
        while plan:
            try:
                call_command("migrate", database=alias, verbosity=0, interactive=False)
                break
            except OperationalError as error:
                _pause(error, ends_at, tell)
    return len(plan)


@contextmanager
def _impatient(alias: str, patience_s: float, tell: Tell) -> Iterator[None]:
    """A session of `alias` that waits for no lock longer than `LOCK_MS`."""
    connection = connections[alias]
    execute = _Patient(connection, patience_s, tell)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{LOCK_MS}ms"])
    try:
        with connection.execute_wrapper(execute):
            yield
    finally:
        connection.close()  # the pool gives it back reset, or not at all
        getattr(connection, "close_pool", lambda: None)()


class _Patient:
    """Runs each statement; one that is a transaction of its own is tried again until it gets its locks."""

    def __init__(self, connection: BaseDatabaseWrapper, patience_s: float, tell: Tell) -> None:
        self._connection, self._patience_s, self._tell = connection, patience_s, tell

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if self._connection.in_atomic_block:
            return execute(sql, params, many, context)
        if "CONCURRENTLY" in str(sql):
            return self._unhurried(execute, sql, params, many, context)
        ends_at = time.monotonic() + self._patience_s
        while True:
            try:
                return execute(sql, params, many, context)
            except OperationalError as error:
                _pause(error, ends_at, self._tell)

    def _unhurried(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        connection = self._connection.connection
        connection.execute("SELECT set_config('lock_timeout', '0', false)")
        try:
            return execute(sql, params, many, context)
        finally:
            connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{LOCK_MS}ms"])


def _pause(error: OperationalError, ends_at: float, tell: Tell) -> None:
    """Before another try. Raises what was no matter of locks, or has lasted too long."""
    if not isinstance(error.__cause__, (pg.LockNotAvailable, pg.DeadlockDetected)):
        raise error
    if time.monotonic() > ends_at:
        raise error
    tell("a lock is held by others; trying again")
    time.sleep(random.uniform(*PAUSE_SECONDS))
