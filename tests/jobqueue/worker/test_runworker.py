"""`manage.py runworker` as processes on a real database: what it runs, its options, and what it says of itself."""

from __future__ import annotations

import pytest

from tests import commands_cast
from tests.jobqueue.worker.conftest import Platform


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


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--concurrency", "0"),
        ("--kinds", "test.unknown"),
        ("--queues", "nowhere"),
        ("--reserve", "P9:1"),
        ("--reserve", "P0:8"),
    ],
)
def test_a_wrong_option_is_one_line(option: str, value: str) -> None:
    line = commands_cast.refused("runworker", option, value, "--once")
    assert option in line or value in line


def test_a_shell_sees_one_line_and_exit_1(platform: Platform) -> None:
    ran = commands_cast.run_apart(platform.environment, "runworker", "--queues", "nowhere")
    assert ran.code == 1
    assert "nowhere" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


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
