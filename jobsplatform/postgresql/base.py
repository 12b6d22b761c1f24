"""Django's PostgreSQL backend: nobody waits for a database that does not answer (`jobsplatform.reach`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.postgresql import base

from jobsplatform import reach


class DatabaseWrapper(base.DatabaseWrapper):
    """Refuses at once where the last probe failed; tells of each connection and each statement of the ORM."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers.append(self._watched)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        if reach.is_down(self.alias):
            raise self.Database.OperationalError("it did not answer when it was last asked")
        try:
            connection = super().get_new_connection(conn_params)
        except self.Database.Error:
            reach.suspect(self.alias)
            raise
        reach.met(self.alias, connection)
        return connection

    def _watched(
        self, execute: Callable[..., Any], statement: Any, params: Any, many: Any, context: Any
    ) -> Any:
        with reach.watched(self.alias):
            return execute(statement, params, many, context)
