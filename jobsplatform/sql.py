"""Runs the platform's statement files: one statement a file, `<app>/sql/<verb>.sql`, named parameters.

Statements run on Django's connection of an alias with the parameters bound by the server, so that a statement
decides alone; a lost connection is told apart by what it means to a caller (`Unavailable` or `UnknownOutcome`).
"""

from __future__ import annotations

import importlib.util
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from django.db import connections, transaction
from psycopg import errors as pg

from jobsplatform import direct, reach
from jobsplatform.binding import Bound, bind
from jobsplatform.errors import NotReplicated, Unavailable, UnknownOutcome
from jobsplatform.pipelines import together

Row = tuple[Any, ...]
T = TypeVar("T")

# A statement whose header says `plan: by index` is kept to index lookups: on empty or stale statistics the planner
# picks sequential scans and hash joins, and a plan cached while a table was small costs nine tenths of the throughput
# once it has grown. Joins are made in the order in which they are written: from the few rows that a call names.
BY_INDEX = b"""SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('join_collapse_limit', '1', true)"""
# `plan: by index, once`: and one plan for all parameters, where it would be the same again and takes longer to make
# than to run. In the order of an index, too: a bitmap reads all of a lane before it gives the first.
BY_ONE_PLAN = (
    BY_INDEX
    + b""", set_config('enable_bitmapscan', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true)"""
)

_SETTINGS = (
    "enable_seqscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "join_collapse_limit",
    "enable_bitmapscan",
    "plan_cache_mode",
)
_READ_SETTINGS = "SELECT " + ", ".join(f"current_setting('{name}')" for name in _SETTINGS)
_RESTORE_SETTINGS = "SELECT " + ", ".join(f"set_config('{name}', %s, true)" for name in _SETTINGS)

# `{name}` in a statement or a fragment stands for the fragment `_name.sql` beside it; `{t.name}` puts `t.` before each
# column of a list.
_FRAGMENT = re.compile(r"\{(?:(\w+)\.)?([a-z_]+)\}")

RETRIES_MAX = 3  # of a statement that lost a deadlock or a serialisation race (each rolled back whole)
_RACES = (pg.DeadlockDetected, pg.SerializationFailure)
_IDLE = psycopg.pq.TransactionStatus.IDLE
# The server said no before any effect: starting up, shutting down, read only, out of connections, time-outs.
_REFUSALS = (
    pg.CannotConnectNow,
    pg.ReadOnlySqlTransaction,
    pg.TooManyConnections,
    pg.QueryCanceled,
    pg.LockNotAvailable,
    pg.DiskFull,
    pg.OutOfMemory,
)
# Whose warning says that a wait for the standby was cancelled: its words differ by version and language.
_STANDBY_WAIT = "SyncRepWaitForLSN"


@cache
def text(statement: str) -> bytes:
    """The text of `app/verb` with its fragments expanded. Raises FileNotFoundError for an unknown name."""
    app, verb = statement.split("/")
    spec = importlib.util.find_spec(app)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"no app {app!r} for statement {statement!r}")
    folder = Path(spec.origin).parent / "sql"

    def expand(match: re.Match[str]) -> str:
        fragment = _FRAGMENT.sub(expand, (folder / f"_{match[2]}.sql").read_text("utf-8").strip())
        if match[1] is None:
            return fragment
        return ", ".join(f"{match[1]}.{column.strip()}" for column in fragment.split(","))

    return _FRAGMENT.sub(expand, (folder / f"{verb}.sql").read_text("utf-8")).encode()


@cache
def _bound(statement: str) -> Bound:
    """The statement as it is sent: without indents and comments but its first line, its parameters numbered."""
    first, *lines = text(statement).decode().splitlines()
    return bind("\n".join([first, *(line for raw in lines if (line := raw.strip())[:2] not in ("", "--"))]))


@cache
def planning(statement: str) -> bytes | None:
    """What must be set before the statement is planned, if its header asks for a plan."""
    found = text(statement)
    if b"\n-- plan: by index, once\n" in found:
        return BY_ONE_PLAN
    return BY_INDEX if b"\n-- plan: by index\n" in found else None


@cache
def _planned(settings: bytes | None) -> tuple[direct.Sent, ...]:
    """What `planning` answered, as it is sent."""
    return () if settings is None else (direct.Sent(bind(settings.decode()), ()),)


def by_one_plan(connection: psycopg.Connection[Row]) -> None:
    """Keep the statements of this transaction to index lookups, each planned once a connection."""
    psycopg.Cursor(connection).execute(BY_ONE_PLAN)


