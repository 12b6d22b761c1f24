"""Statements of a pipeline travel together, whatever their size, and an error leaves the connection as it was."""

from __future__ import annotations

import psycopg
import pytest

from jobsplatform.pipelines import _Together, together
from tests import cast

LONG = "x" * 4_000_000


@pytest.fixture
def session():
    with cast.second_session(autocommit=True) as connection:
        yield connection


def last_statement(session):
    with cast.second_session(autocommit=True) as other:
        ask = "SELECT query FROM pg_stat_activity WHERE pid = %s"
        return other.execute(ask, [session.info.backend_pid]).fetchall()[0][0]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_sent_before_rows_are_asked_for(session):
    with together(session):
        first, second = session.execute("SELECT 1"), session.execute("SELECT 2")
        assert last_statement(session) == ""
        assert second.fetchall() == [(2,)]
        assert last_statement(session) == "SELECT 2"
        assert first.fetchall() == [(1,)]


@pytest.mark.django_db(transaction=True)
def test_statements_longer_than_any_buffer_are_answered_while_others_are_sent(session):
    with together(session):
        cursors = [session.execute("SELECT %s::text", [LONG]) for _ in range(5)]
        assert [cursor.fetchall() == [(LONG,)] for cursor in cursors] == [True] * 5


@pytest.mark.django_db(transaction=True)
def test_a_pipeline_that_was_synchronised_is_left_without_another_round_trip(session, monkeypatch):
    trips = []
    enqueue_sync = _Together._enqueue_sync

    def counted(self):
        trips.append(1)
        enqueue_sync(self)

    monkeypatch.setattr(_Together, "_enqueue_sync", counted)
    with together(session) as pipeline:
        session.execute("SELECT 1")
        pipeline.sync()
    assert len(trips) == 1
    with together(session) as pipeline:
        pipeline.sync()
        cursor = session.execute("SELECT 3")
    assert len(trips) == 3
    assert cursor.fetchall() == [(3,)]


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_fails_is_told_at_the_end_and_spoils_nothing_after_it(session):
    def fail() -> None:
        with together(session):
            session.execute("SELECT 1 / %s", [0])
            session.execute("SELECT 1")

    with pytest.raises(psycopg.DataError):
        fail()
    assert session.execute("SELECT 4").fetchall() == [(4,)]


@pytest.mark.django_db(transaction=True)
def test_inside_another_pipeline_it_is_that_one(session):
    with together(session) as outer, together(session) as inner:
        assert inner is outer
        cursor = session.execute("SELECT 5")
    assert cursor.fetchall() == [(5,)]
