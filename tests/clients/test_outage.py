"""The platform goes away while producers and a worker are busy: nothing is lost, and few call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobsplatform_client import JobContext, Retry, Worker
from tests.chaos.harness import until
from tests.clients.conftest import Place
from tests.clients.cutter import ReplyCutter

PRODUCERS, CONCURRENCY, LEASE_S = 8, 8, 15
Counter = Callable[[str, str], int]

JOBS = "SELECT count(*) FROM queue_job WHERE kind = %s"
SUCCEEDED = """
    SELECT count(*) FROM queue_attempt a JOIN queue_job j ON j.id = a.job_id
    WHERE a.outcome = 'succeeded' AND j.kind = %s
"""


def calls_at_most(seconds: float, retry: Retry) -> int:
    """While it is away: what was under way, then the rounds of two gates, and the heartbeats of one lease."""
    rounds, at, wait_s = 0, 0.0, retry.first_s
    while at < seconds:
        at, rounds, wait_s = at + min(wait_s, retry.cap_s) / 2, rounds + 1, wait_s * 2
    return PRODUCERS + CONCURRENCY + 2 + 2 * rounds + 30


def outage(place: Place, cutter: ReplyCutter, count: Counter, seconds: float, retry: Retry) -> None:
    """Away for so long in the middle of steady producing and working."""
    is_over = threading.Event()

    def produce(number: int) -> list[str]:
        made = []
        while not is_over.is_set():
            made.append(producer.enqueue(place.kind, number).job_id)
            time.sleep(0.1)
        return made

    with (
        place.client(url=cutter.url, retry=retry) as producer,
        place.client(url=cutter.url, retry=retry) as consumer,
        ThreadPoolExecutor(PRODUCERS) as producers,
    ):
        worker = Worker(consumer, concurrency=CONCURRENCY, lease_s=LEASE_S, wait_s=1, grace_s=30)

        @worker.handler(place.kind)
        def work(job: JobContext) -> object:
            time.sleep(0.3)
            return job.generation

        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        futures = [producers.submit(produce, number) for number in range(PRODUCERS)]
        until(lambda: count(SUCCEEDED, place.kind) >= 10, 60)
        cutter.is_away = True
        time.sleep(seconds)
        refused = cutter.refused
        cutter.is_away = False
        before = count(JOBS, place.kind)
        until(lambda: count(JOBS, place.kind) > before, 60)
        is_over.set()
        made = [job_id for future in futures for job_id in future.result(120)]
        until(lambda: count(SUCCEEDED, place.kind) == len(made), 120 + len(made))
        worker.drain()
        thread.join(90)
        assert not thread.is_alive()
    assert len(set(made)) == len(made) == count(JOBS, place.kind)
    assert 1 <= refused <= calls_at_most(seconds, retry)


def test_nothing_is_lost_over_a_short_outage_and_few_call(
    place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    outage(place, cutter, count, 3, Retry())


@pytest.mark.slow
def test_nothing_is_lost_over_thirty_seconds_and_few_call(
    place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    outage(place, cutter, count, 30, Retry())
