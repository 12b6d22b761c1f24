"""Sends statements over libpq itself: those of one trip in one piece, and without a cursor for each.

psycopg flushes each statement of a pipeline on its own, which wakes the server for each, and spends more on a cursor
than libpq on the statement. Statements and types are the platform's (`jobsplatform.binding`), so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
from psycopg._preparing import Prepare
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.generators import fetch_many, send
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from jobsplatform.binding import Bound

if TYPE_CHECKING:
    from psycopg._queries import PostgresQuery

Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]


@dataclass(slots=True)
class Sent:
    """A statement and the bodies of its parameters."""

    bound: Bound
    bodies: Sequence[bytes | None]

    # By these, psycopg knows what is prepared.

    @property
    def query(self) -> bytes:
        return self.bound.text

    @property
    def types(self) -> tuple[int, ...]:
        return self.bound.types


_GOOD: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_READY: Final = (TransactionStatus.IDLE, TransactionStatus.INTRANS)


def fits(connection: Connection) -> bool:
    """Whether psycopg is in no pipeline, and would neither begin a transaction first nor deallocate anything."""
    pgconn = connection.pgconn
    status = pgconn.transaction_status
    begins = status == TransactionStatus.IDLE and not connection.autocommit
    is_in_pipeline = pgconn.pipeline_status != PipelineStatus.OFF
    return status in _READY and not (begins or is_in_pipeline or connection._prepared._to_flush)


def rows(connection: Connection, statements: Sequence[Sent]) -> list[Row]:
    """Run `statements` in one trip and, outside a transaction, one implicit transaction; the rows of the last.

    Raises psycopg's errors, as a cursor does.
    """
    with connection.lock:
        connection.pgconn.enter_pipeline_mode()
        try:
            results = connection.wait(_exchange(connection, statements))
        finally:
            _leave(connection.pgconn)
    for result in results:
        if result.status not in _GOOD:
            raise psycopg.errors.error_from_result(result, encoding=connection.info.encoding)
    if not results[-1].ntuples:
        return []
    transformer = Transformer(connection)
    transformer.set_pgresult(results[-1])
    return transformer.load_rows(0, results[-1].ntuples, tuple)


def _exchange(connection: Connection, statements: Sequence[Sent]) -> PQGen[list[PGresult]]:
    """Send everything, then fetch the result of each command, up to the end of them.

    What is prepared is psycopg's to remember, together with its own: after a rollback it deallocates all.
    """
    pgconn, prepared = connection.pgconn, connection._prepared
    found: list[tuple[Sent, Prepare, bytes]] = []
    commands = 0
    for sent in statements:
        formats = [Format.BINARY] * len(sent.bodies)
        prepare, name = prepared.get(cast("PostgresQuery", sent))
        if prepare is Prepare.NO:
            pgconn.send_query_params(sent.query, sent.bodies, sent.types, formats, Format.BINARY)
        else:
            if prepare is Prepare.SHOULD:
                pgconn.send_prepare(name, sent.query, sent.types)
                commands += 1
            pgconn.send_query_prepared(name, sent.bodies, formats, Format.BINARY)
        commands += 1
        found.append((sent, prepare, name))
    pgconn.pipeline_sync()
    yield from send(pgconn)
    results: list[PGresult] = []
    for _ in range(commands):
        results += yield from fetch_many(pgconn)
    yield from fetch_many(pgconn)  # the mark of the end
    if all(result.status in _GOOD for result in results):
        for sent, prepare, name in found:
            key = prepared.maybe_add_to_cache(cast("PostgresQuery", sent), prepare, name)
            if key is not None:
                prepared.validate(key, prepare, name, results[-1:])
    return results


def _leave(pgconn: PGconn) -> None:
    """End the pipeline; where answers are still to come, so does the connection."""
    if pgconn.status == ConnStatus.OK:
        try:
            pgconn.exit_pipeline_mode()
        except psycopg.OperationalError:
            pgconn.finish()
