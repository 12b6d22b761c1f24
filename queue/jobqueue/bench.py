"""Measures what this machine does in one run: the verbs that workers use, `runworker`, and HTTP on loopback.

Everything runs in a database of its own beside the platform's, with fsync on, and is dropped afterwards. Figures of
different runs do not compare: the machine drifts more than most changes weigh.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db import connections
from django.db.models import Max, Min
from psycopg.sql import SQL, Identifier

from jobqueue import claiming, leases, policies
from jobqueue.enqueue import Accepted, NewJob, enqueue
from jobqueue.models import Attempt
from jobqueue.policies import QueuePolicy
from jobsplatform import database
from tenants import access, registry

KIND: Final = "bench.noop"
QUEUE: Final = "bench"
TENANT: Final = "bench"
BATCH: Final = 100
PAYLOAD: Final = json.dumps({"pad": "x" * 1_010})  # 1 KiB of text
HTTP_CLIENTS: Final = 8
START_SECONDS_MAX: Final = 30.0
Post = Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured rate."""

    name: str
    jobs: int
    seconds: float

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds


def measure(jobs: int) -> Iterator[Figure]:
    """All figures, each over about `jobs` jobs (single HTTP calls over a tenth of it)."""
    tenant = registry.create_tenant(TENANT, actor="bench")
    queue = policies.create_queue(QUEUE, actor="bench")
    _enqueue(tenant.pk, queue, BATCH)  # plans, lanes and connections are there before the clock runs
    _drain(queue)
    yield _timed("enqueue, batches of 100", jobs, lambda: _enqueue(tenant.pk, queue, jobs))
    yield _timed("claim + complete, batches of 100", jobs, lambda: _drain(queue))
    _enqueue(tenant.pk, queue, jobs)
    yield _worker(jobs)
    _, token = access.create_token(tenant=tenant, scopes=["produce", "work", "read"], actor="bench")
    with _web() as port:
        yield from _over_http(port, token, jobs)


def _timed(name: str, jobs: int, action: Callable[[], object]) -> Figure:
    start = time.perf_counter()
    action()
    return Figure(name, jobs, time.perf_counter() - start)


# By the functions that workers use


def _enqueue(tenant_id: int, queue: QueuePolicy, jobs: int) -> None:
    batch = [
        NewJob(tenant_id=tenant_id, queue=queue, kind=KIND, priority=queue.default_priority, payload=PAYLOAD)
    ] * BATCH
    for _ in range(jobs // BATCH):
        if not all(isinstance(outcome, Accepted) for outcome in enqueue(batch)):
            raise RuntimeError("A job was refused.")


def _drain(queue: QueuePolicy) -> None:
    request = claiming.ClaimRequest(queues=(queue,), kinds=(KIND,), limit=BATCH, worker="bench")
    while held := claiming.claim(request):
        answers = leases.complete([leases.Complete(one.job_id, one.generation, one.token) for one in held])
        if not all(isinstance(answer, leases.Completed) for answer in answers):
            raise RuntimeError("A completion was refused.")


# By a worker


def _worker(jobs: int) -> Figure:
    """From the first claim to the last completion, by the database's clock."""
    alias = next(iter(database.aliases().values()))
    before = Attempt.objects.using(alias).count()
    manage = Path(settings.BASE_DIR) / "manage.py"
    command = [sys.executable, str(manage), "runworker", "--once", "--queues", QUEUE, "--kinds", KIND]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"JOBSPLATFORM_LOG_LEVEL": "WARNING"}
    )
    done = Attempt.objects.using(alias).exclude(worker="bench")
    if done.count() != jobs or Attempt.objects.using(alias).count() - before != jobs:
        raise RuntimeError("The worker did not do every job exactly once.")
    span = done.aggregate(first=Min("claimed_at"), last=Max("ended_at"))
    return Figure("runworker, no-op handler", jobs, (span["last"] - span["first"]).total_seconds())


# Over HTTP


@contextmanager
def _web() -> Iterator[int]:
    """The platform's web server on a free port of loopback."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        port, descriptor = listener.getsockname()[1], listener.fileno()
        command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "--bind", f"fd://{descriptor}"]
        child = subprocess.Popen(command, cwd=settings.BASE_DIR, pass_fds=[descriptor], env=os.environ)
        try:
            _wait_until_ready(port)
            yield port
        finally:
            child.terminate()
            child.wait(START_SECONDS_MAX)


def _wait_until_ready(port: int) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS_MAX)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise RuntimeError("The web server did not become ready.")


def _over_http(port: int, token: str, jobs: int) -> Iterator[Figure]:
    job = {"kind": KIND, "queue": QUEUE, "payload": json.loads(PAYLOAD)}
    singles = jobs // 10
    yield _parallel("HTTP enqueue, one a call", port, token, singles, 1, lambda post: post("/v1/jobs", job))
    batch = {"jobs": [job] * BATCH}
    fill = jobs - singles
    yield _parallel(
        "HTTP enqueue, 100 a call", port, token, fill, BATCH, lambda post: post("/v1/jobs/batch", batch)
    )
    yield _parallel("HTTP claim 100 + settle 100", port, token, jobs, BATCH, _claim_and_settle)


def _claim_and_settle(post: Post) -> None:
    claimed = post("/v1/leases/claim", {"queue": QUEUE, "limit": BATCH})["leases"]
    ends = [{name: lease[name] for name in ("job_id", "generation", "lease_token")} for lease in claimed]
    answers = post("/v1/leases/settle", {"complete": ends})["results"]
    if any(answer["status"] != 200 for answer in answers):
        raise RuntimeError("A completion was refused.")


def _parallel(
    name: str, port: int, token: str, jobs: int, jobs_a_call: int, call: Callable[[Post], object]
) -> Figure:
    """Let eight clients, each with a connection of its own, make calls until all are made."""
    calls = itertools.count()
    failures: list[BaseException] = []

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            while next(calls) < jobs // jobs_a_call and not failures:
                call(lambda path, body: _post(connection, token, path, body))
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=client) for _ in range(HTTP_CLIENTS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Figure(name, jobs // jobs_a_call * jobs_a_call, time.perf_counter() - start)


def _post(connection: http.client.HTTPConnection, token: str, path: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    text = response.read()
    if response.status >= 300:
        raise RuntimeError(f"{path} answered {response.status}: {text[:300]!r}")
    return json.loads(text)


# A database of its own


@contextmanager
def scratch_database(name: str) -> Iterator[str]:
    """Make an empty database beside the platform's and give its URL; it is dropped at the end."""
    from urllib.parse import quote

    entry = connections["default"].settings_dict
    host = "127.0.0.1" if entry["HOST"].startswith("/") else entry["HOST"]
    user, password = quote(entry["USER"], safe=""), quote(entry["PASSWORD"], safe="")
    drop = SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name))
    with connections["default"].cursor() as cursor:
        cursor.execute(drop)
        cursor.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    try:
        yield f"postgresql://{user}:{password}@{host}:{entry['PORT'] or 5432}/{name}"
    finally:
        with connections["default"].cursor() as cursor:
            cursor.execute(drop)
