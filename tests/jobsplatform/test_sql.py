"""Statements on the bare connection: what is sent, in which transaction, and what is left behind when one fails."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connections, transaction

from jobsplatform import sql
from jobsplatform.binding import bind
from jobsplatform.errors import Unavailable
from tests import cast
from tests.cast import SHARD

MARK = "INSERT INTO queue_horizon (at, next_xid) VALUES ('2001-01-01', %s)"


def marks() -> int:
    return int(cast.read("SELECT count(*) FROM queue_horizon WHERE at = '2001-01-01'")[0][0])


@pytest.mark.django_db(transaction=True)
def test_a_short_transaction_commits_what_it_sent() -> None:
    sql.short_transaction(SHARD, lambda connection: psycopg.Cursor(connection).execute(MARK, [1]))
    assert marks() == 1


@pytest.mark.django_db(transaction=True)
def test_a_failure_of_the_caller_rolls_it_back_and_leaves_the_connection_usable() -> None:
    def fail(connection: psycopg.Connection[sql.Row]) -> None:
        psycopg.Cursor(connection).execute(MARK, [1])
        raise KeyError("mine")

    with pytest.raises(KeyError):
        sql.short_transaction(SHARD, fail)
    assert marks() == 0
    sql.short_transaction(SHARD, lambda connection: psycopg.Cursor(connection).execute(MARK, [2]))
    assert marks() == 1


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_fails_unseen_is_never_committed() -> None:
    """Nobody fetches the second statement's result: its failure is met at the commit."""

    def send(connection: psycopg.Connection[sql.Row]) -> None:
        psycopg.Cursor(connection).execute(MARK, [1])
        psycopg.Cursor(connection).execute("SELECT 1 / %s", [0])

    with pytest.raises(psycopg.DataError):
        sql.short_transaction(SHARD, send)
    assert marks() == 0
    assert connections[SHARD].connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.django_db(transaction=True)
def test_a_connection_lost_before_the_commit_is_unavailable() -> None:
    def lose(connection: psycopg.Connection[sql.Row]) -> None:
        psycopg.Cursor(connection).execute(MARK, [1])
        psycopg.Cursor(connection).execute("SELECT pg_terminate_backend(pg_backend_pid())").fetchall()

    with pytest.raises(Unavailable):
        sql.short_transaction(SHARD, lose)
    assert marks() == 0


@pytest.mark.django_db(transaction=True)
def test_inside_another_transaction_it_is_a_savepoint() -> None:
    def fail(connection: psycopg.Connection[sql.Row]) -> None:
        psycopg.Cursor(connection).execute(MARK, [2])
        raise KeyError("mine")

    with transaction.atomic(using=SHARD):
        sql.short_transaction(SHARD, lambda connection: psycopg.Cursor(connection).execute(MARK, [1]))
        with pytest.raises(KeyError):
            sql.short_transaction(SHARD, fail)
    assert marks() == 1


@pytest.mark.django_db(transaction=True)
def test_a_short_transaction_inside_another_is_not_committed_before_it() -> None:
    count = "SELECT count(*) FROM queue_horizon WHERE at = '2001-01-01'"
    with cast.second_session(autocommit=True) as other:
        with transaction.atomic(using=SHARD):  # nothing was sent in it yet
            sql.short_transaction(SHARD, lambda connection: psycopg.Cursor(connection).execute(MARK, [7]))
            assert other.execute(count).fetchone() == (0,)
        assert other.execute(count).fetchone() == (1,)


@pytest.mark.django_db
def test_a_statement_that_takes_too_long_is_ended_and_what_follows_is_not_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sql, "_bound", lambda statement: bind("SELECT pg_sleep(30)"))
    with pytest.raises(Unavailable), sql.bounded_read(cast.SHARD, 1):
        sql.rows("jobqueue/clock", {}, alias=cast.SHARD)
    monkeypatch.undo()
    with sql.bounded_read(cast.SHARD, 1):
        assert cast.read("SELECT current_setting('statement_timeout')") == [("1s",)]
    assert cast.read("SELECT current_setting('statement_timeout')") == [("0",)]
