"""`runworker` and handlers whose time ends before they do."""

from __future__ import annotations

from pathlib import Path

from tests.jobqueue.worker.conftest import Platform, children


def test_a_running_job_sees_that_it_is_cancelled(platform: Platform) -> None:
    from jobqueue import leases

    [job] = platform.enqueue("test.cancel")
    platform.worker("--lease", "1")
    platform.until(lambda: platform.lines("start"))
    assert leases.cancel(job, actor="test").cancel_requested
    platform.until(lambda: platform.job(job).state == "succeeded", 3)


def test_a_handler_is_told_when_its_longest_run_ends(platform: Platform) -> None:
    platform.set(lease_s=1, max_run_s=3, max_attempts=1)
    [job] = platform.enqueue("test.until-lost")
    platform.worker()
    platform.until(lambda: platform.lines("start"))
    platform.until(lambda: platform.lines("lost"), 20)
    platform.until(lambda: platform.job(job).state != "running", 20)
    assert len(platform.lines("start")) == 1


def test_a_handler_that_outruns_its_longest_run_is_ended_and_others_go_on(platform: Platform) -> None:
    """It listens to nobody: its process is ended, and the attempt was charged when its lease lapsed."""
    platform.set(lease_s=1, max_run_s=2, max_attempts=1)
    [job] = platform.enqueue("test.runaway")
    worker = platform.worker("--concurrency", "1")
    platform.until(lambda: platform.lines("start"))
    [executor] = children(worker.pid)
    platform.until(lambda: platform.job(job).state == "dead", 60)
    [after] = platform.enqueue("test.note")
    platform.until(lambda: platform.job(after).state == "succeeded", 60)
    platform.until(lambda: not Path(f"/proc/{executor}").exists(), 60)
    assert (platform.job(job).dead_reason, platform.job(job).crashes) == ("exhausted", 1)
