"""System checks: settings and servers on which the guarantees would not hold are refused before a start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, connections

from jobsplatform.addresses import BACKEND

LOOPBACK: Final = {"localhost", "127.0.0.1", "[::1]", "::1", ".localhost", "testserver"}
SERVER_VERSION_MIN: Final = 150_000
DURABLE: Final = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_write", "remote_apply"),
}

# Knob → smallest and largest sane value, in the unit that its name says.
BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "JOBS_POOL_CONNECTIONS": (1, 500),
    "JOBS_POOL_WAIT_SECONDS": (1, 30),
    "JOBS_CONNECT_SECONDS": (1, 30),
    "JOBS_RECONNECT_SECONDS": (1, 60),
    "JOBS_PROMOTE_PER_SECOND": (100, 100_000),
    "JOBS_REAP_PER_SECOND": (100, 100_000),
    "JOBS_WEB_PROCESSES": (1, 64),
    "JOBS_WEB_THREADS": (4, 512),
    "JOBS_PARKED_MAX": (0, 50_000),
    "JOBS_DRAIN_SECONDS": (20, 300),
}


@register(Tags.security)
def unsafe_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Settings that would expose the platform or void its secrets."""
    found: list[CheckMessage] = []
    if settings.DEBUG and not set(settings.ALLOWED_HOSTS) <= LOOPBACK:
        hint = "Unset JOBSPLATFORM_DEBUG, or keep JOBSPLATFORM_ALLOWED_HOSTS to loopback names."
        found.append(
            Error("Debug pages would be served to other machines.", hint=hint, id="jobsplatform.E001")
        )
    if "*" in settings.ALLOWED_HOSTS:
        hint = "Name the hosts in JOBSPLATFORM_ALLOWED_HOSTS."
        found.append(Error("Any Host header would be accepted.", hint=hint, id="jobsplatform.E002"))
    if settings.DATABASE_URL and not settings.SECRETS_NAMED:
        hint = "Set JOBSPLATFORM_SECRET_KEY and JOBSPLATFORM_TOKEN_PEPPER, the same on every host."
        found.append(Error("A shared database needs shared secrets.", hint=hint, id="jobsplatform.E003"))
    if len(settings.SECRET_KEY) < 50 or len(settings.TOKEN_PEPPER) < 32:
        hint = "At least 50 characters for the secret key and 32 for the token pepper."
        found.append(Error("A secret is too short.", hint=hint, id="jobsplatform.E004"))
    if not settings.HTTPS and not set(settings.ALLOWED_HOSTS) <= LOOPBACK:
        hint = "Put a TLS proxy in front and set JOBSPLATFORM_HTTPS."
        found.append(Warning("Tokens would travel unencrypted.", hint=hint, id="jobsplatform.W001"))
    if settings.JOBS_POST_LOOPBACK and not set(settings.ALLOWED_HOSTS) <= LOOPBACK:
        hint = "Unset JOBS_POST_LOOPBACK: it is for development."
        found.append(Error("Tenants could call services of this machine.", hint=hint, id="jobsplatform.E008"))
    return found


@register
def knobs_within_bounds(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Every JOBS_… knob has a stated range."""
    return [
        Error(f"{name} is {getattr(settings, name)}; it must be {low} to {high}.", id="jobsplatform.E005")
        for name, (low, high) in BOUNDS.items()
        if not low <= getattr(settings, name) <= high
    ]


@register
def databases_are_distinct(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Two shards in one database would give out each other's jobs; another engine keeps no guarantee."""
    return faults_of_places(settings.DATABASES)


def faults_of_places(databases: Mapping[str, Mapping[str, Any]]) -> list[CheckMessage]:
    """What is wrong with where the databases are; asks no server."""
    found: list[CheckMessage] = []
    places = [tuple(entry[key] for key in ("HOST", "PORT", "NAME")) for entry in databases.values()]
    if len(set(places)) < len(places):
        found.append(Error("Two of JOBSPLATFORM_SHARDS name one database.", id="jobsplatform.E006"))
    if any(entry["ENGINE"] != BACKEND for entry in databases.values()):
        found.append(Error("JOBSPLATFORM_DATABASE_URL must be a postgresql:// URL.", id="jobsplatform.E007"))
    return found


@register(Tags.database)
def servers_are_durable(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Asked with `check --database …` and before every `migrate`."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        try:
            found.extend(_faults_of_server(alias))
        except DatabaseError as error:
            found.append(Error(f"Database {alias!r} cannot be asked: {error}", id="jobsplatform.E010"))
    return found


def _faults_of_server(alias: str) -> Iterator[CheckMessage]:
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        if int(cursor.fetchone()[0]) < SERVER_VERSION_MIN:
            yield Error(f"The server of {alias!r} is older than PostgreSQL 15.", id="jobsplatform.E011")
        for setting, wanted in DURABLE.items():
            cursor.execute("SELECT current_setting(%s)", (setting,))
            value = cursor.fetchone()[0]
            if value not in wanted:
                message = f"The server of {alias!r} has {setting} = {value}: committed jobs could be lost."
                yield Error(message, hint=f"Set it to {wanted[0]}.", id="jobsplatform.E012")
        cursor.execute("SELECT current_setting('default_transaction_isolation')")
        if (value := cursor.fetchone()[0]) != "read committed":
            message = f"Sessions of {alias!r} default to {value}; the statements need read committed."
            yield Error(message, id="jobsplatform.E013")
        cursor.execute("SELECT current_setting('server_encoding')")
        if (value := cursor.fetchone()[0]) != "UTF8":
            yield Error(f"Database {alias!r} is encoded in {value}; it must be UTF8.", id="jobsplatform.E014")
