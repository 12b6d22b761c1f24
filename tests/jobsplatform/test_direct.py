"""Statements straight over libpq: one trip, one implicit transaction, and a connection that stays usable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections, transaction

from jobsplatform import direct, sql
from jobsplatform.binding import bind
from tests import cast
from tests.cast import SHARD

pytestmark = pytest.mark.django_db(transaction=True)

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s"


@pytest.fixture
def connection() -> Iterator[direct.Connection]:
    with cast.second_session(autocommit=True) as session:
        yield session


def asked(text: str, **params: Any) -> direct.Sent:
    bound = bind(text)
    return direct.Sent(bound, bound.bodies(params))


def setting(value: str) -> direct.Sent:
    return asked("SELECT set_config('jobs.mark', %(value)s::text, true)", value=value)


MARK = "SELECT current_setting('jobs.mark', true)"


def test_the_rows_are_those_of_the_last_statement(connection: direct.Connection) -> None:
    found = direct.rows(
        connection, [asked("SELECT 1"), asked("SELECT n FROM generate_series(1, %(n)s::int) n", n=3)]
    )
    assert found == [(1,), (2,), (3,)]


def test_a_statement_without_rows_has_none(connection: direct.Connection) -> None:
    assert direct.rows(connection, [asked("SELECT 1 WHERE false")]) == []
    assert direct.rows(connection, [asked("CREATE TEMPORARY TABLE mark (n int)")]) == []


def test_what_one_statement_sets_holds_for_the_next_and_no_longer(connection: direct.Connection) -> None:
    assert direct.rows(connection, [setting("here"), asked(MARK)]) == [("here",)]
    assert direct.rows(connection, [asked(MARK)]) in ([(None,)], [("",)])


@pytest.mark.parametrize("threshold", [None, 1])
def test_it_is_prepared_once_or_never_as_the_connection_wants(
    connection: direct.Connection, threshold: int | None
) -> None:
    connection.prepare_threshold = threshold
    for number in range(4):
        assert direct.rows(connection, [asked("SELECT %(n)s::int -- mine", n=number)]) == [(number,)]
    found = psycopg.Cursor(connection).execute(PREPARED, ["%-- mine"]).fetchone()
    assert found == (0 if threshold is None else 1,)


@pytest.mark.parametrize("threshold", [None, 1])
def test_a_failure_undoes_the_others_and_leaves_the_connection_usable(
    connection: direct.Connection, threshold: int | None
) -> None:
    connection.prepare_threshold = threshold
    connection.execute("CREATE TEMPORARY TABLE mark (n int)")
    put = asked("INSERT INTO mark SELECT %(n)s::int", n=1)
    for faulty in ("SELECT 1 / %(n)s::int", "SELECT nonsense + %(n)s::int"):
        for _ in range(2):
            with pytest.raises((psycopg.errors.DivisionByZero, psycopg.errors.UndefinedColumn)):
                direct.rows(connection, [put, asked(faulty, n=0), put])
            assert direct.rows(connection, [asked("SELECT count(*) FROM mark")]) == [(0,)]
    assert direct.rows(connection, [put, asked("SELECT n FROM mark")]) == [(1,)]


def test_a_lost_connection_is_an_operational_error(connection: direct.Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        direct.rows(connection, [asked("SELECT pg_terminate_backend(pg_backend_pid())")])
    assert connection.closed


def test_it_does_not_fit_where_psycopg_would_begin_a_transaction_or_is_in_a_pipeline(
    connection: direct.Connection,
) -> None:
    assert direct.fits(connection)
    with connection.pipeline():
        assert not direct.fits(connection)
    connection.autocommit = False
    assert not direct.fits(connection)
    connection.execute("SELECT 1")
    assert direct.fits(connection)
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 1 / 0")
    assert not direct.fits(connection)


def test_the_first_statement_of_a_transaction_is_part_of_it() -> None:
    before = cast.read("SELECT count(*) FROM queue_lanedelta")
    with transaction.atomic(using=SHARD):
        job_id = cast.enqueue()
        connections[SHARD].set_rollback(True)
    assert cast.read("SELECT count(*) FROM queue_job WHERE id = %s", [job_id]) == [(0,)]
    assert cast.read("SELECT count(*) FROM queue_lanedelta") == before


def test_a_large_batch_is_sent_while_the_server_answers(connection: direct.Connection) -> None:
    texts = [f"{number:06}" * 1_000 for number in range(1_000)]
    found = direct.rows(connection, [asked("SELECT unnest(%(texts)s::text[])", texts=texts)])
    assert [text for (text,) in found] == texts


def test_notices_are_heard(connection: direct.Connection) -> None:
    heard: list[str | None] = []
    connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    direct.rows(connection, [asked("DO $$ BEGIN RAISE WARNING 'careful'; END $$")])
    assert heard == ["careful"]
    assert sql.rows("jobqueue/clock", {}, alias=SHARD)
