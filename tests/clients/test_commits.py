"""The connection to the database is cut at the commit of an enqueue or of a completion: the client settles it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from jobsplatform_client import JobContext, NewJob, Retry, Worker
from tests.chaos.harness import Platform, Web, until
from tests.chaos.proxy import AFTER, BEFORE, CommitCutter
from tests.clients.conftest import Place

pytestmark = pytest.mark.chaos

# The platform asks for a second's patience after each cut (Retry-After): many callers wait side by side.
CALLERS = 20
TRIALS, SLOW_TRIALS = 40, 500
SHORT = Retry(
    give_up_after_s=120, first_s=0.02, cap_s=0.1
)  # every call fails at first: the gate is nearly always closed

Counter = Callable[[str, str], int]
JOBS = "SELECT count(*) FROM queue_job WHERE kind = %s"
RESULTS = "SELECT count(*) FROM queue_result r JOIN queue_job j ON j.id = r.job_id WHERE j.kind = %s"
SUCCEEDED = """
    SELECT count(*) FROM queue_attempt a JOIN queue_job j ON j.id = a.job_id
    WHERE a.outcome = 'succeeded' AND j.kind = %s
"""


@dataclass
class Edge:
    """A web whose database connections go through the cutter."""

    web: Web
    cutter: CommitCutter
    _turns: Iterator[str] = field(default_factory=lambda: itertools.cycle([BEFORE, AFTER]))
    _armed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web.port}"

    def arm(self, words: bytes) -> None:
        """Cut the next of these commits, before it or after it in turn; once what was armed before has been cut."""
        with self._lock:
            until(lambda: self.cutter.cuts == self._armed, 60)
            self._armed += 1
            self.cutter.arm(words, next(self._turns))


@pytest.fixture(scope="module")
def edge(platform: Platform) -> Iterator[Edge]:
    cutter = CommitCutter(("127.0.0.1", int(platform.server.address()["PORT"])))
    host, rest = platform.server.url().rsplit("@", 1)
    url = f"{host}@127.0.0.1:{cutter.port}/{rest.split('/', 1)[1]}?sslmode=disable&gssencmode=disable"
    with Web(platform, url, variables={"JOBS_PREPARED_STATEMENTS": "true"}) as web:
        yield Edge(web, cutter)
    cutter.close()


def enqueue(edge: Edge, place: Place, count: Counter, trials: int) -> None:
    cuts = edge.cutter.cuts

    def one(number: int) -> str:
        edge.arm(b"-- enqueue:")
        return client.enqueue(place.kind, number, delay_s=86_400).job_id

    with place.client(url=edge.url, retry=SHORT) as client, ThreadPoolExecutor(CALLERS) as callers:
        made = list(callers.map(one, range(trials)))
    assert edge.cutter.cuts - cuts == trials
    assert len(set(made)) == trials
    assert count(JOBS, place.kind) == trials


def complete(edge: Edge, place: Place, count: Counter, trials: int) -> None:
    cuts = edge.cutter.cuts
    runs: list[str] = []
    with place.client() as straight:
        made = straight.enqueue_batch(NewJob(place.kind, number) for number in range(trials))
    with place.client(url=edge.url, retry=SHORT) as client:
        worker = Worker(client, concurrency=CALLERS, lease_s=300, wait_s=1, grace_s=60)

        @worker.handler(place.kind)
        def note(job: JobContext) -> object:
            runs.append(job.job_id)
            edge.arm(b"-- complete:")
            return {"generation": job.generation}

        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        until(lambda: count(RESULTS, place.kind) == trials, 60 + trials)
        worker.drain()
        thread.join(90)
        assert not thread.is_alive()
    assert edge.cutter.cuts - cuts == trials
    assert sorted(runs) == sorted(one.job_id for one in made)
    assert count(SUCCEEDED, place.kind) == count(RESULTS, place.kind) == trials


def test_enqueues_whose_commits_are_cut_are_each_made_once(edge: Edge, place: Place, count: Counter) -> None:
    enqueue(edge, place, count, TRIALS)


def test_completions_whose_commits_are_cut_are_each_made_once(
    edge: Edge, place: Place, count: Counter
) -> None:
    complete(edge, place, count, TRIALS)


@pytest.mark.slow
def test_five_hundred_of_each_whose_commits_are_cut(
    edge: Edge, platform: Platform, place: Place, count: Counter
) -> None:
    enqueue(edge, place, count, SLOW_TRIALS)
    other = Place(place.url, place.token, f"{place.kind}-completions")
    complete(edge, other, count, SLOW_TRIALS)
    assert platform.fsck() == []
