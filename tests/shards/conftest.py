"""Four shards for the tests of this folder: three databases more, made once from the first one's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connections

from tests import cleaning

ALIASES = ("shard0", "shard1", "shard2", "shard3")
EXTRA = ALIASES[1:]


def entry_of(alias: str) -> dict[str, Any]:
    """The address of an extra shard's test database."""
    entry = dict(settings.DATABASES["shard0"])
    first = connections["shard0"].settings_dict["NAME"]
    return {**entry, "NAME": first.replace("shard0", alias), "OPTIONS": {**entry["OPTIONS"]}}


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The extra databases, as copies of the first shard's: a migration of each would take four times as long."""
    with django_db_blocker.unblock():
        first = connections["shard0"]
        name = first.settings_dict["NAME"]
        for connection in (first, connections["default"]):
            connection.close()
            _close_pool(connection)
        made = []
        with maintenance() as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                [name],
            )
            for alias in EXTRA:
                copy = name.replace("shard0", alias)
                session.execute(f'DROP DATABASE IF EXISTS "{copy}"')
                session.execute(f'CREATE DATABASE "{copy}" TEMPLATE "{name}"')
                made.append(copy)
        for alias in EXTRA:
            connections.settings[alias] = {**first.settings_dict, "NAME": name.replace("shard0", alias)}
        yield
        for alias in EXTRA:
            connections[alias].close()
            _close_pool(connections[alias])
            del connections.settings[alias]
            with suppress(AttributeError):
                del connections[alias]
        with maintenance() as session:
            for copy in made:
                session.execute(f'DROP DATABASE IF EXISTS "{copy}" WITH (FORCE)')


def _close_pool(connection: Any) -> None:
    connection.close_pool()


def maintenance() -> psycopg.Connection[Any]:
    """A session that belongs to no database of the tests."""
    entry = connections["default"].settings_dict
    return psycopg.connect(
        host=entry["HOST"],
        port=entry["PORT"],
        user=entry["USER"],
        password=entry["PASSWORD"],
        dbname="postgres",
        autocommit=True,
    )


@pytest.fixture(autouse=True)
def _four_shards(request: pytest.FixtureRequest) -> Iterator[None]:
    """The settings name four shards, each numbers its jobs in its own space, and control knows them all."""
    if request.node.get_closest_marker("django_db") is None:
        yield
        return
    request.getfixturevalue("_django_db_helper")
    before = settings.SHARD_ALIASES
    settings.SHARD_ALIASES = dict(enumerate(ALIASES))
    try:
        from jobqueue.models import IdSpace
        from jobqueue.shard_models import Shard
        from jobqueue.shards import map as shard_map
        from jobqueue.shards import register

        for number, alias in enumerate(ALIASES):
            Shard.objects.get_or_create(number=number)
            IdSpace.objects.get_or_create(space=number, defaults={"shard": number, "reason": "first"})
            with connections[alias].cursor() as cursor:
                cursor.execute("SELECT setval('queue_job_id_seq', %s, false)", [number << 48 | 1])
        shard_map.forget()
        register.tell_everything()
        yield
    finally:
        heal_and_forget()
        settings.SHARD_ALIASES = dict(enumerate(ALIASES))  # a test may have set them otherwise
        for alias in EXTRA:
            cleaning.clean(alias)
        settings.SHARD_ALIASES = before


# Shards that are away


def cut(alias: str) -> None:
    """Let a shard's database take no connection, and end those it has."""
    name = connections[alias].settings_dict["NAME"]
    with maintenance() as session:
        session.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])


def heal() -> None:
    """Let every database take connections again."""
    with maintenance() as session:
        for alias in ("default", *ALIASES):
            if alias in connections.settings:
                name = connections[alias].settings_dict["NAME"]
                session.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


def heal_and_forget() -> None:
    """The same, and nobody remembers that they were away."""
    from jobsplatform import reach

    heal()
    reach.forget()
    for alias in ("default", *ALIASES):
        connections[alias].close()
