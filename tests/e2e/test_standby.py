"""A primary with a synchronous standby, killed under load: what was acknowledged is on the standby.

The servers are the embedded binaries on loopback. The load is a process of the platform with a URL of both hosts, as a
deployment that fails over has it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from jobsplatform.embedded.account import Account
from jobsplatform.embedded.binaries import find_binaries

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "standby-test"
SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
fsync = on
full_page_writes = on
synchronous_commit = on
max_connections = 60
hot_standby = on
"""

# Enqueues and claims until it is told to stop, and writes down what it was told. Run as a process of its own.
LOAD = """
import sys, json, time, threading
from pathlib import Path
sys.path[:0] = [{root!r}, {queue!r}]
import django
django.setup()
from django.db import connections
from jobqueue import claiming, leases, policies
from jobqueue.claiming import ClaimRequest
from jobqueue.enqueue import Accepted, NewJob, enqueue
from jobsplatform.errors import JobsPlatformError
from tenants import registry
tenant = registry.get("acme")
queue = policies.by_name("default")
lock = threading.Lock()
log = open({log!r}, "a", buffering=1)
def note(**line):
    with lock:
        log.write(json.dumps(line) + "\\n")
def produce(thread):
    n = 0
    while not Path({stop!r}).exists():
        n += 1
        key = f"{{thread}}-{{n}}"
        job = NewJob(tenant_id=tenant.pk, queue=queue, kind="noop", priority=2, payload="null", request_key=key)
        try:
            (outcome,) = enqueue([job])
            if isinstance(outcome, Accepted):
                note(op="accepted", key=key, job=outcome.job_id)
            else:
                note(op=outcome.code, key=key)
        except JobsPlatformError as error:
            note(op=error.code, key=key)
            time.sleep(0.05)
    connections.close_all()
def work():
    while not Path({stop!r}).exists():
        try:
            held = claiming.claim(ClaimRequest(queues=(queue,), limit=5, lease_s=2))
            for lease in held:
                note(op="claimed", job=lease.job_id, generation=lease.generation)
            if not held:
                time.sleep(0.02)
        except JobsPlatformError:
            time.sleep(0.05)
    connections.close_all()
threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)] + [threading.Thread(target=work)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@dataclass
class Pair:
    """A primary and its synchronous standby."""

    folder: Path
    binaries: Path
    account: Account
    ports: tuple[int, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        command = [str(self.binaries / "postgres"), "-D", str(self.folder / name)]
        self.processes[name] = self.account.start(command, self.folder / f"{name}.log")

    def connect(self, name: str, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        port = self.ports[name == "standby"]
        where = f"host=127.0.0.1 port={port} user=postgres password={PASSWORD} dbname={database} connect_timeout=2"
        return psycopg.connect(where, autocommit=True)

    def until_it_answers(self, name: str) -> None:
        def answers() -> bool:
            with self.connect(name) as session:
                return bool(session.execute("SELECT 1").fetchone())

        until(answers)

    def environment(self, data: Path) -> dict[str, str]:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        url = f"postgresql://postgres:{PASSWORD}@{hosts}/jobs?target_session_attrs=read-write"
        return {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("JOBS_", "JOBSPLATFORM_"))
            },
            "DJANGO_SETTINGS_MODULE": "jobsplatform.settings",
            "JOBSPLATFORM_DATA": str(data),
            "JOBSPLATFORM_DATABASE_URL": url,
            "JOBSPLATFORM_SECRET_KEY": "test-only-" + "k" * 50,
            "JOBSPLATFORM_TOKEN_PEPPER": "test-only-" + "p" * 32,
            "JOBS_CONNECT_SECONDS": "2",
            "JOBS_NOTIFICATIONS": "false",
        }

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGQUIT)
                process.wait(20)


def until(condition: object, seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while True:
        try:
            if condition():  # type: ignore[operator]
                return
        except psycopg.Error:
            pass
        assert time.monotonic() < ends
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Both servers, the platform migrated on the primary, and the standby synchronous."""
    for parent in [tmp_path, *tmp_path.parents][:3]:
        parent.chmod(0o755)
    binaries = find_binaries(None)
    folder = tmp_path / "servers"
    (folder / "primary").mkdir(parents=True)
    (folder / "primary").chmod(0o700)
    account = Account.choose(binaries, folder / "primary")
    account.give(folder)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    account.give(secret)
    made = Pair(folder, binaries, account, (free_port(), free_port()))
    run(
        account,
        binaries / "initdb",
        f"--pgdata={folder / 'primary'}",
        "--username=postgres",
        f"--pwfile={secret}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
    )
    configure(made, "primary", made.ports[0])
    try:
        made.start("primary")
        made.until_it_answers("primary")
        run(
            account,
            binaries / "pg_basebackup",
            f"--pgdata={folder / 'standby'}",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--wal-method=stream",
            f"--dbname=host=127.0.0.1 port={made.ports[0]} user=postgres password={PASSWORD} application_name=standby",
        )
        configure(made, "standby", made.ports[1])
        made.start("standby")
        made.until_it_answers("standby")
        with made.connect("primary") as session:
            session.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            session.execute("SELECT pg_reload_conf()")
            until(
                lambda: session.execute("SELECT sync_state FROM pg_stat_replication").fetchone() == ("sync",)
            )
            session.execute("CREATE DATABASE jobs")
        manage(made, tmp_path, "migrate", "-v", "0")
        manage(made, tmp_path, "createtenant", "acme")
        yield made
    finally:
        made.stop()


