"""Django's PostgreSQL backend: nobody waits for a database that does not answer (`jobsplatform.reach`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from django.db.backends.postgresql import base
from psycopg_pool import PoolTimeout

from jobsplatform import reach

TURN_SECONDS: Final = 0.5


class DatabaseWrapper(base.DatabaseWrapper):
    """Refuses at once where the last probe failed; tells of each connection and each statement of the ORM."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers.append(self._watched)

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
