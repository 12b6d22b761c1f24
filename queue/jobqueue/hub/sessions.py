"""Connections of one's own, beside the pools: for LISTEN, which needs one session, and for NOTIFY."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from django.db import connections

CHANNEL: Final = "jobsplatform_ready"
_NOT_FOR_A_SESSION: Final = (
    "pool",
    "prepare_threshold",
    "server_side_binding",
    "isolation_level",
    "assume_role",
)


def connect(alias: str, name: str) -> psycopg.Connection[Any]:
    """An autocommit connection to the database of `alias`. Raises psycopg.Error."""
    entry = connections[alias].settings_dict
    places = {"host": "HOST", "port": "PORT", "dbname": "NAME", "user": "USER", "password": "PASSWORD"}
    wanted: dict[str, Any] = {key: entry[field] for key, field in places.items() if entry.get(field)}
    options = {key: value for key, value in entry["OPTIONS"].items() if key not in _NOT_FOR_A_SESSION}
    parameters = {**options, **wanted, "application_name": f"jobsplatform {name}"}
    return psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Whether a pooler stands between: the process that answers is not the one that greeted us."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or int(row[0]) != connection.info.backend_pid
