"""Connections are given out of a pool alive, and without asking the server each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections
from psycopg_pool import ConnectionPool

from jobsplatform.postgresql import base
from tests import cast

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pooled() -> Iterator[Any]:
    """A connection of Django's with a pool of one, to the shard's database."""
    entry = connections[cast.SHARD].settings_dict
    options = {**entry["OPTIONS"], "pool": {"min_size": 0, "max_size": 1, "timeout": 5}}
    connections.settings["pooled"] = {**entry, "OPTIONS": options, "CONN_MAX_AGE": 0}
    wrapper = connections["pooled"]
    yield wrapper
    wrapper.close()
    wrapper.close_pool()  # type: ignore[attr-defined]
    del connections["pooled"], connections.settings["pooled"]


def end(session: psycopg.Connection[Any]) -> None:
    pid = session.info.backend_pid
    cast.read("SELECT pg_terminate_backend(%s, 5000)", [pid])


def asked(session: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `check_alive` asks the server."""
    sent: list[str] = []
    monkeypatch.setattr(session, "execute", lambda query, *rest: sent.append(query))
    base.check_alive(session)
    monkeypatch.undo()
    return sent


def test_a_connection_that_was_used_lately_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with cast.second_session(autocommit=True) as session:
        base.check_alive(session)
        assert asked(session, monkeypatch) == []


def test_one_that_was_not_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with cast.second_session(autocommit=True) as session:
        assert len(asked(session, monkeypatch)) == 1


def test_one_that_the_server_has_ended_is_found_out_though_used_lately() -> None:
    with cast.second_session(autocommit=True) as session:
        base.check_alive(session)
        end(session)
        with pytest.raises(psycopg.Error):
            base.check_alive(session)


def test_a_pool_gives_another_for_one_that_the_server_has_ended(pooled: Any) -> None:
    pooled.connect()
    first = pooled.connection.info.backend_pid
    end(pooled.connection)
    pooled.close()
    pooled.connect()
    assert pooled.connection.execute("SELECT pg_backend_pid()").fetchone() != (first,)


def test_a_pool_gives_the_same_again_while_it_lives(pooled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pooled.connect()
    first = pooled.connection
    pooled.close()
    monkeypatch.setattr(ConnectionPool, "check_connection", lambda connection: pytest.fail("asked"))
    pooled.connect()
    assert pooled.connection is first
