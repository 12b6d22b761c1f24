"""`runworker` and its signals: what is finished, and what goes back."""

from __future__ import annotations

import os
import signal
import time

from tests.jobqueue.worker.conftest import Platform


def test_sigterm_lets_short_jobs_finish_and_releases_the_rest(platform: Platform) -> None:
    """S25 with a grace of 3 s: no claim after the signal, exit 0 within grace + 2 s."""
    short = platform.enqueue("test.sleep", 4, s=2)
    long = platform.enqueue("test.sleep", 4, s=60, checkpoint={"page": 7})
    worker = platform.worker("--grace", "3", "--concurrency", "8")
    platform.until(lambda: len(platform.lines("start")) == 8)
    time.sleep(0.5)
    worker.send_signal(signal.SIGTERM)
    late = platform.enqueue("test.note", 5)
    assert platform.until(lambda: worker.poll() is not None, 50) > 2
    assert worker.returncode == 0
    assert platform.states(short) == ["succeeded"] * 4
    assert platform.states(long) == ["ready"] * 4
    assert platform.states(late) == ["ready"] * 5
    assert {platform.job(job).attempts_used for job in long} == {0}
    assert {attempt.outcome for job in long for attempt in platform.attempts(job)} == {"released"}


def test_a_released_job_keeps_its_checkpoint(platform: Platform) -> None:
    [job] = platform.enqueue("test.sleep", s=60, checkpoint={"page": 7})
    worker = platform.worker("--grace", "0")
    platform.until(lambda: platform.lines("start"))
    time.sleep(0.3)
    worker.send_signal(signal.SIGTERM)
    worker.wait(5)
    from jobqueue import claiming
    from jobqueue.claiming import ClaimRequest

    [lease] = claiming.claim(ClaimRequest(queues=(platform.queue,)))
    assert (lease.job_id, lease.checkpoint, lease.attempt, lease.generation) == (job, '{"page":7}', 1, 2)


def test_a_second_signal_releases_at_once(platform: Platform) -> None:
    jobs = platform.enqueue("test.sleep", 3, s=60)
    worker = platform.worker("--grace", "60")
    platform.until(lambda: len(platform.lines("start")) == 3)
    worker.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert worker.poll() is None
    worker.send_signal(signal.SIGINT)
    assert platform.until(lambda: worker.poll() is not None, 30) < 15  # of a grace of a minute
    assert (worker.returncode, platform.states(jobs)) == (0, ["ready"] * 3)


def test_a_signal_to_the_whole_process_group_counts_once(platform: Platform) -> None:
    """Ctrl-C in a terminal: executors get it as well, and it must not cut the grace period short."""
    [job] = platform.enqueue("test.sleep", s=1.5)
    worker = platform.worker(group=True)
    platform.until(lambda: platform.lines("start"))
    os.killpg(worker.pid, signal.SIGINT)
    assert platform.until(lambda: worker.poll() is not None, 5) > 1
    assert (worker.returncode, platform.states([job])) == (0, ["succeeded"])


def test_a_job_that_holds_the_interpreter_is_released_in_time_too(platform: Platform) -> None:
    [job] = platform.enqueue("test.hog", s=60)
    worker = platform.worker("--grace", "1")
    platform.until(lambda: platform.lines("start"))
    worker.send_signal(signal.SIGTERM)
    platform.until(lambda: worker.poll() is not None, 30)
    assert (worker.returncode, platform.states([job])) == (0, ["ready"])
