"""The worker while its database is slow, away, or says nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.jobqueue.worker.conftest import Platform
from tests.jobqueue.worker.proxy import Proxy


@pytest.fixture
def proxy(platform: Platform) -> Iterator[Proxy]:
    """Workers reach both databases through it; the test itself does not."""
    names = ("JOBSPLATFORM_DATABASE_URL", "JOBSPLATFORM_SHARDS")
    urls = " ".join(platform.environment[name] for name in names)
    [(host, port)] = set(re.findall(r"@([^:/]+):(\d+)/", urls))
    proxy = Proxy((host, int(port)))
    for name in names:
        platform.environment[name] = re.sub(
            r"@[^:/]+:\d+/", f"@127.0.0.1:{proxy.port}/", platform.environment[name]
        )
    yield proxy
    platform.stop()
    proxy.close()


def test_a_slow_database_is_no_crash(platform: Platform, proxy: Proxy) -> None:
    """S21 in short: half a second on every reply for 5 s, leases of 6 s."""
    platform.set(lease_s=6)
    jobs = platform.enqueue("test.sleep", 60, s=0.2)
    platform.worker("--concurrency", "8")
    platform.until(lambda: len(platform.lines("end")) >= 8)
    proxy.delay_s = 0.5
    time.sleep(5)
    proxy.delay_s = 0
    platform.until(lambda: set(platform.states(jobs)) == {"succeeded"}, 60)
    assert {(platform.job(job).attempts_used, platform.job(job).crashes) for job in jobs} == {(1, 0)}


def test_a_database_that_goes_away_and_comes_back_costs_no_attempt(platform: Platform, proxy: Proxy) -> None:
    """S122 in short: connections reset and refused for 2 s; the worker is back within a few seconds."""
    platform.set(lease_s=20)
    jobs = platform.enqueue("test.sleep", 80, s=0.1)
    worker = platform.worker("--concurrency", "8")
    platform.until(lambda: len(platform.lines("end")) >= 8)
    proxy.is_absent = True
    proxy.cut()
    time.sleep(2)
    done = len(platform.lines("end"))
    proxy.is_absent = False
    back_at = time.monotonic()
    platform.until(lambda: len(platform.lines("end")) > done + 8, 10)
    assert time.monotonic() - back_at < 8
    platform.until(lambda: set(platform.states(jobs)) == {"succeeded"}, 60)
    assert worker.poll() is None
    assert all(platform.job(job).crashes == 0 for job in jobs)
    assert all(len(platform.attempts(job)) == platform.job(job).generation for job in jobs)


def test_a_worker_waits_for_a_database_that_is_not_there_yet(platform: Platform, proxy: Proxy) -> None:
    proxy.is_absent = True
    platform.worker()
    [job] = platform.enqueue("test.note")
    time.sleep(3)
    proxy.is_absent = False
    platform.until(lambda: platform.job(job).state == "succeeded", 20)


@pytest.mark.slow
def test_a_worker_whose_connection_went_silent_is_replaced(platform: Platform, proxy: Proxy) -> None:
    """S29: half-open sockets; the deaf executor is replaced within a minute."""
    worker = platform.worker()
    [job] = platform.enqueue("test.note")
    platform.until(lambda: platform.job(job).state == "succeeded")
    proxy.silence()
    [job] = platform.enqueue("test.note")
    platform.until(lambda: platform.job(job).state == "succeeded", 65)
    assert worker.poll() is None
