"""`manage.py up`: one machine's whole platform under one process that is supervised by nobody.

It provides the database, prepares it, starts every process, restarts what ends, and ends all on a signal.
Children stay in its process group and end with it, even by kill -9; PostgreSQL alone outlives a kill and is
adopted by the next `up` on the same folder. It never opens a database connection of Django's itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jobsplatform.embedded import EmbeddedError, Server
from jobsplatform.loop import PARENT_VARIABLE, Stop

RESTART_SECONDS_MIN: Final = 0.2
RESTART_SECONDS_MAX: Final = 5.0
STABLE_SECONDS: Final = 20  # a child that lived this long starts with the shortest delay again
DRAIN_SECONDS: Final = 22  # for the children after SIGTERM; with the server's time all ends within 30 s
SERVER_STOP_SECONDS: Final = 5
SERVER_GONE_SECONDS: Final = 2.0  # an operator's own restart of the server is left alone for so long
PORT_GRACE_SECONDS: Final = 10  # for the children of a killed `up` to give the port back
_BLOCKED = {signal.SIGINT}


class UpError(Exception):
    """`up` cannot go on; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags of `manage.py up`. `server` is None with a database URL."""

    port: int
    data: Path
    shards: int
    demo: bool
    workers: bool
    root: Path
    server: Server | None


@dataclass(slots=True)
class Child:
    """A process that is kept alive."""

    name: str
    command: list[str]
    descriptors: tuple[int, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    delay_s: float = RESTART_SECONDS_MIN
    start_at: float = 0.0

    def reap(self) -> int | None:
        """The exit code if the process has just ended; the next start is put off by the growing delay."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        now = time.monotonic()
        if now - self.started_at > STABLE_SECONDS:
            self.delay_s = RESTART_SECONDS_MIN
        self.process, self.start_at = None, now + self.delay_s
        self.delay_s = min(RESTART_SECONDS_MAX, self.delay_s * 2)
        return code


