"""`manage.py runworker` as processes on a real database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.jobqueue.worker.conftest import Platform


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_jobs_run_and_their_results_are_kept(platform: Platform) -> None:
    jobs = platform.enqueue("test.note", 20)
    platform.worker("--once").wait(60)
    assert platform.states(jobs) == ["succeeded"] * 20
    assert platform.result(jobs[0]) == {"attempt": 1, "checkpoint": None}
    assert sorted(platform.lines("start")) == sorted((platform.job_name(job), 1, 1) for job in jobs)


def test_kinds_without_a_handler_are_left_alone(platform: Platform) -> None:
    [other] = platform.enqueue("test.unknown")
    [known] = platform.enqueue("test.noop")
    assert platform.worker("--once").wait(60) == 0
    assert platform.states([other, known]) == ["ready", "succeeded"]


def test_wrong_options_are_one_line_and_exit_1(platform: Platform) -> None:
    for arguments, word in [
        (["--concurrency", "0"], "--concurrency"),
        (["--kinds", "test.unknown"], "test.unknown"),
        (["--queues", "nowhere"], "nowhere"),
        (["--reserve", "P9:1"], "--reserve"),
        (["--reserve", "P0:8"], "--reserve"),
    ]:
        command = platform.command("runworker", *arguments)
        ended = subprocess.run(command, env=platform.environment, capture_output=True, text=True, timeout=20)
        assert ended.returncode == 1
        assert word in ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1


def test_a_handler_that_holds_the_interpreter_keeps_its_lease(platform: Platform) -> None:
    """Also S9 in short: beats at a third of the lease, one execution, generation 1."""
    [job] = platform.enqueue("test.hog", s=4)
    platform.worker("--once", "--lease", "2")
    platform.until(lambda: platform.lines("start"))
    expiries = set()

    def done() -> bool:
        view = platform.job(job)
        expiries.add(view.expires_at)
        return bool(view.state == "succeeded")

    platform.until(done)
    assert platform.lines("start") == [(platform.job_name(job), 1, 1)]
    assert 5 <= len(expiries - {None}) <= 8  # at the start, when marked, then every 0.67 s


def test_a_job_that_kills_its_process_is_stopped_and_disturbs_no_other(platform: Platform) -> None:
    """S23 with five crashes: exactly five starts, then a dead letter; all others succeed.

    A worker that has claimed it and is too busy to start it within the lease of a second loses it uncharged:
    generations may be more.
    """
    platform.set(lease_s=3, max_crashes=5, max_attempts=10)
    [bad] = platform.enqueue("test.crash")
    others = platform.enqueue("test.note", 60)
    platform.worker("--concurrency", "4")
    platform.until(lambda: platform.job(bad).state == "dead", 60)
    platform.until(lambda: set(platform.states(others)) == {"succeeded"}, 60)
    view = platform.job(bad)
    assert (view.dead_reason, view.crashes, view.attempts_used) == ("poison", 5, 5)
    starts = [line for line in platform.lines("start") if line[0] == platform.job_name(bad)]
    assert [attempt for _, _, attempt in starts] == [1, 2, 3, 4, 5]
    charged = [end.generation for end in platform.attempts(bad) if end.error_class == "worker_crash"]
    assert charged == [generation for _, generation, _ in starts]


def test_jobs_beside_a_killer_are_charged_once_at_most(platform: Platform) -> None:
    """They run for so long that each crash could take them along; after the first they never share a process."""
    platform.set(lease_s=5, max_crashes=3, max_attempts=10)
    long = platform.enqueue("test.sleep", 3, s=2)
    [bad] = platform.enqueue("test.crash")
    platform.worker("--concurrency", "4")
    platform.until(lambda: platform.job(bad).state == "dead", 60)
    platform.until(lambda: set(platform.states(long)) == {"succeeded"}, 60)
    assert platform.job(bad).crashes == 3
    assert {platform.job(job).crashes for job in long} <= {0, 1}


def test_a_crash_is_charged_to_the_running_job_and_not_to_buffered_ones(platform: Platform) -> None:
    """One thread, so that all others are buffered or unclaimed when it dies."""
    platform.set(lease_s=2)
    jobs = platform.enqueue("test.note", 300)
    [bad] = platform.enqueue("test.crash-once")
    jobs += platform.enqueue("test.note", 300)
    platform.worker("--concurrency", "1")
    platform.until(lambda: platform.job(bad).state == "succeeded", 60)
    platform.until(lambda: set(platform.states(jobs)) == {"succeeded"}, 60)
    assert (platform.job(bad).attempts_used, platform.job(bad).crashes) == (2, 1)
    assert {(platform.job(job).attempts_used, platform.job(job).crashes) for job in jobs} == {(1, 0)}


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
    assert platform.until(lambda: worker.poll() is not None, 3) < 2
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


def test_killing_all_processes_loses_no_job(platform: Platform) -> None:
    """S27 in short: every running job is tried a second time, none dies."""
    platform.set(lease_s=5)
    jobs = platform.enqueue("test.sleep", 24, s=1)
    platform.worker("--concurrency", "12", "--processes", "2")
    platform.until(lambda: len(platform.lines("start")) == 24)
    time.sleep(0.2)
    platform.stop()
    platform.worker("--suspects", "4")
    platform.until(lambda: set(platform.states(jobs)) == {"succeeded"}, 120)
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


def test_a_result_that_cannot_be_stored_ends_the_job_at_once(platform: Platform) -> None:
    """S69: the job leaves `running` within 5 s."""
    [nul] = platform.enqueue("test.nul")
    [error] = platform.enqueue("test.nul-error")
    platform.worker("--once")
    platform.until(lambda: platform.job(nul).state != "ready")
    platform.until(lambda: platform.states([nul, error]) == ["dead", "scheduled"], 5)
    assert platform.job(nul).dead_reason == "invalid"
    assert platform.job(nul).error_message.startswith("invalid_result")
    assert platform.job(error).error_message == "bad\ufffdtext"


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


# Suspects


def test_a_payload_that_kills_is_quarantined_corrected_and_redriven(platform: Platform) -> None:
    """Exactly `max_crashes` starts; then only a correction lets the same job come back, and it succeeds."""
    from dlq import corrections, redrive
    from jobqueue.types import FLEET
    from jobsplatform.errors import CorrectionRequired

    platform.set(lease_s=5, max_crashes=3, max_attempts=10)
    [bad] = platform.enqueue("test.crash-on-bad", bad=True)
    before = platform.job(bad)
    platform.worker()
    platform.until(lambda: platform.job(bad).state == "dead", 120)
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
    platform.worker().wait(60)
    platform.until(lambda: platform.job(bad).crashes == 1)
    long = platform.enqueue("test.sleep", 2, s=2)
    platform.worker("--concurrency", "4")
    platform.until(lambda: platform.job(bad).state == "succeeded", 60)
    platform.until(lambda: set(platform.states(long)) == {"succeeded"}, 60)
    pid_of = platform.numbers("pid")
    assert pid_of[platform.job_name(bad)] not in {pid_of[platform.job_name(job)] for job in long}
    assert {platform.job(job).crashes for job in long} == {0}


def test_a_suspect_that_eats_memory_is_refused_it_and_its_worker_lives(platform: Platform) -> None:
    platform.set(lease_s=1, max_attempts=2, backoff_base_s=0.1)
    [bad] = platform.enqueue("test.crash-then-eat", mb=4_096)
    platform.worker("--suspect-memory", "1024")
    platform.until(lambda: platform.job(bad).state == "dead", 90)
    view = platform.job(bad)
    assert (view.dead_reason, view.error_class, view.crashes) == ("exhausted", "transient", 1)
    assert view.error_message.startswith("MemoryError")


def test_a_suspect_that_hangs_is_ended_at_its_own_bound(platform: Platform) -> None:
    platform.set(lease_s=1, max_crashes=2, max_run_s=3_600)
    [bad] = platform.enqueue("test.crash-then-hang")
    platform.worker("--suspect-run", "1")
    platform.until(lambda: platform.job(bad).state == "dead", 90)
    assert (platform.job(bad).dead_reason, platform.job(bad).crashes) == ("poison", 2)


# What acts outside


def test_a_worker_that_dies_after_calling_out_leaves_a_job_that_is_resolved_and_not_repeated(
    platform: Platform,
) -> None:
    """S159: the effect is made under the operation id, and the next attempt finds it."""
    platform.set(lease_s=1)
    [job] = platform.enqueue("test.pay-then-die")
    platform.worker()
    platform.until(lambda: platform.job(job).state == "succeeded", 60)
    assert platform.lines("paid") == [(platform.job_name(job), 1, 1)]
    assert platform.result(job) == {"found": True, "earlier": [1]}


def test_a_job_that_is_given_back_while_it_acts_is_resolved_too(platform: Platform) -> None:
    """A drain that cannot wait charges nothing, but what ran may have acted."""
    [job] = platform.enqueue("test.pay-slowly")
    worker = platform.worker("--grace", "0")
    platform.until(lambda: platform.lines("paid"))
    worker.send_signal(signal.SIGTERM)
    worker.wait(60)
    platform.until(lambda: platform.job(job).state == "ready")
    assert platform.job(job).attempts_used == 0
    platform.worker()
    platform.until(lambda: platform.job(job).state == "succeeded", 60)
    assert platform.lines("paid") == [(platform.job_name(job), 1, 1)]


def test_runworker_registers_what_its_handlers_declare(platform: Platform) -> None:
    from jobqueue.models import JobKind

    platform.worker()
    platform.until(lambda: JobKind.objects.filter(name="test.pay-then-die").exists(), 60)
    assert JobKind.objects.get(name="test.pay-then-die").declared == {"external_effects": True}
    assert not JobKind.objects.filter(name="test.noop").exists()


def test_the_probe_is_green_while_the_worker_polls(platform: Platform) -> None:
    import socket
    import urllib.request

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    platform.worker("--probe-port", str(port))

    def green() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    platform.until(green)


@pytest.mark.slow
@pytest.mark.parametrize("debug", ["false", "true"])
def test_100_000_jobs_leave_the_worker_as_small_as_before(platform: Platform, debug: str) -> None:
    """S137: less than 30 MB of growth after warm-up."""
    platform.worker("--kinds", "test.noop,test.memory", JOBSPLATFORM_DEBUG=debug)

    def settled(total: int) -> int:
        for _ in range(total // 1_000):
            platform.enqueue("test.noop", 1_000)
        [probe] = platform.enqueue("test.memory")
        platform.until(lambda: platform.job(probe).state == "succeeded", 120)
        return int(platform.result(probe))

    before_kb = settled(10_000)
    assert settled(100_000) - before_kb < 30_000
