"""Migrations beside live work: short waits for locks, everyone let pass, another try."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections, transaction

from jobsplatform import migrating
from tests import cast

pytestmark = pytest.mark.django_db(transaction=True)

ALTER = (
    "ALTER TABLE queue_horizon ALTER COLUMN next_xid SET NOT NULL"  # it is; but it wants the table for itself
)


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "PAUSE_SECONDS", (0.05, 0.1))
    monkeypatch.setattr(migrating, "LOCK_MS", 100)


@pytest.fixture
def reader() -> Iterator[threading.Event]:
    """A transaction that has read the table; it ends when the event is set."""
    held, over = threading.Event(), threading.Event()

    def read() -> None:
        with cast.second_session() as session:
            session.execute("SELECT count(*) FROM queue_horizon")
            held.set()
            over.wait(20)

    thread = threading.Thread(target=read)
    thread.start()
    assert held.wait(10)
    yield over
    over.set()
    thread.join()


def alter(*, patience_s: float, tell: migrating.Tell = lambda line: None) -> None:
    with migrating._impatient(cast.SHARD, patience_s, tell), connections[cast.SHARD].cursor() as cursor:
        cursor.execute(ALTER)


def test_a_statement_that_is_a_transaction_of_its_own_is_tried_until_it_gets_its_lock(
    reader: threading.Event,
) -> None:
    told: list[str] = []
    threading.Timer(0.6, reader.set).start()
    alter(patience_s=10, tell=told.append)
    assert len(told) >= 2


def test_nobody_waits_behind_it_for_longer_than_it_waits_itself(reader: threading.Event) -> None:
    threading.Timer(1, reader.set).start()
    migrator = threading.Thread(target=alter, kwargs={"patience_s": 10})
    migrator.start()
    longest_s = 0.0
    while migrator.is_alive():
        began = time.monotonic()
        cast.read("SELECT count(*) FROM queue_horizon")
        longest_s = max(longest_s, time.monotonic() - began)
    assert longest_s < 0.9, "the reader held its lock for a second"


def test_it_gives_up_when_its_patience_is_over(reader: threading.Event) -> None:
    with pytest.raises(OperationalError):
        alter(patience_s=0.3)


def test_within_a_transaction_the_whole_of_it_must_be_repeated(reader: threading.Event) -> None:
    began = time.monotonic()
    with (
        pytest.raises(OperationalError),
        migrating._impatient(cast.SHARD, 10, lambda line: None),
        transaction.atomic(using=cast.SHARD),
        connections[cast.SHARD].cursor() as cursor,
    ):
        cursor.execute(ALTER)
    assert time.monotonic() - began < 2


def test_an_error_that_is_no_matter_of_locks_is_raised_at_once() -> None:
    told: list[str] = []
    with (
        pytest.raises(OperationalError),
        migrating._impatient(cast.SHARD, 10, told.append),
        connections[cast.SHARD].cursor() as cursor,
    ):
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert told == []


def test_an_index_that_is_built_beside_the_work_may_wait() -> None:
    with migrating._impatient(cast.SHARD, 10, lambda line: None), connections[cast.SHARD].cursor() as cursor:
        cursor.execute("DROP INDEX CONCURRENTLY IF EXISTS no_such_index")
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("100ms",)


def test_databases_that_are_up_to_date_are_left_alone() -> None:
    out = StringIO()
    call_command("migrateall", stdout=out)
    assert out.getvalue().splitlines() == [
        "default: 0 migrations applied",
        f"{cast.SHARD}: 0 migrations applied",
    ]


def test_the_settings_of_the_session_do_not_outlive_it() -> None:
    alter(patience_s=5)
    assert cast.read("SHOW lock_timeout") == [("0",)]


def test_patience_has_bounds() -> None:
    with pytest.raises(CommandError, match="patience"):
        call_command("migrateall", "--patience", "0")
