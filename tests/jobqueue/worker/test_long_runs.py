"""The real durations of what the tests of `runworker` show in short."""

from __future__ import annotations

import itertools
import signal
import time
from datetime import datetime

import pytest

from tests.jobqueue.worker.conftest import Platform

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_a_job_of_three_minutes_is_renewed_every_third_of_its_lease(platform: Platform) -> None:
    """S9: at least 8 renewals, 20 s ± 10 % apart, one execution, generation 1."""
    [job] = platform.enqueue("test.sleep", s=180)
    platform.worker("--once", "--lease", "60")
    expiries: list[datetime] = []

    def done() -> bool:
        view = platform.job(job)
        if view.expires_at and view.expires_at not in expiries:
            expiries.append(view.expires_at)
        return bool(view.state == "succeeded")

    platform.until(done, 240)
    gaps = [(b - a).total_seconds() for a, b in itertools.pairwise(expiries)]
    beats = [gap for gap in gaps if gap > 5]  # the first renewal marks the start
    assert len(beats) >= 8
    assert all(18 <= gap <= 22 for gap in beats), gaps
    assert platform.lines("start") == [(platform.job_name(job), 1, 1)]


def test_a_grace_of_ten_seconds_lets_short_jobs_finish_and_releases_the_rest(platform: Platform) -> None:
    """S25: 4 jobs of 3 s, 4 of 60 s; exit 0 within 12 s of the signal, nothing claimed after it, no lease left."""
    short = platform.enqueue("test.sleep", 4, s=3)
    long = platform.enqueue("test.sleep", 4, s=60, checkpoint={"page": 7})
    worker = platform.worker("--grace", "10", "--concurrency", "8")
    platform.until(lambda: len(platform.lines("start")) == 8)
    time.sleep(0.5)
    worker.send_signal(signal.SIGTERM)
    late = platform.enqueue("test.note", 5)
    assert platform.until(lambda: worker.poll() is not None, 12.5) < 12.5
    assert worker.returncode == 0
    assert platform.states(short) == ["succeeded"] * 4
    assert platform.states(long + late) == ["ready"] * 9
    assert {platform.job(job).attempts_used for job in long} == {0}
