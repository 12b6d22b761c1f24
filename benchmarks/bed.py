"""What side-by-side measurements lie in: an embedded PostgreSQL of its own, empty databases, and what work cost there.

The server is started by the platform's launcher with its settings (fsync, full_page_writes and synchronous_commit on),
in a temporary folder that is removed at the end. All costs are read from outside: /proc, and the server's own counters.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.sql import SQL, Identifier

if TYPE_CHECKING:
    from jobsplatform.embedded import Server

ROOT: Final = Path(__file__).resolve().parent.parent
TICKS: Final = os.sysconf("SC_CLK_TCK")
BUSY_SECONDS_MAX: Final = 10.0  # until backends of ended processes have left a database
SETTINGS: Final = (
    "fsync", "full_page_writes", "synchronous_commit", "shared_buffers", "max_wal_size", "checkpoint_timeout", "jit"
)  # fmt: skip
GAUGE_LOOPS: Final = 1_000_000


class Bed:
    """A running server. Databases are named by the measurement; all belong to the platform's role."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder

    def dsn(self, name: str) -> str:
        """The address over TCP: the same way for everybody."""
        return self.server.url(name)

    def fresh(self, name: str, template: str | None = None) -> str:
        """Make database `name` anew, empty or as a copy, after a checkpoint; its address."""
        with self.session() as session:
            # Not WITH (FORCE), which may not end an autovacuum; without it one steps aside by itself.
            _repeat_while_used(session, SQL("DROP DATABASE IF EXISTS {}").format(Identifier(name)))
            make = SQL("CREATE DATABASE {}").format(Identifier(name))
            if template is not None:
                make += SQL(" TEMPLATE {}").format(Identifier(template))
            _repeat_while_used(session, make)
            session.execute("CHECKPOINT")
        return self.dsn(name)

    @contextmanager
    def session(self, name: str = "jobsplatform") -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """A session in autocommit mode."""
        with psycopg.connect(self.dsn(name), autocommit=True) as session:
            yield session

    def wal_bytes(self) -> int:
        """Bytes of log written since the cluster was made, by everybody."""
        return int(self.value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))

    def disk_bytes(self, name: str) -> int:
        """What database `name` takes on disk."""
        return int(self.value("SELECT pg_database_size(%s)", [name]))

    def cpu_s(self) -> float:
        """Processor seconds of the server: postmaster, its background processes and every backend, also ended ones."""
        return cpu_s([self.server.pid() or 0])

    def value(self, statement: str, params: Sequence[Any] = (), name: str = "jobsplatform") -> Any:
        """The first column of the first row."""
        with self.session(name) as session:
            row = session.execute(statement, params).fetchone()
            assert row is not None
            return row[0]

    def facts(self) -> dict[str, str]:
        """Machine, versions and the server's settings."""
        settings = ", ".join(f"{name}={self.value(f'SHOW {name}')}" for name in SETTINGS)
        return {
            "machine": f"{os.cpu_count()} cores ({_processor()}), {_memory_gib()} GiB, {platform.system()}",
            "python": platform.python_version(),
            "postgresql": self.server.version(),
            "settings": settings,
            "date": time.strftime("%Y-%m-%d"),
        }


@contextmanager
def bed() -> Iterator[Bed]:
    """A server in a temporary folder; both are gone at the end."""
    sys.path[:0] = [path for path in (str(ROOT), str(ROOT / "queue")) if path not in sys.path]
    from jobsplatform.embedded import Server

    with tempfile.TemporaryDirectory(prefix="jobsplatform-bed-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(folder / "server")
        server.ensure_running()
        try:
            yield Bed(server, folder)
        finally:
            server.stop()


def environment(folder: Path, dsn: str, **more: str) -> dict[str, str]:
    """The environment of a process of the platform on database `dsn`, with prepared statements as on the embedded."""
    kept = {"JOBSPLATFORM_PG_BIN"}
    clean = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("JOBSPLATFORM_", "JOBS_"))
    }
    ours = {
        "DJANGO_SETTINGS_MODULE": "benchmarks.peers.our_settings",
        "JOBSPLATFORM_DATA": str(folder),
        "JOBSPLATFORM_DATABASE_URL": dsn,
        "JOBSPLATFORM_LOG_LEVEL": "WARNING",
        "JOBS_PREPARED_STATEMENTS": "true",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'queue'}",
    }
    return clean | ours | more


def _repeat_while_used(session: psycopg.Connection[tuple[Any, ...]], statement: Any) -> None:
    """Backends of a process that has ended may still be leaving."""
    end = time.monotonic() + BUSY_SECONDS_MAX
    while True:
        try:
            session.execute(statement)
            return
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


# Processes


def tree(roots: Sequence[int]) -> list[int]:
    """These processes and all below them that live."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, left = [], list(roots)
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, [])
    return found


def cpu_s(roots: Sequence[int]) -> float:
    """Processor seconds of these processes and all below them, with those that have ended and were waited for."""
    return sum(sum(map(int, fields[11:15])) for pid in tree(roots) if (fields := _stat(pid))) / TICKS


def peak_mib(roots: Sequence[int]) -> float:
    """The most resident memory of each of these and all below, added up, in MiB."""
    total = 0
    for pid in tree(roots):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return total / 1024


def _stat(pid: int) -> list[str]:
    """The fields after a process's name: [0] its state, [1] its parent, [11:15] ticks; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


# The machine


def gauge_s() -> float:
    """Seconds that a fixed loop takes: how fast the machine is at this moment."""
    start, value = time.perf_counter(), 0
    for number in range(GAUGE_LOOPS):
        value = (value * 69_069 + number) & 0xFFFF_FFFF
    return time.perf_counter() - start


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine()
    )


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
