"""The embedded server of one data folder: made once, started or adopted, stopped."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from jobsplatform import secretfiles
from jobsplatform.embedded import traces
from jobsplatform.embedded.account import Account, EmbeddedError
from jobsplatform.embedded.binaries import find_binaries, version_of

DATABASE: Final = "jobsplatform"
OWNER: Final = "jobsplatform"  # owns the databases and may create more; not a superuser
SUPERUSER: Final = "postgres"
SOCKET_BYTES_MAX: Final = 100  # a socket's path has 104 bytes on macOS and 108 on Linux
START_SECONDS_MAX: Final = 300  # crash recovery replays at most max_wal_size of log
STOP_SECONDS_MAX: Final = 15
START_ATTEMPTS: Final = 20  # half a second apart: backends that outlived a killed postmaster need to notice
PASSING_FAULTS: Final = ("in use", "pre-existing shared memory", "could not bind")

_CONFIGURATION = """\
# Written at every start.
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{sockets}'
unix_socket_permissions = 0700
max_connections = 200
password_encryption = 'scram-sha-256'
fsync = on
full_page_writes = on
synchronous_commit = on
shared_buffers = '256MB'
max_wal_size = '2GB'
min_wal_size = '256MB'
checkpoint_timeout = '10min'
jit = off
autovacuum_naptime = '15s'
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %u@%d '
log_min_messages = 'warning'
"""

_started: dict[Path, subprocess.Popen[bytes]] = {}  # cluster → its server, if this process started it


class Server:
    """The PostgreSQL server of one data folder."""

    def __init__(self, data: Path) -> None:
        self.data = Path(os.path.realpath(data))
        self.cluster = self.data / "pg"
        self.log = self.data / "pg.log"
        self._password = self.data / "pg.password"
        self._port = self.data / "pg.port"

    def ensure_running(self, *, give_up: Callable[[], bool] = lambda: False) -> None:
        """Make, start or adopt the server, and return when it answers. Raises EmbeddedError.

        Safe to call from many processes at once (a file lock under the data folder). `give_up` ends the wait
        for a long recovery.
        """
        try:
            self._ensure_running(give_up)
        except PermissionError as error:
            raise EmbeddedError(
                f"{error.filename} belongs to another user: name another data folder."
            ) from error

    def _ensure_running(self, give_up: Callable[[], bool]) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        with self._locked():
            binaries = find_binaries(traces.number_in(self.cluster / "PG_VERSION") or None)
            if not (self.cluster / "PG_VERSION").exists():
                self._make_cluster(binaries)
            self._start_or_adopt(binaries, give_up)
            self._make_role()
            self.create_database(DATABASE)

    def stop(self, seconds: float = STOP_SECONDS_MAX) -> None:
        """End the server as `pg_ctl stop -m fast` does, less gently after `seconds`; there may be none."""
        if not self.data.is_dir():
            return
        with self._locked():
            for number, patience in ((signal.SIGINT, seconds), (signal.SIGQUIT, 3), (signal.SIGKILL, 3)):
                pid = self.pid()
                if pid is None:
                    return
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                _wait(lambda: self.pid() is None, patience)

    def pid(self) -> int | None:
        """The postmaster's process id, or None when no server runs on this folder."""
        self._is_over()  # reaps it, if it was our child
        return traces.postmaster_of(self.cluster)

    def version(self) -> str:
        """The server's version as it tells it, e.g. `18.6`."""
        with self._connected(OWNER) as connection:
            return str(_value(connection, "SHOW server_version")).split()[0]

    def address(self, name: str = DATABASE) -> dict[str, Any]:
        """The entries of Django's DATABASES that say where database `name` is; needs no running server."""
        port = traces.number_in(self._port)
        return {
            "NAME": name,
            "USER": OWNER,
            "PASSWORD": traces.text_in(self._password),
            "HOST": self._socket_folder(port) or "127.0.0.1",
            "PORT": str(port),
        }

    def url(self, name: str = DATABASE) -> str:
        """The address over TCP, for tools outside."""
        password, port = traces.text_in(self._password), traces.number_in(self._port)
        return f"postgresql://{OWNER}:{password}@127.0.0.1:{port}/{name}"

    def create_database(self, name: str) -> None:
        """Create an empty database of the platform's role, unless it exists. The server must run."""
        with self._connected(OWNER) as connection:
            if not _value(connection, "SELECT count(*) FROM pg_database WHERE datname = %s", name):
                with suppress(psycopg.errors.DuplicateDatabase):
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def shards(self) -> list[str]:
        """The databases of the shards; empty: one shard, in the default database."""
        return traces.text_in(self.data / "shards").split()

    def create_shards(self, count: int) -> None:
        """Create the databases of `count` shards. Raises EmbeddedError if there are others already."""
        names = [f"{DATABASE}_shard{number}" for number in range(count)] if count > 1 else []
        record = self.data / "shards"
        if record.exists() and self.shards() != names:
            made_with = len(self.shards()) or 1
            raise EmbeddedError(f"{self.data} was made with {made_with} shards; --shards cannot change that.")
        for name in names:
            self.create_database(name)
        record.write_text("".join(f"{name}\n" for name in names))

    # The first start

    def _make_cluster(self, binaries: Path) -> None:
        """Make it beside its place and rename it: a half-made cluster is never taken for a whole one."""
        if self.cluster.exists() and any(self.cluster.iterdir()):
            raise EmbeddedError(f"{self.cluster} holds other files: name another data folder.")
        fresh = self.data / "pg.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        account = Account.choose(binaries, fresh)
        with self._password_for(account) as password_file:
            _run_initdb(binaries, fresh, password_file, account)
        with (fresh / "postgresql.conf").open("a") as file:
            file.write("\ninclude_if_exists 'jobsplatform.conf'\n")
        os.rename(fresh, self.cluster)

    @contextmanager
    def _password_for(self, account: Account) -> Iterator[Path]:
        """A copy of the password that the account may read, for as long as initdb needs it."""
        password = secretfiles.read_or_make(self._password)
        copy = self.data / "pg.password.new"
        copy.unlink(missing_ok=True)
        try:
            copy.touch(mode=0o600)
            copy.write_text(password)
            account.give(copy)
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def _make_role(self) -> None:
        with self._connected(SUPERUSER) as connection:
            if _value(connection, "SELECT count(*) FROM pg_roles WHERE rolname = %s", OWNER):
                return
            role, password = sql.Identifier(OWNER), sql.Literal(traces.text_in(self._password))
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEDB PASSWORD {}").format(role, password))
            connection.execute(sql.SQL("GRANT pg_monitor, pg_checkpoint TO {}").format(role))

    # Every start

    def _start_or_adopt(self, binaries: Path, give_up: Callable[[], bool]) -> None:
        """A server that dies while it is being adopted is started again."""
        for _ in range(3):
            if self.pid() is None:
                self._start(binaries)
            if _wait(self._answers, START_SECONDS_MAX, unless=lambda: self.pid() is None or give_up()):
                return
            if give_up():
                raise EmbeddedError("PostgreSQL is still recovering; nobody waits for it any more.")
        raise EmbeddedError(
            f"PostgreSQL does not become ready: {traces.reason_in(self.log)} (log: {self.log})"
        )

    def _start(self, binaries: Path) -> None:
        """Start the postmaster; return when it answers, or lives and is still recovering."""
        account = Account.choose(binaries, self.cluster)
        traces.rotate(self.log)
        for _ in range(START_ATTEMPTS):
            self._configure(account)
            offset = self.log.stat().st_size if self.log.exists() else 0
            command = [str(binaries / "postgres"), "-D", str(self.cluster)]
            _started[self.cluster] = account.start(command, self.log)
            if _wait(lambda: self.pid() is not None and self._answers(), 3, unless=self._is_over):
                return
            if not self._is_over():
                return
            reason = traces.reason_in(self.log, offset)
            if not any(words in reason for words in PASSING_FAULTS):
                break
            time.sleep(0.5)
        raise EmbeddedError(f"PostgreSQL did not start: {reason} (log: {self.log})")

    def _configure(self, account: Account) -> None:
        """Choose the port, write the configuration, and clear what a dead server left behind."""
        port = traces.number_in(self._port)
        if not port or not _is_free(port):
            port = _free_port()
            self._port.write_text(f"{port}\n")
        path = self.cluster / "jobsplatform.conf"
        path.write_text(_CONFIGURATION.format(port=port, sockets=self._socket_folder(port)))
        account.give(path)
        for stale in self.cluster.glob(".s.PGSQL.*"):
            stale.unlink(missing_ok=True)
        traces.disown(self.cluster)

    def _is_over(self) -> bool:
        """Whether the server that this process started has ended. False when it started none."""
        process = _started.get(self.cluster)
        return process is not None and process.poll() is not None

    def _answers(self) -> bool:
        try:
            with self._connected(SUPERUSER) as connection:
                return not _value(connection, "SELECT pg_is_in_recovery()")
        except psycopg.OperationalError as error:
            if "authentication failed" in str(error):
                raise EmbeddedError(f"{self._password} does not hold the server's password.") from error
            return False

    @contextmanager
    def _connected(self, user: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        where = self.address("postgres")
        with psycopg.connect(
            host=where["HOST"],
            port=where["PORT"],
            user=user,
            password=where["PASSWORD"],
            dbname="postgres",
            sslmode="disable",
            autocommit=True,
            connect_timeout=5,
        ) as connection:
            yield connection

    def _socket_folder(self, port: int) -> str:
        """The cluster's own folder; empty where a socket's path would be too long, or need quoting."""
        path = str(self.cluster)
        fits = len(os.fsencode(f"{path}/.s.PGSQL.{port}")) < SOCKET_BYTES_MAX
        return path if fits and not set(path) & set("',\"\\") else ""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.data / "pg.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _run_initdb(binaries: Path, folder: Path, password_file: Path, account: Account) -> None:
    command = [str(binaries / "initdb"), f"--pgdata={folder}", f"--username={SUPERUSER}"]
    command += [f"--pwfile={password_file}", "--auth=scram-sha-256", "--data-checksums"]
    command += ["--encoding=UTF8", "--locale=C", "--lc-messages=C"]
    if version_of(binaries) >= 17:
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    done = account.run(command)
    if done.returncode:
        raise EmbeddedError(
            f"initdb failed: {traces.last_line(done.stderr) or traces.last_line(done.stdout)}"
        )


def _value(connection: psycopg.Connection[tuple[Any, ...]], statement: Any, *parameters: object) -> Any:
    row = connection.execute(statement, parameters).fetchone()
    assert row is not None
    return row[0]


def _wait(
    condition: Callable[[], bool], seconds: float, *, unless: Callable[[], bool] = lambda: False
) -> bool:
    """Poll until the condition holds (True), or the time is up or `unless` holds (False)."""
    end = time.monotonic() + seconds
    while not condition():
        if unless() or time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