def rows(statement: str, params: Mapping[str, Any], *, alias: str, writes: bool = False) -> list[Row]:
    """Run one statement and return its rows.

    `writes` says that a lost connection leaves the outcome unknown. Raises Unavailable or UnknownOutcome;
    a lost deadlock or serialisation race is repeated up to three times outside a transaction.
    """
    return _attempts(lambda: _run(statement, params, alias, writes=writes), alias)


def _attempts(action: Callable[[], T], alias: str) -> T:
    for left in range(RETRIES_MAX, -1, -1):
        try:
            return action()
        except _RACES as error:
            if connections[alias].in_atomic_block:
                raise
            if not left:
                raise Unavailable("The database is too busy.") from error
            time.sleep(random.uniform(0.01, 0.1))
    raise AssertionError("unreachable")


def _run(statement: str, params: Mapping[str, Any], alias: str, *, writes: bool) -> list[Row]:
    settings = planning(statement)
    with translated(alias, writes=writes) as connection:
        if direct.fits(connection):
            bound = _bound(statement)
            return direct.rows(connection, [*_planned(settings), direct.Sent(bound, bound.bodies(params))])
        if settings is None:
            return _fetch(send(connection, statement, params))
        with together(connection):  # one round trip and, outside a transaction, one implicit transaction
            psycopg.Cursor(connection).execute(settings)  # Django's own cursors never prepare a statement
            cursor = send(connection, statement, params)
        return _fetch(cursor)


@contextmanager
def planner_kept(alias: str) -> Iterator[None]:
    """Put back what statements by index set, for callers whose transaction on `alias` goes on with their own queries.

    Nothing is put back where an error has spoilt the transaction: its end undoes the settings too.
    """
    with translated(alias, writes=False) as connection:
        found = _fetch(connection.execute(_READ_SETTINGS))[0]
    try:
        yield
    finally:
        if not connections[alias].needs_rollback:
            with translated(alias, writes=False) as connection:
                connection.execute(_RESTORE_SETTINGS, found)


# Of a bounded read: how long a statement may take, and that what is wanted in an index's order is read in it. On stale
# statistics the planner would rather read a whole table and sort it.
_BOUNDS = ("statement_timeout", "enable_sort", "enable_bitmapscan", "plan_cache_mode")
_READ_BOUNDS = "SELECT " + ", ".join(f"current_setting('{name}')" for name in _BOUNDS)
_SET_BOUNDS = "SELECT " + ", ".join(f"set_config('{name}', %s, true)" for name in _BOUNDS)


@contextmanager
def bounded_read(alias: str, seconds: int) -> Iterator[None]:
    """Bound each statement of the block, which is one transaction: one that takes longer raises Unavailable, and rows
    are read in the order of an index wherever there is one. Each is planned for its parameters: a plan for any is ten
    times as slow.
    """
    with translated(alias, writes=False), transaction.atomic(using=alias):
        raw = connections[alias].connection
        before = _fetch(psycopg.Cursor(raw).execute(_READ_BOUNDS))[0]
        psycopg.Cursor(raw).execute(_SET_BOUNDS, (f"{seconds}s", "off", "off", "force_custom_plan"))
        yield
        psycopg.Cursor(raw).execute(_SET_BOUNDS, before)


def _fetch(cursor: psycopg.Cursor[Row]) -> list[Row]:
    result = cursor.pgresult  # not `description`, which makes an object of each column
    return cursor.fetchall() if result is not None and result.nfields else []


@contextmanager
def translated(alias: str, *, writes: bool) -> Iterator[psycopg.Connection[Row]]:
    """The psycopg connection of `alias`; database failures inside become the platform's two 503 errors."""
    wrapper = connections[alias]
    try:
        wrapper.ensure_connection()
        connection: psycopg.Connection[Row] = wrapper.connection
    except Exception as error:
        wrapper.close()
        raise Unavailable("The database cannot be reached.") from error
    doubts: list[str] = []

    def listen(diagnostic: pg.Diagnostic) -> None:
        if diagnostic.source_function == _STANDBY_WAIT:
            doubts.append(diagnostic.message_primary or "")

    connection.add_notice_handler(listen)
    try:
        with reach.watched(alias):
            yield connection
    except Unavailable:
        _discard_lost(alias)
        raise
    except _RACES:
        _mark_broken(alias)
        raise
    except (psycopg.OperationalError, psycopg.InterfaceError, *_REFUSALS) as error:
        _mark_broken(alias)
        if isinstance(error, _REFUSALS) or not writes:
            _discard_lost(alias)
            raise Unavailable("The database refused or is restarting.") from error
        # Before COMMIT is sent nothing can have happened; only a lost autocommit write or COMMIT is in doubt.
        lost = (connection.closed or connection.broken) and not wrapper.in_atomic_block
        _discard_lost(alias)
        raise (UnknownOutcome() if lost else Unavailable()) from error
    except psycopg.Error:
        _mark_broken(alias)
        raise
    finally:
        connection.remove_notice_handler(listen)
    if doubts:
        raise NotReplicated("The commit may not have reached the standby; repeat with the same key.")


