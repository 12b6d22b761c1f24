"""`runworker` and suspects: jobs whose worker died while it held them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.jobqueue.worker.conftest import Platform


def test_a_payload_that_kills_is_quarantined_corrected_and_redriven(platform: Platform) -> None:
    """Exactly `max_crashes` starts; then only a correction lets the same job come back, and it succeeds."""
    from dlq import corrections, redrive
    from jobqueue.types import FLEET
    from jobsplatform.errors import CorrectionRequired

    platform.set(max_crashes=3, max_attempts=10)
    [bad] = platform.enqueue("test.crash-on-bad", bad=True)
    before = platform.job(bad)
    platform.worker()
    platform.until(lambda: platform.job(bad).state == "dead", 120, lapse_orphans=True)
    assert platform.job(bad).dead_reason == "poison"
    assert [attempt for _, _, attempt in platform.lines("start")] == [1, 2, 3]
    with pytest.raises(CorrectionRequired):
        redrive.redrive(bad, redrive.NewRedrive(note="again", actor="test"), scope=FLEET)
    mended = json.dumps({"log": str(platform.log), "bad": False})
    corrections.correct(
        bad, corrections.NewCorrection(note="not bad", actor="test", payload=mended), scope=FLEET
    )
    done = redrive.redrive(bad, redrive.NewRedrive(note="mended", actor="test"), scope=FLEET)
    assert done.redrive_generation == 1
    platform.until(lambda: platform.job(bad).state == "succeeded", 60)
    after = platform.job(bad)
    assert (after.job_id, after.request_key) == (before.job_id, before.request_key)
    assert (after.attempts_used, after.crashes) == (1, 0)


def test_another_runworker_knows_a_suspect_and_runs_it_alone(platform: Platform) -> None:
    """The worker that it killed is gone, and with it whatever that one knew."""
    platform.set(lease_s=1)
    [bad] = platform.enqueue("test.kill-all")
    worker = platform.worker()
    platform.until(lambda: platform.started() == 1, 60)
    Path(f"{platform.log}.go").touch()
    worker.wait(60)
    platform.until(lambda: platform.job(bad).crashes == 1)
    long = platform.enqueue("test.sleep", 2, s=2)
    platform.worker("--concurrency", "4")
    platform.until(lambda: platform.job(bad).state == "succeeded", 60)
    platform.until(lambda: set(platform.states(long)) == {"succeeded"}, 60)
    pid_of = platform.numbers("pid")
    assert pid_of[platform.job_name(bad)] not in {pid_of[platform.job_name(job)] for job in long}
    assert {platform.job(job).crashes for job in long} == {0}


def test_a_suspect_that_eats_memory_is_refused_it_and_its_worker_lives(platform: Platform) -> None:
    platform.set(max_attempts=2, backoff_base_s=0.1)
    [bad] = platform.enqueue("test.crash-then-eat", mb=4_096)
    platform.worker("--suspect-memory", "1024")
    platform.until(lambda: platform.job(bad).state == "dead", 90, lapse_orphans=True)
    view = platform.job(bad)
    assert (view.dead_reason, view.error_class, view.crashes) == ("exhausted", "transient", 1)
    assert view.error_message.startswith("MemoryError")


def test_a_suspect_that_hangs_is_ended_at_its_own_bound(platform: Platform) -> None:
    platform.set(max_crashes=2, max_run_s=3_600)
    [bad] = platform.enqueue("test.crash-then-hang")
    platform.worker("--suspect-run", "1")
    platform.until(lambda: platform.job(bad).state == "dead", 90, lapse_orphans=True)
    assert (platform.job(bad).dead_reason, platform.job(bad).crashes) == ("poison", 2)
