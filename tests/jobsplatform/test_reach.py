"""Databases that do not answer: found out within seconds, refused at once from then on, and back when they answer."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError, connections

from jobsplatform import reach, sql
from jobsplatform.errors import Unavailable, UnknownOutcome
from tests import cast

pytestmark = pytest.mark.django_db(transaction=True)


class Line:
    """Forwards loopback connections to the server, until it is frozen: then it takes them and says nothing."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target, self.is_frozen, self.is_over = target, False, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self.target) as server:
            while not self.is_over:
                ready, _, _ = select.select([client, server], [], [], 0.05)
                while self.is_frozen and not self.is_over:
                    time.sleep(0.02)
                for end in ready:
                    data = end.recv(65_536)
                    if not data:
                        return
                    (server if end is client else client).sendall(data)

    def close(self) -> None:
        self.is_over = True
        self.listener.close()


@pytest.fixture
def line() -> Iterator[Line]:
    """The shard's database over a line that can be frozen."""
    wrapper: Any = connections[cast.SHARD]
    entry = connections.settings[cast.SHARD]
    before = {name: entry[name] for name in ("HOST", "PORT")}
    made = Line(("127.0.0.1", int(entry["PORT"])))
    wrapper.close()
    wrapper.close_pool()
    entry |= {"HOST": "127.0.0.1", "PORT": str(made.port)}
    try:
        yield made
    finally:
        wrapper.close()
        wrapper.close_pool()
        made.close()
        entry |= before
        reach.forget()


def until(condition: object, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_statement_on_a_line_that_freezes_is_cut_and_later_ones_are_refused_at_once(line: Line) -> None:
    sql.rows("jobqueue/clock", {}, alias=cast.SHARD)
    line.is_frozen = True
    began = time.monotonic()
    with pytest.raises((Unavailable, UnknownOutcome)):
        sql.rows("jobqueue/clock", {}, alias=cast.SHARD)
    assert time.monotonic() - began < 12
    assert reach.is_down(cast.SHARD)
    began = time.monotonic()
    with pytest.raises(Unavailable):
        sql.rows("jobqueue/clock", {}, alias=cast.SHARD)
    with pytest.raises(OperationalError), connections[cast.SHARD].cursor() as cursor:
        cursor.execute("SELECT 1")
    assert time.monotonic() - began < 0.5
    line.is_frozen = False
    until(lambda: not reach.is_down(cast.SHARD), 5)
    assert sql.rows("jobqueue/clock", {}, alias=cast.SHARD)


def test_a_port_that_refuses_is_known_at_once_and_found_again_within_two_seconds(line: Line) -> None:
    entry = connections.settings[cast.SHARD]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    entry["PORT"] = str(free)
    reach.suspect(cast.SHARD)
    until(lambda: reach.is_down(cast.SHARD), 2)
    entry["PORT"] = str(line.port)
    until(lambda: not reach.is_down(cast.SHARD), 2)


def test_a_slow_statement_on_a_healthy_database_is_left_alone() -> None:
    with connections[cast.SHARD].cursor() as cursor:
        cursor.execute("SELECT pg_sleep(3.2)")
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
    assert not reach.is_down(cast.SHARD)


def test_a_database_that_answers_a_probe_is_not_down() -> None:
    assert reach.answers_now(cast.SHARD)
    assert reach.answers_now("nobody's")  # nobody waits for a database that the settings do not name
