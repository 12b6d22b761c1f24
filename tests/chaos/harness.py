"""A whole platform as a child of a test: `manage.py up` on a folder of its own, its processes, HTTP and database.

Only processes that this module started, or that those started, are ever signalled, each by its id.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from jobsplatform.embedded import Server

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60  # what the contract allows a restarted platform
STOP_S = 30
SETTINGS = "tests.chaos.settings"
MANY = """
import json, os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsplatform.settings")
import django
from django.core.management import call_command
django.setup()
for command in json.loads(sys.argv[1]):
    call_command(*command)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], object], seconds: float, what: object = "") -> float:
    """Poll until it holds and answer how many seconds that took; `what` explains a failure."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.05)
    return time.monotonic() - began


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    command: str


def processes() -> list[Process]:
    """All living processes of this machine."""
    listed = subprocess.run(
        ["ps", "-wweo", "pid=,ppid=,pgid=,stat=,args="], capture_output=True, text=True, check=True
    )
    found = []
    for line in listed.stdout.splitlines():
        pid, parent, group, state, command = line.split(None, 4)
        if not state.startswith("Z"):
            found.append(Process(int(pid), int(parent), int(group), command))
    return found


def is_alive(pid: int) -> bool:
    return any(one.pid == pid for one in processes())


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def environment(data: Path, **more: str) -> dict[str, str]:
    """What a child sees: no knob of this suite but the choice of the server's binaries."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("JOBSPLATFORM_", "JOBS_", "DJANGO_"))}
    if "JOBSPLATFORM_PG_BIN" in os.environ:
        kept["JOBSPLATFORM_PG_BIN"] = os.environ["JOBSPLATFORM_PG_BIN"]
    return kept | {"JOBSPLATFORM_DATA": str(data), "PYTHONPATH": str(ROOT / "queue")} | more


