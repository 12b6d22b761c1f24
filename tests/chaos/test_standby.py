"""A primary and a synchronous standby on loopback, both of the embedded programs.

The primary is killed under load and the standby promoted: what was acknowledged must be there, and no generation is
given out twice. And who cancels a wait for the standby makes nobody believe that a job is safe.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobsplatform.embedded.account import Account
from jobsplatform.embedded.binaries import find_binaries
from tests.chaos.harness import Client, processes, until
from tests.chaos.rig import ROOT, Checkout, free_port

pytestmark = pytest.mark.slow

LOAD_SECONDS = 6.0
RECOVERY_SECONDS_MAX = 30
TRIALS = 20

_CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 150
shared_buffers = '64MB'
wal_keep_size = '256MB'
"""


class Node:
    """One server of the pair, in a folder that its account owns."""

    def __init__(self, folder: Path, name: str) -> None:
        self.binaries = find_binaries()
        self.name, self.cluster, self.log = name, folder / name, folder / f"{name}.log"
        self.port = free_port()
        self.cluster.mkdir(mode=0o700)
        self.account = Account.choose(self.binaries, self.cluster)
        self.process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """An empty cluster that trusts whoever comes over loopback."""
        self._run("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")

    def copy(self, primary: Node) -> None:
        """Become a standby of this primary, under this node's own name."""
        where = f"host=127.0.0.1 port={primary.port} user=postgres application_name={self.name}"
        self._run("pg_basebackup", "-d", where, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        done = self.account.run([str(self.binaries / program), "-D", str(self.cluster), *arguments])
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        with (self.cluster / "postgresql.conf").open("a") as file:
            file.write(_CONFIGURATION.format(port=self.port))  # the last word counts
        command = [str(self.binaries / "postgres"), "-D", str(self.cluster)]
        self.process = self.account.start(command, self.log)
        until(self._answers, 30, lambda: self.log.read_text()[-2_000:])

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            self.ask("SELECT 1")
            return True
        return False

    def ask(self, statement: str, *parameters: object, database: str = "postgres") -> list[tuple[Any, ...]]:
        url = f"host=127.0.0.1 port={self.port} user=postgres dbname={database} connect_timeout=3"
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """As by a power cut: the postmaster and every process of its own, at once."""
        if self.process is None:
            return
        pids = [self.process.pid, *(one.pid for one in processes() if one.parent == self.process.pid)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None


class Pair:
    """A primary whose commits wait for the standby, and the platform on them."""

    def __init__(self, folder: Path) -> None:
        self.primary, self.standby = Node(folder, "primary"), Node(folder, "standby")
        self.primary.make()
        self.primary.start()
        self.standby.copy(self.primary)
        self.standby.start()
        for statement in (
            "ALTER SYSTEM SET synchronous_standby_names = 'standby'",
            "SELECT pg_reload_conf()",
            "CREATE ROLE jobs LOGIN IN ROLE pg_monitor",
            "CREATE DATABASE jobs OWNER jobs",
        ):
            self.primary.ask(statement)
        until(self.is_synchronous, 30, "no synchronous standby")
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        self.platform = Checkout(
            ROOT,
            {
                "JOBSPLATFORM_DATA": str(folder / "data"),
                "JOBSPLATFORM_DATABASE_URL": f"postgresql://jobs@{hosts}/jobs?target_session_attrs=read-write",
                "JOBSPLATFORM_SECRET_KEY": "k" * 60,
                "JOBSPLATFORM_TOKEN_PEPPER": "p" * 40,
                "JOBS_WEB_PROCESSES": "1",
            },
            folder / "platform.log",
        )
        self.platform.run("migrateall")
        self.platform.run("createtenant", "acme")
        made = self.platform.run("createtoken", "--tenant", "acme", "--scopes", "produce,work,read", "--json")
        self.token = str(json.loads(made)["token"])
        self.port = self.platform.web()

    def is_synchronous(self) -> bool:
        found = self.primary.ask("SELECT sync_state, state FROM pg_stat_replication")
        return found == [("sync", "streaming")]

    def end(self) -> None:
        self.platform.end()
        self.standby.kill()
        self.primary.kill()


@pytest.fixture
def pair() -> Iterator[Pair]:
    folder = Path(tempfile.mkdtemp(prefix="jobsplatform-standby-"))
    folder.chmod(0o755)  # the servers' account must come in
    made: list[Pair] = []
    try:
        made.append(Pair(folder))
        yield made[0]
    finally:
        for one in made:
            one.end()
        _end_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _end_all(folder: Path) -> None:
    """Servers of a pair that was never whole."""
    for path in folder.glob("*/postmaster.pid"):
        with suppress(OSError, ValueError, IndexError):
            os.kill(int(path.read_text().split()[0]), signal.SIGKILL)


class Users:
    """Producers that repeat each key until it is acknowledged, and workers that claim and complete."""

    def __init__(self, pair: Pair, producers: int = 3, workers: int = 3) -> None:
        self.pair, self.over = pair, threading.Event()
        self.acknowledged: dict[str, tuple[float, str]] = {}  # key → when, which job
        self.given: list[tuple[str, int]] = []  # job and generation of every lease that was answered
        self.completed: set[str] = set()
        self.statuses: set[int] = set()
        self.threads = [threading.Thread(target=self._produce, args=(n,)) for n in range(producers)]
        self.threads += [threading.Thread(target=self._work) for _ in range(workers)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a call hangs"

    def _produce(self, name: int) -> None:
        with closing(Client(self.pair.port, self.pair.token, timeout_s=20)) as client:
            self._produce_by(client, name)

    def _produce_by(self, client: Client, name: int) -> None:
        number = 0
        while not self.over.is_set():
            key = f"{name}-{number}"
            answer = client.call("POST", "/v1/jobs", {"kind": "safe", "payload": key, "request_key": key})
            self.statuses.add(answer.status)
            if answer.status in (200, 201):
                self.acknowledged[key] = (time.monotonic(), answer.body["job_id"])
                number += 1
            else:
                time.sleep(0.05)

    def _work(self) -> None:
        with closing(Client(self.pair.port, self.pair.token, timeout_s=20)) as client:
            self._work_by(client)

    def _work_by(self, client: Client) -> None:
        while not self.over.is_set():
            answer = client.call("POST", "/v1/leases/claim", {"queue": "default", "limit": 5, "lease_s": 5})
            self.statuses.add(answer.status)
            leases = answer.body["leases"] if answer.status == 200 else []
            self.given += [(one["job_id"], one["generation"]) for one in leases]
            for one in leases:
                held = {"generation": one["generation"], "lease_token": one["lease_token"]}
                ended = client.call("POST", f"/v1/jobs/{one['job_id']}/complete", held)
                self.statuses.add(ended.status)
                if ended.status == 200:
                    self.completed.add(one["job_id"])
            if not leases:
                time.sleep(0.02)


def test_no_acknowledged_job_is_lost_with_the_primary_and_no_generation_is_given_twice(pair: Pair) -> None:
    for command in ("rundispatcher", "runreaper"):
        pair.platform.manage(command)
    users = Users(pair)
    time.sleep(LOAD_SECONDS)
    assert pair.is_synchronous()
    pair.primary.kill()
    killed_at = time.monotonic()
    pair.standby.ask("SELECT pg_promote()")
    recovered_s = until(
        lambda: any(at > killed_at + 1 for at, _ in list(users.acknowledged.values())),
        RECOVERY_SECONDS_MAX,
        "nothing was acknowledged after the promotion",
    )
    time.sleep(LOAD_SECONDS + 5)  # leases of the dead primary's time lapse, and their jobs are given anew
    users.stop()
    kept = {
        key: f"{job >> 48}-{job & (1 << 48) - 1}"
        for key, job in pair.standby.ask("SELECT request_key, id FROM queue_job", database="jobs")
    }
    finished = {
        f"{job >> 48}-{job & (1 << 48) - 1}"
        for (job,) in pair.standby.ask("SELECT job_id FROM queue_result", database="jobs")
    }
    acknowledged = {key: job for key, (_, job) in users.acknowledged.items()}
    lost = {key for key, job in acknowledged.items() if kept.get(key) != job}
    print(
        f"{len(acknowledged)} acknowledged, {len(lost)} lost; {len(users.given)} leases, "
        f"{len(users.given) - len(set(users.given))} given twice; acknowledged again {recovered_s:.1f} s after the kill"
    )
    assert lost == set()
    assert len(users.given) == len(set(users.given))
    assert users.completed <= finished
    assert users.statuses <= {0, 200, 201, 409, 410, 503}, "never a 500"
    assert len(users.completed) > 20
    pair.platform.run("fsck")


def test_a_wait_for_the_standby_that_is_cancelled_is_never_told_as_done(pair: Pair) -> None:
    """The server then says success, with a warning: the job is here, and would be lost with the primary."""
    with closing(Client(pair.port, pair.token)) as client:
        _cancel_waits(pair, client)


def _cancel_waits(pair: Pair, client: Client) -> None:
    body = {"kind": "safe", "payload": None}
    for number in range(TRIALS):
        assert client.call("POST", "/v1/jobs", body | {"request_key": f"before-{number}"}).status == 201
    answer = client.call("POST", "/v1/leases/claim", {"queue": "default", "limit": TRIALS})
    held = answer.body["leases"]
    assert len(held) == TRIALS
    assert pair.standby.process is not None
    pids = [one.pid for one in processes() if one.parent == pair.standby.process.pid]
    for pid in pids:  # it is there, and confirms nothing
        os.kill(pid, signal.SIGSTOP)
    try:
        for number in range(TRIALS):
            key = body | {"request_key": f"during-{number}"}
            lease = held[number]
            end = {"generation": lease["generation"], "lease_token": lease["lease_token"]}
            for path, call in (("/v1/jobs", key), (f"/v1/jobs/{lease['job_id']}/complete", end)):
                answer = _cancelled(pair, path, call)
                assert answer.status == 503, answer
                assert answer.body["outcome"] == "unknown", answer
        answer = _cancelled(pair, "/v1/leases/claim", {"queue": "default", "claim_key": "c-1"})
        assert answer.status == 503, answer
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    until(pair.is_synchronous, 60, "the standby does not come back")
    for number in range(TRIALS):
        again = client.call("POST", "/v1/jobs", body | {"request_key": f"during-{number}"})
        assert (again.status, again.body["replayed"]) == (200, True)
        lease = held[number]
        end = {"generation": lease["generation"], "lease_token": lease["lease_token"]}
        again = client.call("POST", f"/v1/jobs/{lease['job_id']}/complete", end)
        assert (again.status, again.body["replayed"]) == (200, True)
    found = client.call("POST", "/v1/leases/claim", {"queue": "default", "claim_key": "c-1"})
    assert [one["generation"] for one in found.body["leases"]] == [1]


def _cancelled(pair: Pair, path: str, body: dict[str, Any]) -> Any:
    """The answer to a call whose wait for the standby is cancelled."""
    answers: list[Any] = []

    def call() -> None:
        with closing(Client(pair.port, pair.token, timeout_s=40)) as client:
            answers.append(client.call("POST", path, body))

    thread = threading.Thread(target=call)
    thread.start()
    cancelled = 0
    ends = time.monotonic() + 30
    while thread.is_alive() and time.monotonic() < ends:
        rows = pair.primary.ask(
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
        cancelled += rows[0][0]
        thread.join(0.1)
    thread.join(15)
    assert cancelled, ("it never waited", answers)
    return answers[0]
