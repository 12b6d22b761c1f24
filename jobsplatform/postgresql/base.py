"""Django's PostgreSQL backend: nobody waits for a database that does not answer (`jobsplatform.reach`)."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool, PoolTimeout

from jobsplatform import reach

TURN_SECONDS: Final = 0.5
SURE_SECONDS: Final = 5.0  # since a connection was last given out; a firewall's forgetting takes longer

_checked: WeakKeyDictionary[psycopg.Connection[Any], float] = WeakKeyDictionary()


def check_alive(connection: psycopg.Connection[Any]) -> None:
    """Raise psycopg.Error for a connection that its server has ended.

    A server that ends says so, or its machine does: then there is something to read. What was used lately is not asked
    beyond that, as Django would each time: a round trip more for each request and each claim.
    """
    said = select.poll()
    said.register(connection.fileno(), select.POLLIN)
    now = time.monotonic()
    if said.poll(0) or now - _checked.get(connection, 0.0) > SURE_SECONDS:
        ConnectionPool.check_connection(connection)
    _checked[connection] = now


class DatabaseWrapper(base.DatabaseWrapper):
    """Refuses at once where the last probe failed; tells of each connection and each statement of the ORM."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers.append(self._watched)

    @property
    def pool(self) -> Any:
        """Django's pool; how it sees that a connection is alive, Django lets nobody choose."""
        pool: Any = super().pool
        if pool is not None:
            pool._check = check_alive
        return pool

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        ends = time.monotonic() + self._wait_s()
        while True:
            if reach.is_down(self.alias):
                raise self.Database.OperationalError("it did not answer when it was last asked")
            try:
                with reach.watched(self.alias):
                    connection = super().get_new_connection(conn_params)
            except self.Database.Error as error:
                reach.suspect(self.alias)
                if not isinstance(error, PoolTimeout) or time.monotonic() >= ends:
                    raise
            else:
                reach.met(self.alias, connection)
                return connection

    def _wait_s(self) -> float:
        """How long to wait for a connection of the pool, which is asked in turns: meanwhile the database may fall."""
        pool: Any = self.pool
        if pool is None:
            return 0.0
        if not hasattr(pool, "whole_wait_s"):
            pool.whole_wait_s, pool.timeout = pool.timeout, min(pool.timeout, TURN_SECONDS)
        return float(pool.whole_wait_s)

    def _watched(
        self, execute: Callable[..., Any], statement: Any, params: Any, many: Any, context: Any
    ) -> Any:
        with reach.watched(self.alias):
            return execute(statement, params, many, context)
