"""Kill -9 of every process in any order: nothing accepted is lost, nothing ends twice, clients see 503 at worst."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.harness import READY_S, Platform, is_alive, kill, until
from tests.chaos.load import NOTE_KIND, Load

pytestmark = pytest.mark.chaos

AGAIN_S = 0.1
ROLES = ("web", "web-worker", "dispatcher", "reaper", "keeper", "executor")


def run_kills(platform: Platform, load: Load, seed: int, *, jobs: int, kills: int, pause_s: float) -> None:
    """`jobs` jobs run in a wide worker while the platform's processes and that worker's are killed."""
    chance = random.Random(seed)
    wide = _start_wide_worker(platform, load, jobs)
    enqueue_notes(load, jobs, seconds=3)
    until(lambda: _running(load) >= jobs, 20, lambda: f"{_running(load)} of {jobs} run")
    load.start()
    order = [*ROLES, "wide"] * (kills // (len(ROLES) + 1) + 1)
    chance.shuffle(order)
    for role in order[:kills]:
        if role == "wide":
            kill(wide.pid)
            wide.wait()
            wide = _start_wide_worker(platform, load, jobs)
        else:
            platform.kill_one(role, chance)
        time.sleep(chance.uniform(0, 2 * pause_s))
    load.drain(180)
    load.stop()
    wide.send_signal(signal.SIGTERM)
    wide.wait(20)
    checker.assert_sound(load)


def _start_wide_worker(platform: Platform, load: Load, jobs: int):
    """Those that it takes along when it dies run alone afterwards; they are many, but then they are short."""
    wide = ["--concurrency", str(jobs), "--suspects", "12"]
    return platform.start_helper("runworker", "--queues", load.name, *wide)


def enqueue_notes(load: Load, jobs: int, *, seconds: float) -> None:
    """Put in many jobs that run for a while when they are first tried, in one batch."""
    payload = {"log": str(load.notes), "s": seconds, "again_s": AGAIN_S}
    body = [
        {"kind": NOTE_KIND, "payload": payload, "queue": load.name, "request_key": f"first/{index}"}
        for index in range(jobs)
    ]
    answer = load.platform.call("POST", "/v1/jobs/batch", {"jobs": body}, load.token)
    assert answer.status == 200, answer
    for one, result in zip(body, answer.body["results"], strict=True):
        load.history.add(
            "enqueue", answer._replace(status=result["status"], body=result), key=one["request_key"]
        )


def _running(load: Load) -> int:
    return len([line for line in load.notes.read_text().splitlines() if line.startswith("start")])


def test_processes_are_killed_in_any_order_with_many_jobs_running(
    platform: Platform, tmp_path: Path, seed: int
) -> None:
    """The next test does it for minutes."""
    load = Load(platform, "kills", seed, tmp_path)
    run_kills(platform, load, seed, jobs=60, kills=7, pause_s=0.4)
    assert {"200", "201"} <= set(load.history.statuses())
    assert platform.wait_ready() < READY_S


@pytest.mark.slow
def test_processes_are_killed_for_minutes_with_200_jobs_running(
    platform: Platform, tmp_path: Path, seed: int
) -> None:
    load = Load(platform, "kills-long", seed, tmp_path)
    run_kills(platform, load, seed, jobs=200, kills=120, pause_s=0.8)


@pytest.mark.slow
def test_a_limit_on_running_jobs_holds_while_processes_die(
    platform: Platform, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    load = Load(platform, "limited", seed, tmp_path, note_s=0.1)
    platform.manage("setquota", "limited", "max_running=10")
    enqueue_notes(load, 40, seconds=0.1)
    load.start(producers=1, workers=3)
    for role in chance.sample(["executor", "keeper", "web-worker", "reaper"], 3):
        platform.kill_one(role, chance)
        time.sleep(0.5)
    load.drain(60)
    load.stop()
    checker.assert_sound(load)
    assert 2 <= checker.most_running(checker.read(platform, load.name)) <= 10


@pytest.mark.parametrize("with_postgres", [pytest.param(False, marks=pytest.mark.slow), True])
def test_all_is_killed_and_started_again(
    platform: Platform, tmp_path: Path, seed: int, with_postgres: bool
) -> None:
    load = Load(platform, f"all-{with_postgres}".lower(), seed, tmp_path)
    load.start()
    enqueue_notes(load, 30, seconds=1)
    until(lambda: len(load.history.of("enqueue")) > 60, 20)
    postmaster = platform.postmaster()
    group = platform.group()
    platform.kill()
    if with_postgres:
        kill(postmaster)
    for one in group:
        kill(one.pid)
    assert platform.start().wait_ready() < READY_S
    assert (platform.postmaster() == postmaster) is not with_postgres, (
        "a living server is adopted, a dead one made anew"
    )
    since = time.monotonic()
    until(lambda: load.history.longest_gap_s("complete", since) < READY_S, READY_S)
    load.drain(60)
    load.stop()
    checker.assert_sound(load)


def test_children_end_with_up_and_postgres_stays(platform: Platform) -> None:
    postmaster, children = (
        platform.postmaster(),
        [one.pid for one in platform.group() if one.pid != platform.pid],
    )
    assert len(children) >= 7, platform.group()
    platform.kill()
    until(lambda: not platform.group(), 10, platform.group)
    assert is_alive(postmaster)
    assert not [pid for pid in children if is_alive(pid)]
    assert platform.start().wait_ready() < READY_S
    assert platform.postmaster() == postmaster
