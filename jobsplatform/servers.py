"""What a database server says of itself that the guarantees and the speed rest on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from jobsplatform import sql

CLOCK_SECONDS: Final = (1.0, 30.0)  # between this machine and a server: worth a look, wrong


@dataclass(frozen=True, slots=True)
class Server:
    """A row of `doctor_server`. `clock` in seconds since the epoch; standbys that commits wait for, and those there."""

    version: str
    is_read_only: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    autovacuum: str
    clock: float
    connections_max: int
    connections: int
    xid_age: int
    xid_age_max: int
    standbys_wanted: str
    standbys: int | None  # None: the role may not see them
    off_s: float = 0.0  # between its clock and this machine's, at least

    @property
    def is_durable(self) -> bool:
        """Whether what it confirmed survives its crash."""
        return (self.fsync, self.full_page_writes) == ("on", "on") and self.synchronous_commit in (
            "on",
            "remote_write",
            "remote_apply",
        )

    @property
    def lacks_standby(self) -> bool:
        """Whether commits wait for a standby and none is there."""
        return bool(self.standbys_wanted) and self.standbys == 0

    @property
    def has_standby(self) -> bool:
        """Whether what it confirmed survives its loss: a standby has it before the client hears so."""
        return bool(self.standbys_wanted) and bool(self.standbys) and self.is_durable


def read(ask: Callable[[], sql.Row]) -> Server:
    """The server whose row `ask` reads, with how far its clock is off."""
    asked_at = time.time()
    row = ask()
    answered_at = time.time()
    server = Server(*row)
    return replace(server, off_s=max(asked_at - server.clock, server.clock - answered_at, 0.0))


def of(alias: str) -> Server:
    """The server behind a database alias. Raises Unavailable."""
    return read(lambda: sql.rows("jobsplatform/doctor_server", {}, alias=alias)[0])