@dataclass
class Platform:
    """One `manage.py up` after another on the same folder and port."""

    data: Path
    port: int = field(default_factory=free_port)
    variables: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ("--no-demo",)
    process: subprocess.Popen[bytes] | None = None
    helpers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.data.parent / f"{self.data.name}.log"
        self.server = Server(self.data)

    # Starting and ending

    def start(self, *flags: str) -> Platform:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self.command("up", "--data", str(self.data), "--port", str(self.port), *self.flags, *flags),
                cwd=ROOT,
                env=environment(self.data, **self.variables),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None, "the platform was not started"
        return self.process.pid

    def wait_ready(self, seconds: float = READY_S) -> float:
        """Seconds until `/readyz` was 200."""

        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.output
            return self.call("GET", "/readyz").status == 200

        return until(ready, seconds, lambda: self.output)

    def kill(self) -> None:
        """Kill -9 of `up` alone."""
        assert self.process is not None
        kill(self.pid)
        self.process.wait()

    def stop(self, seconds: float = STOP_S) -> int:
        """SIGTERM, as an operator does; answers the exit code."""
        assert self.process is not None
        kill(self.pid, signal.SIGTERM)
        return self.process.wait(seconds)

    def close(self) -> None:
        """Whatever a test left: nothing of it survives."""
        for helper in self.helpers:
            kill(helper.pid)
            helper.wait()
        if self.process is not None and self.process.poll() is None:
            kill(self.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
        for one in self.group():
            kill(one.pid)
        if self.process is not None:
            self.process.wait()
        self.server.stop()

    @property
    def output(self) -> str:
        return self.log.read_text()

    # Its processes

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / "manage.py"), *arguments]

    def group(self) -> list[Process]:
        """The living processes of its group, `up` itself among them."""
        return [one for one in processes() if self.process is not None and one.group == self.process.pid]

    def pids(self, role: str) -> list[int]:
        """Of `web` (the master), `web-worker`, `dispatcher`, `reaper`, `keeper` or `executor`."""
        group = self.group()
        masters = {one.pid for one in group if "gunicorn" in one.command and one.parent == self.pid}
        judges: Mapping[str, Callable[[Process], bool]] = {
            "web": lambda one: one.pid in masters,
            "web-worker": lambda one: one.parent in masters,
            "dispatcher": lambda one: "rundispatcher" in one.command,
            "reaper": lambda one: "runreaper" in one.command,
            "keeper": lambda one: "runworker" in one.command and "--executor" not in one.command,
            "executor": lambda one: "runworker" in one.command and "--executor" in one.command,
        }
        return [one.pid for one in group if one.pid != self.pid and judges[role](one)]

    def kill_one(self, role: str, chance: random.Random) -> None:
        """Kill -9 one of these processes; one that is just being started again is waited for."""
        until(lambda: self.pids(role), 20, lambda: f"no {role} came back: {self.output[-4_000:]}")
        found = self.pids(role)  # it may have ended meanwhile: then there is nothing to kill
        if found:
            kill(chance.choice(found))

    def postmaster(self) -> int:
        pid = self.server.pid()
        assert pid is not None, "no PostgreSQL runs"
        return pid

    def start_helper(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """A further process on this platform (`runworker …`), in a group of its own."""
        with self.log.open("a") as log:
            helper = subprocess.Popen(
                self.command(*arguments),
                cwd=ROOT,
                env=environment(self.data, JOBSPLATFORM_LOG_LEVEL="WARNING", **self.variables, **variables),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.helpers.append(helper)
        return helper

    # Commands, database, HTTP

    def manage(self, *arguments: str, expect: int = 0) -> str:
        """Run a command against it as an operator would: by JOBSPLATFORM_DATA alone. Answers its output."""
        return self._run(self.command(*arguments), expect)

    def manage_all(self, *commands: Sequence[str]) -> str:
        """Run several one after another in one process, which costs one start. Answers their output."""
        return self._run([sys.executable, "-c", MANY, json.dumps(commands)], 0)

    def _run(self, command: Sequence[str], expect: int) -> str:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(self.data, **self.variables),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == expect, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def token(self, *arguments: str) -> str:
        """`createtoken …`, read from its last line."""
        return _token_in(self.manage("createtoken", "--json", *arguments))

    def tenant(self, slug: str, *commands: Sequence[str], scopes: str = "produce,work,read") -> str:
        """Create a tenant, run these commands too, and answer a token of it."""
        token = ("createtoken", "--json", "--tenant", slug, "--scopes", scopes)
        return _token_in(self.manage_all(("createtenant", slug), *commands, token))

    def fsck(self) -> list[dict[str, str]]:
        return list(json.loads(self.manage("fsck", "--json"))["faults"])

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with psycopg.connect(self.server.url(), autocommit=True, connect_timeout=5) as connection:
            yield connection

    def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self.connected() as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def call(self, method: str, path: str, body: object = None, token: str = "", **options: Any) -> Answer:
        client = Client(self.port, token, **options)
        try:
            return client.call(method, path, body)
        finally:
            client.close()


def _token_in(output: str) -> str:
    """Read from the last line."""
    return str(json.loads(output.splitlines()[-1])["token"])


class Answer(NamedTuple):
    """What a client was told. Status 0: nothing, the connection failed or was cut."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = {}

    @property
    def code(self) -> str:
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""

    @property
    def is_open(self) -> bool:
        """Whether the same call must be made again."""
        return self.status in (0, 503)


class Client:
    """One keep-alive connection; for one thread."""

    def __init__(self, port: int, token: str = "", *, tenant: str = "", timeout_s: float = 30) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        if tenant:
            self._headers["Jobsplatform-Tenant"] = tenant

    def call(self, method: str, path: str, body: object = None) -> Answer:
        text = None if body is None else json.dumps(body).encode()
        headers = (
            self._headers
            if text is not None
            else {n: v for n, v in self._headers.items() if n != "Content-Type"}
        )
        try:
            self._connection.request(method, path, text, headers)
            reply = self._connection.getresponse()
            content = reply.read()
        except (OSError, HTTPException):
            self._connection.close()
            return Answer(0)
        said = {name.lower(): value for name, value in reply.getheaders()}
        with suppress(ValueError):
            return Answer(reply.status, json.loads(content) if content else None, said)
        return Answer(reply.status, content, said)

    def close(self) -> None:
        self._connection.close()


@dataclass
class Web:
    """A further web on a platform's database, perhaps through a proxy or with another clock."""

    platform: Platform
    database_url: str = ""
    prefix: tuple[str, ...] = ()  # what the command line begins with: `faketime …`
    variables: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Web:
        given = {"JOBS_WEB_PROCESSES": "1", "JOBSPLATFORM_LOG_LEVEL": "ERROR"} | self.variables
        if self.database_url:
            data = self.platform.data
            given |= {
                "JOBSPLATFORM_DATABASE_URL": self.database_url,
                "JOBSPLATFORM_SECRET_KEY": (data / "secret_key").read_text().strip(),
                "JOBSPLATFORM_TOKEN_PEPPER": (data / "token_pepper").read_text().strip(),
            }
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "-c",
            "gunicorn.conf.py",
            "--bind",
            f"127.0.0.1:{self.port}",
        ]
        with self.platform.log.open("a") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *command],
                cwd=ROOT,
                env=environment(self.platform.data, **given),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until(lambda: self.call("GET", "/livez").status == 200, 30, lambda: self.platform.output[-4_000:])
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        group = [one.pid for one in processes() if one.group == self.process.pid]
        for pid in group:
            kill(pid)
        self.process.wait()

    def call(self, method: str, path: str, body: object = None, token: str = "", **options: Any) -> Answer:
        client = Client(self.port, token, **options)
        try:
            return client.call(method, path, body)
        finally:
            client.close()

    def worker_pids(self) -> list[int]:
        """Its processes that answer requests (children of the master)."""
        assert self.process is not None
        return [
            one.pid for one in processes() if one.group == self.process.pid and one.pid != self.process.pid
        ]