@dataclass
class Supervisor:
    """Runs the platform of one data folder until it is told to stop."""

    options: Options
    stop: Stop = field(default_factory=Stop)
    children: list[Child] = field(default_factory=list)
    _server_seen_at: float = 0.0

    def run(self) -> None:
        """Everything from the first line to the last. Raises UpError or EmbeddedError if it cannot start."""
        self.stop.on_signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with self._only_one(), self._listening() as listener:
            try:
                self._provide_server()
                self._prepare()
                self._start_all(listener)
                self._supervise()
            finally:
                self._end_all()

    # Before the start

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """Two supervisors on one folder would double every process: the second is refused."""
        self.options.data.mkdir(parents=True, exist_ok=True)
        with (self.options.data / "up.lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise UpError(
                    f"`manage.py up` already runs on {self.options.data} (process {file.read().strip()})."
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    @contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        """The web port, held by the supervisor: while the web restarts, connections wait, none is refused."""
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            end = time.monotonic() + (PORT_GRACE_SECONDS if self._was_killed() else 0)
            while True:
                try:
                    listener.bind(("127.0.0.1", self.options.port))
                    listener.listen(1024)
                    break
                except OSError as error:
                    if time.monotonic() > end or self.stop.wait(0.1):
                        port = self.options.port
                        raise UpError(
                            f"Port {port} is taken ({error.strerror}): choose another with --port."
                        ) from None
            self._mark.write_text("")
            yield listener
            self._mark.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        return self.options.data / "up.running"

    def _was_killed(self) -> bool:
        """Whether the last `up` on this folder ended without ending its children."""
        return self._mark.exists()

    def _provide_server(self) -> None:
        server = self.options.server
        if server is None:
            say("PostgreSQL", "as JOBSPLATFORM_DATABASE_URL says")
            return
        began, adopted = time.monotonic(), server.pid() is not None
        server.ensure_running(give_up=lambda: self.stop.requested)
        server.create_shards(self.options.shards)
        word = "adopted" if adopted else f"started in {time.monotonic() - began:.1f} s"
        say(f"PostgreSQL {server.version()}", f"{word}, {server.cluster}")
        self._server_seen_at = time.monotonic()

    def _prepare(self) -> None:
        """Migrate and fill the database in a process of its own, which tells what it did."""
        command = self._manage("up", "--prepare") + ([] if self.options.demo else ["--no-demo"])
        child = self._spawn(Child("prepare", command))
        while child.poll() is None:
            if self.stop.wait(0.05):
                child.terminate()
        if child.returncode and not self.stop.requested:
            raise UpError("The database could not be prepared (see above).")

    # Processes

    def _start_all(self, listener: socket.socket) -> None:
        if self.stop.requested:
            return
        descriptor = listener.fileno()
        gunicorn = [sys.executable, "-m", "gunicorn", "-c", str(self.options.root / "gunicorn.conf.py")]
        self.children.append(Child("web", [*gunicorn, "--bind", f"fd://{descriptor}"], (descriptor,)))
        self.children.append(Child("dispatcher", self._manage("rundispatcher")))
        self.children.append(Child("reaper", self._manage("runreaper")))
        if self.options.workers:
            self.children.append(Child("worker", self._manage("runworker")))
        if self.options.demo:
            self.children.append(Child("demo", self._manage("rundemo")))
        shutil.rmtree(self._metrics, ignore_errors=True)
        self._metrics.mkdir(parents=True)
        for child in self.children:
            self._start(child)
        say("Processes", ", ".join(child.name for child in self.children))
        self._wait_until_ready(listener.getsockname()[1])

    def _start(self, child: Child) -> None:
        child.process = self._spawn(child)
        child.started_at = time.monotonic()

    def _spawn(self, child: Child) -> subprocess.Popen[bytes]:
        """Start a child that ends with us. Ctrl-C reaches a whole terminal group: only we act on it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            return subprocess.Popen(
                child.command,
                cwd=self.options.root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                pass_fds=child.descriptors,
                preexec_fn=_end_with_parent
                if sys.platform == "linux"
                else None,  # safe: this process has one thread
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)

    def _environment(self) -> dict[str, str]:
        environment = {
            **os.environ,
            "JOBSPLATFORM_DATA": str(self.options.data),
            "PROMETHEUS_MULTIPROC_DIR": str(self._metrics),
            "PYTHONUNBUFFERED": "1",
            PARENT_VARIABLE: str(os.getpid()),
        }
        environment.setdefault("JOBSPLATFORM_LOG_LEVEL", "WARNING")  # a terminal is for what matters
        if self.options.server and self.options.shards > 1:
            environment["JOBSPLATFORM_SHARDS"] = ",".join(self.options.server.shards())
        return environment

    @property
    def _metrics(self) -> Path:
        return self.options.data / "metrics"

    def _manage(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.options.root / "manage.py"), *arguments]

    def _wait_until_ready(self, port: int) -> None:
        began, told_at = time.monotonic(), time.monotonic()
        while not self.stop.wait(0.1):
            fault = _fault_of(f"http://127.0.0.1:{port}/readyz")
            if not fault:
                say("Ready", f"in {time.monotonic() - began:.1f} s after the start of the processes")
                for name, path in (
                    ("Admin", "/admin/"),
                    ("API docs", "/docs"),
                    ("API", "/v1"),
                    ("Health", "/readyz"),
                ):
                    say(name, f"http://127.0.0.1:{port}{path}")
                say("Stop", "Ctrl-C (data stays)")
                return
            if time.monotonic() - told_at > 10:
                told_at = time.monotonic()
                say("Waiting", fault)
            self._look_after()

    def _supervise(self) -> None:
        while not self.stop.wait(0.1):
            self._look_after()

    def _look_after(self) -> None:
        """One round: who ended is told and started again after its delay; the server likewise."""
        for child in self.children:
            if (code := child.reap()) is not None:
                say(
                    child.name,
                    f"{_ending(code)}; starting again in {child.start_at - time.monotonic():.1f} s",
                )
            if child.process is None and time.monotonic() >= child.start_at:
                self._start(child)
        self._look_after_server()

    def _look_after_server(self) -> None:
        server, now = self.options.server, time.monotonic()
        if server is None or now - self._server_seen_at < 0.5:
            return
        if server.pid() is not None:
            self._server_seen_at = now
        elif now - self._server_seen_at > SERVER_GONE_SECONDS:
            self._revive(server)

    def _revive(self, server: Server) -> None:
        """Start a server that died; if it had to move to another port, every process must learn it."""
        before = server.address()
        try:
            server.ensure_running(give_up=lambda: self.stop.requested)
        except EmbeddedError as error:
            say("PostgreSQL", str(error))
            self.stop.wait(RESTART_SECONDS_MAX)
            return
        self._server_seen_at = time.monotonic()
        say("PostgreSQL", "had ended; started again")
        if server.address() != before:
            for child in self._living():
                child.terminate()

    def _living(self) -> list[subprocess.Popen[bytes]]:
        processes = [child.process for child in self.children if child.process is not None]
        return [process for process in processes if process.poll() is None]

    # The end

    def _end_all(self) -> None:
        """SIGTERM to all; a second request, or the end of their time, kills; then the server stops."""
        if self.children:
            say("Stopping", "a second Ctrl-C does not wait for running jobs")
        asked = self.stop.requests
        for process in self._living():
            process.terminate()
        end = time.monotonic() + DRAIN_SECONDS
        while self._living() and time.monotonic() < end and self.stop.requests <= max(asked, 1):
            time.sleep(0.05)
        for process in self._living():
            process.kill()
            process.wait()
        if self.options.server is not None:
            self.options.server.stop(SERVER_STOP_SECONDS)
        if self.children:
            say("Stopped", f"data stays in {self.options.data}")


def say(name: str, text: str) -> None:
    """One line of what happens; a closed terminal is no reason to end."""
    with suppress(OSError):
        print(f"  {name:<16} {text}", flush=True)


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """In the child before exec: die when the supervisor does (1 = PR_SET_PDEATHSIG, which survives exec)."""
    if _libc is not None:
        _libc.prctl(1, int(signal.SIGKILL))


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with {code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def _fault_of(url: str) -> str:
    """Why the platform is not ready; empty when it is."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310  (loopback)
            response.read()
            return ""
    except urllib.error.HTTPError as error:
        with suppress(ValueError):
            return f"/readyz says {error.code}: {json.loads(error.read()).get('detail', '')}"
        return f"/readyz says {error.code}"
    except OSError as error:
        return f"the web does not answer yet ({error})"
