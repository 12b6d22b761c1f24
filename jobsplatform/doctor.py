"""What an operator would look at first: each finding with its value, a verdict and what to do.

The checks of servers are here; an app hands in its own. A check asks one database and never changes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from django.conf import settings
from django.db import DatabaseError

from jobsplatform import database, public, servers, sql
from jobsplatform.errors import JobsPlatformError
from jobsplatform.servers import CLOCK_SECONDS, Server

HORIZON_SECONDS: Final = (60.0, 600.0)  # of the oldest transaction
CONNECTIONS_SHARE: Final = (0.8, 0.95)
FREE_BYTES: Final = (2 * 1024**3, 512 * 1024**2)  # of the embedded server's disk


class Verdict(IntEnum):
    """Also the exit code of a table whose worst line it is."""

    OK = 0
    LOOK = 1
    WRONG = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table. `place` is `machine`, `control` or `shard N`; `fix` is empty when all is well."""

    place: str
    check: str
    value: str
    verdict: Verdict = Verdict.OK
    fix: str = ""


Check = Callable[[str, str], Iterator[Finding]]  # of a place and its alias


def examine(*checks: Check) -> Iterator[Finding]:
    """Every finding, a place at a time; `checks` are asked of every shard. A server that is away is a finding too."""
    yield from _machine()
    shards = {alias: f"shard {number}" for number, alias in database.aliases().items()}
    for alias, place in {"default": "control", **shards}.items():
        try:
            yield from _server(place, alias)
            for check in checks if alias in shards else ():
                yield from check(place, alias)
        except (DatabaseError, JobsPlatformError) as error:
            words = str(error).split("\n")[0]
            yield Finding(
                place, "server", words, Verdict.WRONG, "Start it, or see whether the network reaches it."
            )


def judged(value: float, bounds: tuple[float, float]) -> Verdict:
    """Of a value that should be small: above the first bound worth a look, above the second wrong."""
    look, wrong = bounds
    return Verdict.WRONG if value > wrong else Verdict.LOOK if value > look else Verdict.OK


def _machine() -> Iterator[Finding]:
    if settings.DATABASE_URL:
        return
    free = shutil.disk_usage(settings.DATA).free
    verdict = judged(-free, (-FREE_BYTES[0], -FREE_BYTES[1]))
    fix = "Make room: a full disk stops the server." if verdict else ""
    yield Finding("machine", "free disk", f"{free / 1024**3:.1f} GiB", verdict, fix)


def _server(place: str, alias: str) -> Iterator[Finding]:
    server = servers.of(alias)
    yield Finding(place, "server", f"PostgreSQL {server.version}")
    yield from _durable(place, server)
    migrated = public.is_migrated(alias)
    yield _faulty(
        place, "migrations", migrated, "current" if migrated else "to be run", "Run manage.py migrate."
    )
    yield _faulty(
        place,
        "autovacuum",
        server.autovacuum == "on",
        server.autovacuum,
        "Set it to on: hot tables would only grow.",
    )
    yield _clock(place, server.off_s)
    yield _share(
        place,
        "connections",
        server.connections,
        server.connections_max,
        "Raise max_connections, or lower JOBS_POOL_CONNECTIONS.",
    )
    yield _share(
        place,
        "transaction ids",
        server.xid_age,
        server.xid_age_max * 2,
        "Find what keeps vacuum from freezing rows (horizon below).",
    )
    yield _horizon(place, alias)


def _durable(place: str, server: Server) -> Iterator[Finding]:
    """Whether it takes writes and keeps what it confirmed: through a crash and, where that is asked, its loss."""
    yield _faulty(
        place,
        "writable",
        not server.is_read_only,
        "no" if server.is_read_only else "yes",
        "This is a standby: name the primary.",
    )
    words = (
        f"fsync {server.fsync}, full_page_writes {server.full_page_writes}, "
        f"synchronous_commit {server.synchronous_commit}"
    )
    yield _faulty(
        place,
        "durability",
        server.is_durable,
        words,
        "Set all three to on: committed jobs could be lost.",
    )
    if server.standbys_wanted and server.standbys is None:
        fix = f"Let the platform see it: GRANT pg_monitor TO its role ({place})."
        yield Finding(place, "standby", "not to be seen", Verdict.LOOK, fix)
    elif server.standbys_wanted:
        fix = (
            "Commits wait for a standby that is away: start it, or take it out of synchronous_standby_names."
        )
        yield _faulty(place, "standby", not server.lacks_standby, f"{server.standbys} attached", fix)
    elif settings.JOBS_STANDBY_REQUIRED and not server.is_read_only:  # none is named: nothing is waited for
        fix = "JOBS_STANDBY_REQUIRED is set: attach a standby and name it in synchronous_standby_names."
        yield _faulty(place, "standby", False, "commits wait for none", fix)


def _faulty(place: str, check: str, is_well: bool, value: str, fix: str) -> Finding:
    return Finding(place, check, value) if is_well else Finding(place, check, value, Verdict.WRONG, fix)


def _clock(place: str, off_s: float) -> Finding:
    verdict = judged(off_s, CLOCK_SECONDS)
    fix = "Synchronise both clocks; leases are judged by the server's." if verdict else ""
    return Finding(place, "clock", f"{off_s:.1f} s off this machine's", verdict, fix)


def _share(place: str, check: str, used: int, most: int, fix: str) -> Finding:
    verdict = judged(used / most, CONNECTIONS_SHARE)
    return Finding(place, check, f"{used:,} of {most:,}", verdict, fix if verdict else "")


def _horizon(place: str, alias: str) -> Finding:
    """The session that pins the horizon, by name: dead rows of hot tables stay while it lasts."""
    found = sql.rows("jobsplatform/doctor_horizon", {}, alias=alias)
    if not found:
        return Finding(place, "horizon", "nobody holds it")
    who, detail, seconds = found[0]
    if seconds is None:
        return Finding(
            place, "horizon", f"{who} ({detail})", Verdict.LOOK, "Drop the slot if nobody reads it."
        )
    verdict = judged(seconds, HORIZON_SECONDS)
    fix = (
        f"End it: SELECT pg_terminate_backend({who.split()[-1]});"
        if who.startswith("session")
        else "Commit it or roll it back."
    )
    return Finding(
        place, "horizon", f"{who} for {seconds:,.0f} s ({detail})", verdict, fix if verdict else ""
    )
