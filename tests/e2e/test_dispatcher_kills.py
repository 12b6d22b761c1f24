"""Dispatchers that are killed at any moment: no fire is made twice, and none is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from datetime import datetime, timedelta

import pytest

from tests import cast
from tests.commands_cast import MANAGE
from tests.schedules_cast import made, stand

pytestmark = pytest.mark.django_db(transaction=True)

DISPATCHERS = 3
FIRES = 60
APART_SECONDS = 0.25
WAIT_SECONDS = 180  # for a machine that has much else to do


def _clock() -> datetime:
    at: datetime = cast.read("SELECT clock_timestamp()")[0][0]
    return at


def _fires() -> list[tuple[int, int]]:
    """How many fires and how many jobs there are."""
    return cast.read("SELECT count(*), count(DISTINCT job_id) FROM queue_schedulefire")


@pytest.mark.slow
def test_killed_dispatchers_make_every_fire_once(process_environment: dict[str, str]) -> None:
    begin = _clock() + timedelta(seconds=3)
    instants = [begin + timedelta(seconds=number * APART_SECONDS) for number in range(FIRES)]
    for at in instants:
        stand(made(cron="0 0 1 1 *").id, at)
    running = [_start(process_environment) for _ in range(DISPATCHERS)]
    kills, limit = 0, time.monotonic() + WAIT_SECONDS
    try:
        while _clock() < instants[-1] or (_fires() != [(FIRES, FIRES)] and time.monotonic() < limit):
            time.sleep(2)
            if kills < 8:
                victim = running.pop(random.randrange(DISPATCHERS))
                victim.kill()
                victim.wait()
                running.append(_start(process_environment))
                kills += 1
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert kills >= 3
    assert _fires() == [(FIRES, FIRES)]
    assert cast.read("SELECT count(*) FROM queue_job") == [(FIRES,)]
    assert cast.read("SELECT count(*) FROM queue_schedulefire WHERE fired_at < nominal_at") == [(0,)]


def _start(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(MANAGE), "rundispatcher"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