def _mark_broken(alias: str) -> None:
    """Inside an atomic block a failed statement has spoilt the transaction: say so to Django."""
    if connections[alias].in_atomic_block:
        connections[alias].needs_rollback = True


def _discard_lost(alias: str) -> None:
    """Forget a connection that the server closed, so that the next statement gets a new one, and ask the server."""
    wrapper = connections[alias]
    raw = wrapper.connection
    if raw is not None and (raw.closed or raw.broken):
        reach.suspect(alias)
        if not wrapper.in_atomic_block:
            wrapper.close()


def in_transaction(alias: str, action: Callable[[], T]) -> T:
    """Run `action` in one READ COMMITTED transaction on `alias`; a lost race repeats it whole.

    A connection lost at COMMIT raises UnknownOutcome.
    """

    def once() -> T:
        with translated(alias, writes=True):
            try:
                with transaction.atomic(using=alias):
                    return action()
            except Exception as error:
                cause = error.__cause__
                if isinstance(cause, psycopg.Error) and not isinstance(error, (Unavailable, UnknownOutcome)):
                    raise cause from error  # Django's wrapper around COMMIT and BEGIN
                raise

    return _attempts(once, alias)


def send(
    connection: psycopg.Connection[Row], statement: str, params: Mapping[str, Any]
) -> psycopg.Cursor[Row]:
    """Send one statement on `connection`; in pipeline mode its rows are awaited when they are fetched."""
    cursor = psycopg.RawCursor(connection)
    bound = _bound(statement)
    cursor.execute(bound.text, bound.values(params), binary=True)
    return cursor


def short_transaction(
    alias: str,
    action: Callable[[psycopg.Connection[Row]], T],
    then: Callable[[T], None] = lambda outcome: None,
) -> T:
    """Run `action` in one transaction on the bare connection of `alias`, for statements that are pipelined.

    `then` sends what is to travel with COMMIT and to run after it, outside the transaction. Rows of its statements,
    and of the last ones of `action`, may be fetched from the cursors when this returns: they are here, and committed.
    A connection lost before COMMIT raises Unavailable, at COMMIT UnknownOutcome; a lost race repeats it whole.
    """

    def acted(connection: psycopg.Connection[Row]) -> T:
        try:
            return action(connection)
        except _RACES:
            raise
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise Unavailable("The database refused or is restarting.") from error

    def once() -> T:
        with translated(alias, writes=True) as connection, together(connection) as pipeline:
            if connection.info.transaction_status != _IDLE or not connection.autocommit:
                return _within(connection, pipeline, acted, then)
            return _on_its_own(connection, pipeline, acted, then)

    return _attempts(once, alias)


def _within(
    connection: psycopg.Connection[Row],
    pipeline: psycopg.Pipeline,
    action: Callable[[psycopg.Connection[Row]], T],
    then: Callable[[T], None],
) -> T:
    """As a savepoint of the caller's transaction. That begins with its first statement: without one, psycopg would
    take ours for the outermost, and commit it.
    """
    psycopg.Cursor(connection).execute(b"SELECT")
    with connection.transaction():
        outcome = action(connection)
    then(outcome)
    pipeline.sync()
    return outcome


def _on_its_own(
    connection: psycopg.Connection[Row],
    pipeline: psycopg.Pipeline,
    action: Callable[[psycopg.Connection[Row]], T],
    then: Callable[[T], None],
) -> T:
    """As a transaction of which BEGIN travels with the first statement: psycopg's own waits for it."""
    psycopg.Cursor(connection).execute(b"BEGIN")
    try:
        outcome = action(connection)
        psycopg.Cursor(connection).execute(b"COMMIT")
        then(outcome)
        pipeline.sync()
        return outcome
    except BaseException:
        _roll_back(connection, pipeline)
        raise


def _roll_back(connection: psycopg.Connection[Row], pipeline: psycopg.Pipeline) -> None:
    """Leave the connection outside any transaction, or closed. What failed before is known to the caller."""
    try:
        with suppress(psycopg.Error):
            pipeline.sync()
        if connection.info.transaction_status != _IDLE:
            psycopg.Cursor(connection).execute(b"ROLLBACK")
            pipeline.sync()
    except psycopg.Error:
        connection.close()
