"""The upkeep loop: pace, failures, stops and parents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError

from jobsplatform import events, loop
from jobsplatform.errors import Unavailable
from jobsplatform.loop import Pass, Stop

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The events of this test."""
    seen: list[tuple[str, dict[str, Any]]] = []
    unsubscribe = events.subscribe(lambda name, fields: seen.append((name, fields)))
    yield seen
    unsubscribe()


def run(passes: list[Pass], seconds: float) -> None:
    """Run the loop for that long."""
    stop = Stop()
    timer = threading.Timer(seconds, stop.request)
    timer.start()
    loop.run_loop(passes, stop)
    timer.join()


def counting(results: Callable[[], Any] = lambda: 0) -> tuple[list[float], Callable[[], Any]]:
    """A pass that notes when it ran."""
    times: list[float] = []

    def act() -> Any:
        times.append(time.monotonic())
        return results()

    return times, act


def test_each_pass_runs_at_its_own_pace():
    fast, run_fast = counting()
    slow, run_slow = counting()
    run([Pass("fast", run_fast, 0.05), Pass("slow", run_slow, 10)], 0.6)
    assert 5 <= len(fast) <= 14
    assert len(slow) == 1


def test_a_full_batch_is_followed_at_once():
    left = [10] * 20

    times, act = counting(lambda: left.pop() if left else 0)
    run([Pass("work", act, 5, full=10)], 0.5)
    assert len(times) == 21


def test_a_failing_pass_is_told_and_does_not_stop_the_others(told: list[tuple[str, dict[str, Any]]]):
    def fail() -> None:
        raise RuntimeError("broken")

    times, act = counting()
    run([Pass("bad", fail, 0.05), Pass("good", act, 0.05)], 0.5)
    assert len(times) >= 4
    assert [(name, fields["name_of_pass"]) for name, fields in told] == [("pass_failed", "bad")], "told once"


@pytest.mark.parametrize("error", [OperationalError("gone"), Unavailable()])
def test_a_lost_database_is_waited_for_and_its_return_is_told(error: Exception, told: list[Any]):
    fails = [error, error]

    def act() -> int:
        if fails:
            raise fails.pop()
        return 0

    run([Pass("work", act, 0.05)], 0.8)
    assert [name for name, _ in told] == ["database_lost", "pass_recovered"]


def test_the_wait_for_a_lost_database_stays_under_its_bound():
    duty = Pass("work", lambda: 0, 0.1)
    waits = [duty.back_off() for _ in range(50)]
    assert max(waits) <= settings.JOBS_RECONNECT_SECONDS
    assert min(waits[10:]) >= settings.JOBS_RECONNECT_SECONDS / 2


def test_a_paced_pass_does_no_more_a_second_than_its_rate_while_more_is_waiting():
    times, act = counting(lambda: 10)
    run([Pass("work", act, 5, full=10, rate_per_s=100)], 1.05)
    assert 8 <= len(times) <= 11


def test_a_paced_pass_makes_up_for_what_its_batch_took():
    def slow() -> int:
        time.sleep(0.04)
        return 10

    times, act = counting(slow)
    run([Pass("work", act, 5, full=10, rate_per_s=100)], 1.05)
    assert 8 <= len(times) <= 11, "the time of the batch counts towards its pause"


def test_a_paced_pass_rests_for_as_long_as_its_batch_took():
    def slow() -> int:
        time.sleep(0.1)
        return 10

    times, act = counting(slow)
    run([Pass("work", act, 5, full=10, rate_per_s=10_000)], 1.05)
    assert 4 <= len(times) <= 6


def test_a_paced_pass_that_has_caught_up_is_as_quick_as_before():
    left = [10, 10, 3, 0, 0, 0, 0, 0, 0, 0]
    times, act = counting(lambda: left.pop(0) if left else 0)
    run([Pass("work", act, 0.05, full=10, rate_per_s=1_000)], 0.4)
    assert len(times) >= 5


def test_other_passes_run_between_the_batches_of_a_paced_one():
    times, act = counting()
    run([Pass("backlog", lambda: 10, 5, full=10, rate_per_s=100), Pass("urgent", act, 0.05)], 1)
    assert len(times) >= 10


@pytest.mark.parametrize(("rate", "batch"), [(5_000, 1_000), (100_000, 1_000), (100, 20), (2, 1)])
def test_a_batch_is_a_fifth_of_a_second_s_work(rate: int, batch: int):
    assert loop.batch_of(rate, most=1_000) == batch


def test_a_stop_ends_a_long_sleep_at_once():
    stop = Stop()
    threading.Timer(0.05, stop.request).start()
    began = time.monotonic()
    loop.run_loop([Pass("rare", lambda: 0, 60)], stop)
    assert time.monotonic() - began < 1


def test_once_runs_every_pass_to_the_end_of_its_work():
    left = [5, 5, 3]
    times, act = counting(lambda: left.pop(0))
    other, act_other = counting()
    assert loop.run_once([Pass("work", act, 1, full=5), Pass("other", act_other, 1)])
    assert (len(times), len(other)) == (3, 1)


def test_once_tells_a_failure_by_its_result():
    def fail() -> None:
        raise RuntimeError("broken")

    times, act = counting()
    assert not loop.run_once([Pass("bad", fail, 1), Pass("good", act, 1)])
    assert len(times) == 1


@pytest.mark.parametrize(
    ("result", "count"),
    [(None, 0), (3, 3), (Counter(ready=2, dead=1), 3), ((1, 2), 3), ([], 0)],
)
def test_a_result_of_any_shape_has_a_count(result: Any, count: int):
    assert loop.count_of(result) == count


PROGRAM = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
import time
from jobsplatform import loop
loop.die_with_parent()
print("ready", flush=True)
while not loop.parent_is_gone():
    time.sleep(0.05)
'''], env={**os.environ, "JOBSPLATFORM_PARENT_PID": str(os.getpid())}, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_ends_when_its_parent_is_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    end = time.monotonic() + 10
    while is_alive(child):
        assert time.monotonic() < end
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_upkeep_command_ends_with_0_on_a_signal(
    number: signal.Signals, process_environment: dict[str, str]
):
    command = [sys.executable, str(ROOT / "manage.py"), "rundispatcher"]
    with subprocess.Popen(command, env=process_environment, stderr=subprocess.PIPE, text=True) as process:
        wait_for_handler(process.pid)
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def wait_for_handler(pid: int) -> None:
    """Until the process catches SIGTERM."""
    end = time.monotonic() + 30
    while True:
        status = (Path("/proc") / str(pid) / "status").read_text()
        caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
        if caught & 1 << (signal.SIGTERM - 1):
            return
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("command", ["rundispatcher", "runreaper"])
def test_an_upkeep_command_runs_once_for_cron(command: str, process_environment: dict[str, str]):
    arguments = [sys.executable, str(ROOT / "manage.py"), command, "--once"]
    done = subprocess.run(arguments, env=process_environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_supervisor_a_process_has_no_parent_to_die_with(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(loop.PARENT_VARIABLE, raising=False)
    loop.die_with_parent()
    assert not loop.parent_is_gone()
    assert loop.PARENT_VARIABLE not in os.environ
