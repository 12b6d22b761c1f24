"""Long polls on the real web server: no thread each, and an end in good order (S139)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from jobqueue.ids import format_id
from jobsplatform.embedded import Server
from tenants import access
from tests import cast
from tests.cast import wait_until
from tests.pooler import transaction_pooler

ROOT = Path(__file__).resolve().parents[2]
THREADS = 4


class Web:
    """One web process with few threads."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.clients: list[Client] = []
        _, self.token = access.create_token(
            tenant=cast.acme(), scopes=["produce", "work", "read"], actor="test"
        )
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(512)
            self.port = listener.getsockname()[1]
            command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py"]
            command += ["--bind", f"fd://{listener.fileno()}"]
            settings = {
                "JOBS_WEB_PROCESSES": "1",
                "JOBS_WEB_THREADS": str(THREADS),
                "JOBS_POOL_CONNECTIONS": "8",
                "JOBS_NOTIFICATIONS": "true",
            }
            self.process = subprocess.Popen(
                command, cwd=ROOT, pass_fds=[listener.fileno()], env=environment | settings
            )
        wait_until(self.is_ready)

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz") == 200
        except OSError:
            return False

    def get(self, path: str) -> int:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            return connection.getresponse().status
        finally:
            connection.close()

    def text(self, path: str) -> str:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def enqueue(self, **members: Any) -> str:
        status, body = self.client().call("/v1/jobs", {"kind": "a", "payload": 1} | members)
        assert status == 201, body
        return str(body["job_id"])

    def client(self) -> Client:
        self.clients.append(Client(self))
        return self.clients[-1]

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


class Client:
    """One connection, over which calls are sent and answers read apart."""

    def __init__(self, web: Web) -> None:
        self.headers = {"Authorization": f"Bearer {web.token}", "Content-Type": "application/json"}
        self.connection = HTTPConnection("127.0.0.1", web.port, timeout=60)
        self.answer_headers: dict[str, str] = {}

    def send(self, path: str, body: Any) -> Client:
        self.connection.request("POST", path, json.dumps(body), self.headers)
        return self

    def read(self) -> tuple[int, Any]:
        response = self.connection.getresponse()
        self.answer_headers = dict(response.getheaders())
        return response.status, json.loads(response.read())

    def call(self, path: str, body: Any) -> tuple[int, Any]:
        return self.send(path, body).read()

    def park(self, **members: Any) -> Client:
        return self.send("/v1/leases/claim", {"wait_s": 20, **members})

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def web(process_environment: dict[str, str]) -> Iterator[Web]:
    started = Web(process_environment)
    yield started
    started.stop()


def noted_claims() -> int:
    """Whether a claim has been made for those who wait: then they are parked or were served."""
    return int(cast.read("SELECT count(*) FROM queue_claimclass")[0][0])


def test_parked_polls_hold_no_thread(web: Web) -> None:
    for _ in range(10 * THREADS):
        web.client().park()
    assert web.get("/v1/jobs") == 200
    first = web.enqueue()
    wait_until(lambda: cast.read("SELECT count(*) FROM queue_lease") == [(1,)])
    assert [format_id(job_id) for (job_id,) in cast.read("SELECT job_id FROM queue_lease")] == [first]


def test_many_jobs_come_to_as_many_parked_polls_each_once(web: Web) -> None:
    parked = [web.client().park(worker=f"w{n}") for n in range(40)]
    sent = {web.enqueue() for _ in range(40)}
    got = [lease["job_id"] for client in parked for lease in client.read()[1]["leases"]]
    assert len(got) == 40
    assert set(got) == sent


def test_a_parked_answer_has_every_header_and_its_connection_goes_on(web: Web) -> None:
    client = web.client()
    client.headers["X-Request-ID"] = "mine"
    client.park()
    wait_until(noted_claims)
    web.enqueue()
    status, body = client.read()
    assert (status, len(body["leases"])) == (200, 1)
    assert client.answer_headers["X-Request-ID"] == "mine"
    assert client.answer_headers["Content-Type"] == "application/json"
    assert client.answer_headers["Cache-Control"] == "no-store"
    assert client.call("/v1/leases/claim", {})[1]["leases"] == []


def test_who_went_away_gets_no_lease_and_the_next_gets_the_job(web: Web) -> None:
    gone = web.client().park()
    wait_until(noted_claims)
    gone.close()
    time.sleep(0.5)
    job_id = web.enqueue()
    assert [one["job_id"] for one in web.client().park().read()[1]["leases"]] == [job_id]
    ((generation,),) = cast.read("SELECT generation FROM queue_lease")
    assert generation == 1


