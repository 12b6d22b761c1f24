"""The page `/metrics`: counters of this machine's processes, and what databases say of themselves and of their work.

Numbers that a database knows are read from it, so they are the same whichever process is asked. They are read at most
once in `FRESH_SECONDS` a process; each source reads no more than a bound, whatever there is. A label's values are
bounded too: the names that matter most, and `other` for the rest.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeVar

import psycopg
from django.db import DatabaseError, InterfaceError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobsplatform import database, events, servers, sql
from jobsplatform.errors import JobsPlatformError

FRESH_SECONDS: Final = 5.0
STATEMENT_SECONDS: Final = 2  # a source that takes longer goes without its numbers
OTHER: Final = "other"
_BOUNDED: Final = f"SELECT set_config('statement_timeout', '{STATEMENT_SECONDS}s', true)".encode()

T = TypeVar("T")
Labels = tuple[str, ...]
Source = Callable[[], Iterable[Metric]]

_sources: list[Source] = []
_lock = threading.Lock()
_held: tuple[float, bytes] | None = None


def add_source(source: Source) -> Source:
    """Let a source's families be on the page; called at most once in `FRESH_SECONDS` a process."""
    _sources.append(source)
    return source


def page() -> bytes:
    """The whole page in Prometheus' text format."""
    return events.exposition() + _of_databases()


def forget() -> None:
    """Read the databases anew for the next page."""
    global _held
    _held = None


def _of_databases() -> bytes:
    """One reader at a time: whoever waits for it gets what it read."""
    global _held
    with _lock:
        if _held is None or _held[0] <= time.monotonic():
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_Sources())
            text = generate_latest(registry)
            _held = (time.monotonic() + FRESH_SECONDS, text)
        return _held[1]


class _Sources(Collector):
    def collect(self) -> Iterator[Metric]:
        began = time.monotonic()
        for source in _sources:
            yield from source()
        yield gauge(
            "metrics_read_seconds",
            "How long the databases were read for this page.",
            (),
            {(): time.monotonic() - began},
        )


# Families


def gauge(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    """A family `jobsplatform_<name>`; a family without values has no line but its description."""
    return _filled(GaugeMetricFamily(f"jobsplatform_{name}", text, labels=labels), values)


def counter(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    """Likewise for a number that only rises; its samples end in `_total`."""
    return _filled(CounterMetricFamily(f"jobsplatform_{name}", text, labels=labels), values)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[Labels, float]
) -> GaugeMetricFamily | CounterMetricFamily:
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def bounded(
    values: Mapping[Labels, float], kept: Iterable[str], how: Literal["sum", "max"]
) -> dict[Labels, float]:
    """The values with the first label's names that are not `kept` put together as `other`."""
    names, found = set(kept), defaultdict[Labels, float](float)
    for labels, value in values.items():
        key = labels if labels[0] in names else (OTHER, *labels[1:])
        found[key] = found[key] + value if how == "sum" else max(found[key], value)
    return dict(found)


# Servers


def databases() -> list[str]:
    """The alias of every database once, control first."""
    return list(dict.fromkeys(["default", *database.aliases().values()]))


def shards() -> list[str]:
    """The alias of every shard."""
    return list(database.aliases().values())


Ask = Callable[[str, Mapping[str, Any]], list[sql.Row]]  # statement, parameters


def asked(alias: str, ask: Callable[[Ask], T]) -> T | None:
    """What `ask` reads in one short transaction of `alias`; None: the database is away, or took too long."""

    def within(connection: psycopg.Connection[sql.Row]) -> T:
        connection.execute(_BOUNDED)
        return ask(partial(_read, connection))

    try:
        return sql.short_transaction(alias, within)
    except (JobsPlatformError, DatabaseError, InterfaceError, psycopg.Error):
        return None


def _read(
    connection: psycopg.Connection[sql.Row], statement: str, params: Mapping[str, Any]
) -> list[sql.Row]:
    if (settings := sql.planning(statement)) is not None:
        connection.execute(settings)
    return sql.send(connection, statement, params).fetchall()


@add_source
def of_servers() -> Iterator[Metric]:
    """Whether each database answers and takes writes, who holds its horizon, how full it is."""
    found = {alias: asked(alias, _server) for alias in databases()}
    told = {(alias,): server for alias, server in found.items() if server is not None}
    label = ("database",)
    up: dict[Labels, float] = {(alias,): float(server is not None) for alias, server in found.items()}
    yield gauge("database_up", "Whether the database answered (1) for this page.", label, up)
    for name, (text, place) in _SERVER.items():
        yield gauge(name, text, label, {key: server[place] for key, server in told.items()})


# Family → description, and its place in what `_server` reads.
_SERVER: Final = {
    "database_writable": ("Whether the database takes writes (1).", 0),
    "database_durable": (
        "Whether fsync and full_page_writes are on and commits wait for the disk (1).",
        1,
    ),
    "horizon_age_seconds": ("Age of the oldest transaction that keeps dead rows from being removed.", 2),
    "database_connections_ratio": ("Client connections, of max_connections.", 3),
    "transaction_ids_ratio": (
        "Age of the oldest unfrozen transaction id, of twice autovacuum_freeze_max_age.",
        4,
    ),
    "sync_standbys_missing": ("1: commits wait for a standby and none is attached.", 5),
    "clock_off_seconds": ("Between the database's clock and this machine's, at least.", 6),
}


def _server(ask: Ask) -> tuple[float, ...]:
    server = servers.read(lambda: ask("jobsplatform/doctor_server", {})[0])
    held = [seconds for _, _, seconds in ask("jobsplatform/doctor_horizon", {}) if seconds is not None]
    return (
        float(not server.is_read_only),
        float(server.is_durable),
        max(held, default=0.0),
        server.connections / server.connections_max,
        server.xid_age / (2 * server.xid_age_max),
        float(server.lacks_standby),
        server.off_s,
    )