def configure(made: Pair, name: str, port: int) -> None:
    path = made.folder / name / "postgresql.auto.conf"
    path.write_text((path.read_text() if path.exists() else "") + SETTINGS.format(port=port))
    made.account.give(path)


def run(account: Account, *command: object) -> None:
    done = account.run([str(word) for word in command])
    assert done.returncode == 0, done.stderr


def manage(made: Pair, data: Path, *arguments: str) -> None:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    done = subprocess.run(command, env=made.environment(data), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def load(made: Pair, data: Path) -> subprocess.Popen[bytes]:
    text = LOAD.format(
        root=str(ROOT), queue=str(ROOT / "queue"), log=str(data / "load.log"), stop=str(data / "stop")
    )
    return subprocess.Popen([sys.executable, "-c", text], env=made.environment(data))


def told(data: Path) -> list[dict[str, object]]:
    path = data / "load.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_no_acknowledged_job_is_lost_with_the_primary(pair: Pair, tmp_path: Path) -> None:
    process = load(pair, tmp_path)
    try:
        until(lambda: sum(line["op"] == "accepted" for line in told(tmp_path)) > 300, 60)
        pair.processes["primary"].kill()  # the postmaster; its children go with it or find out
        pair.processes["primary"].wait(20)
        before = len(told(tmp_path))
        with pair.connect("standby") as session:
            session.execute("SELECT pg_promote()")
            session.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            session.execute("SELECT pg_reload_conf()")
        until(lambda: any(line["op"] == "accepted" for line in told(tmp_path)[before:]), 60)
        time.sleep(4)  # leases of before lapse, and are claimed again
        manage(pair, tmp_path, "runreaper", "--once")
        time.sleep(1)
    finally:
        (tmp_path / "stop").touch()
        process.wait(60)
    lines = told(tmp_path)
    accepted = {line["key"]: line["job"] for line in lines if line["op"] == "accepted"}
    with pair.connect("standby", "jobs") as session:
        keys = session.execute("SELECT key, job_id FROM queue_requestkey").fetchall()
        there = {row[0]: row[1] for row in keys}
        jobs = {row[0] for row in session.execute("SELECT id FROM queue_job").fetchall()}
    assert {key: there.get(key) for key in accepted} == accepted
    assert set(accepted.values()) <= jobs
    claims = [(line["job"], line["generation"]) for line in lines if line["op"] == "claimed"]
    assert claims
    assert len(set(claims)) == len(claims)


def test_a_cancelled_wait_for_the_standby_is_never_an_acknowledgment(pair: Pair, tmp_path: Path) -> None:
    process = load(pair, tmp_path)
    standby = pair.processes["standby"]
    try:
        until(lambda: sum(line["op"] == "accepted" for line in told(tmp_path)) > 50, 60)
        for pid in _tree(standby.pid):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        before = len(told(tmp_path))
        with pair.connect("primary") as session:
            for _ in range(20):
                session.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                )
                time.sleep(0.05)
        until(lambda: any(line["op"] == "unknown_outcome" for line in told(tmp_path)[before:]), 20)
        during = told(tmp_path)[before:]
        assert not [line for line in during if line["op"] == "accepted"]
    finally:
        for pid in _tree(standby.pid):
            os.kill(pid, signal.SIGCONT)
        (tmp_path / "stop").touch()
        process.wait(60)


def _tree(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]