class _any:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_at_sigterm_every_request_gets_its_whole_answer_and_polls_end_empty(web: Web) -> None:
    """S139: two hundred long polls and a hundred enqueues under way."""
    polls = [web.client().park(capabilities=["nothing"]) for _ in range(200)]
    wait_until(noted_claims)
    statuses: list[int] = []

    def produce() -> None:
        client = web.client()
        for _ in range(10):
            try:
                statuses.append(client.call("/v1/jobs", {"kind": "a", "payload": 1})[0])
            except OSError:
                return  # a connection that the server had not taken up yet, or had said to close
            if client.answer_headers.get("Connection") == "close":
                return

    producers = [threading.Thread(target=produce) for _ in range(10)]
    for thread in producers:
        thread.start()
    time.sleep(0.2)
    os.kill(web.process.pid, signal.SIGTERM)
    assert [client.read() for client in polls] == [(200, {"leases": [], "server_time": _any()})] * 200
    endings = [client.answer_headers["Connection"] for client in polls]
    assert "close" in endings, "they waited to their own end"  # who was not parked yet may be told otherwise
    for thread in producers:
        thread.join(30)
    assert web.process.wait(30) == 0
    accepted = int(cast.read("SELECT count(*) FROM queue_job")[0][0])
    assert set(statuses) <= {201}
    assert accepted == len(statuses)
    assert cast.read("SELECT count(*) FROM queue_lease") == [(0,)]


def test_the_drain_is_longer_than_any_poll() -> None:
    """S139: the configuration itself refuses to cut a poll off."""
    environment = os.environ | {"JOBS_DRAIN_SECONDS": "19"}
    command = [sys.executable, "-m", "gunicorn", "--check-config", "-c", "gunicorn.conf.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "JOBS_DRAIN_SECONDS" in done.stderr


@pytest.mark.needs("pgbouncer")
def test_through_a_transaction_pooler_work_is_found_by_looking(
    process_environment: dict[str, str],
) -> None:
    """S120: the same calls, no session state; LISTEN would mean nothing, and polling takes its place."""
    url = process_environment["JOBSPLATFORM_DATABASE_URL"]
    with transaction_pooler(url) as port:
        environment = {
            name: value.replace(f":{urlsplit(url).port}/", f":{port}/")
            for name, value in process_environment.items()
        }
        assert environment != process_environment
        web = Web(environment)
        try:
            pooled = 'jobsplatform_listener_up{database="shard0"'
            parked = web.client().park()
            wait_until(noted_claims)
            sent = [web.enqueue(priority=0)]  # known to this process at once
            answers = [parked.read()[1]["leases"]]
            parked.park()
            time.sleep(0.5)
            sent.append(format_id(cast.enqueue(kind="a", now=None)))  # known to nobody but who looks
            answers.append(parked.read()[1]["leases"])
            assert [[lease["job_id"]] for (lease,) in answers] == [[job_id] for job_id in sent]
            for (lease,) in answers:
                end = {"generation": lease["generation"], "lease_token": lease["lease_token"]}
                assert web.client().call(f"/v1/jobs/{lease['job_id']}/complete", end)[0] == 200
            assert pooled not in web.text("/metrics") or f"{pooled}}} 0.0" in web.text("/metrics")
            listening = (
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE query LIKE 'LISTEN%%' AND datname = current_database()"  # others listen to theirs
            )
            assert cast.read(listening) == [(0,)]
        finally:
            web.stop()


@pytest.mark.slow
@pytest.mark.needs("pgbouncer")
def test_the_api_s_and_the_worker_s_tests_pass_through_a_transaction_pooler(tmp_path: Path) -> None:
    """S120."""
    server = Server(tmp_path / "data")
    server.ensure_running()
    try:
        url = server.url()
        with transaction_pooler(url) as port:
            pooled = url.replace(f":{urlsplit(url).port}/", f":{port}/")
            names = ("JOBSPLATFORM_TEST_RUN", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER")
            environment = {name: value for name, value in os.environ.items() if name not in names}
            environment["JOBSPLATFORM_TEST_DATABASE_URL"] = pooled
            files = ["test_api_working", "test_api_producing", "test_api_messages"]
            parts = ("runworker", "crashes", "signals", "ends_in_time", "suspects", "acting_outside")
            files += [f"worker/test_{part}" for part in parts]
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
            command += [f"tests/jobqueue/{name}.py" for name in files]
            command += [
                "-k",
                "not kill",
            ]  # how a crash is judged has nothing to do with poolers, and takes minutes
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1_800
            )
    finally:
        server.stop()
    assert done.returncode == 0, done.stdout[-3_000:]
