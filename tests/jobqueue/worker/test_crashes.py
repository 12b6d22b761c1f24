"""Processes of `runworker` that die: who is charged, who goes on, and what is left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.jobqueue.worker.conftest import Platform, children


def test_a_job_that_kills_its_process_is_stopped_and_disturbs_no_other(platform: Platform) -> None:
    """S23 with five crashes: exactly five starts, then a dead letter; all others succeed."""
    platform.set(max_crashes=5, max_attempts=10)
    [bad] = platform.enqueue("test.crash")
    others = platform.enqueue("test.note", 60)
    platform.worker("--concurrency", "4")
    platform.until(lambda: platform.job(bad).state == "dead", 120, lapse_orphans=True)
    platform.until(lambda: set(platform.states(others)) == {"succeeded"}, 60, lapse_orphans=True)
    view = platform.job(bad)
    assert (view.dead_reason, view.crashes, view.attempts_used) == ("poison", 5, 5)
    starts = [line for line in platform.lines("start") if line[0] == platform.job_name(bad)]
    assert [attempt for _, _, attempt in starts] == [1, 2, 3, 4, 5]
    charged = [end.generation for end in platform.attempts(bad) if end.error_class == "worker_crash"]
    assert charged == [generation for _, generation, _ in starts]


def test_jobs_beside_a_killer_are_charged_once_at_most(platform: Platform) -> None:
    """They run for so long that each crash could take them along; after the first they never share a process."""
    platform.set(max_crashes=3, max_attempts=10)
    long = platform.enqueue("test.sleep", 3, s=2)
    [bad] = platform.enqueue("test.crash")
    platform.worker("--concurrency", "4")
    platform.until(lambda: platform.job(bad).state == "dead", 120, lapse_orphans=True)
    platform.until(lambda: set(platform.states(long)) == {"succeeded"}, 60, lapse_orphans=True)
    assert platform.job(bad).crashes == 3
    assert {platform.job(job).crashes for job in long} <= {0, 1}


def test_a_crash_is_charged_to_the_running_job_and_not_to_buffered_ones(platform: Platform) -> None:
    """One thread, so that all others are buffered or unclaimed when it dies."""
    jobs = platform.enqueue("test.note", 300)
    [bad] = platform.enqueue("test.crash-once")
    jobs += platform.enqueue("test.note", 300)
    platform.worker("--concurrency", "1")
    platform.until(lambda: platform.job(bad).state == "succeeded", 60, lapse_orphans=True)
    platform.until(lambda: set(platform.states(jobs)) == {"succeeded"}, 60)
    assert (platform.job(bad).attempts_used, platform.job(bad).crashes) == (2, 1)
    assert {(platform.job(job).attempts_used, platform.job(job).crashes) for job in jobs} == {(1, 0)}


def test_killing_all_processes_loses_no_job(platform: Platform) -> None:
    """S27 in short: every running job is tried a second time, none dies."""
    jobs = platform.enqueue("test.sleep", 8, s=600, again_s=0)
    platform.worker("--concurrency", "4", "--processes", "2")
    platform.until(lambda: platform.started() == 8, 60)
    platform.stop()
    platform.worker("--suspects", "3")
    platform.until(lambda: set(platform.states(jobs)) == {"succeeded"}, 120, lapse_orphans=True)
    assert {(platform.job(job).attempts_used, platform.job(job).crashes) for job in jobs} == {(2, 1)}


def test_executors_end_with_their_keeper(platform: Platform) -> None:
    platform.enqueue("test.hog", s=30)
    worker = platform.worker("--processes", "2")
    platform.until(lambda: platform.lines("start"))
    executors = children(worker.pid)
    assert len(executors) == 2
    worker.send_signal(signal.SIGKILL)
    worker.wait(5)
    platform.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in executors), 3)


def test_a_killed_executor_is_replaced_and_its_unstarted_jobs_go_on_at_once(platform: Platform) -> None:
    jobs = platform.enqueue("test.sleep", 2, s=3)
    worker = platform.worker("--concurrency", "2")
    platform.until(lambda: len(platform.lines("start")) == 2)
    [executor] = children(worker.pid)
    time.sleep(0.3)
    os.kill(executor, signal.SIGKILL)
    [after] = platform.enqueue("test.note")
    platform.until(lambda: platform.job(after).state == "succeeded", 60)
    assert children(worker.pid) != [executor]
    assert platform.states(jobs) == ["running"] * 2  # until their leases lapse
