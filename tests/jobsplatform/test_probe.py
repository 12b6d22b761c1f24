"""`--probe-port`: a process that does its part is well, whatever its database does."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from django.core.management.base import CommandError

from jobsplatform import loop
from jobsplatform.errors import Unavailable
from jobsplatform.loop import Pass, Stop, Turn
from jobsplatform.probe import Probe


@pytest.fixture
def silence() -> list[float]:
    """For how long the process has been silent, in seconds."""
    return [0.0]


@pytest.fixture
def probe(silence: list[float]) -> Iterator[Probe]:
    made = Probe(0, "last_turn_age_s", lambda: silence[0])
    made.start()
    yield made
    made.close()


def asked(probe: Probe, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{probe.port}{path}", timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize(("seconds", "status", "word"), [(0, 200, "ok"), (60, 200, "ok"), (61, 503, "deaf")])
def test_a_process_is_well_until_it_has_been_silent_for_a_minute(
    probe: Probe, silence: list[float], seconds: float, status: int, word: str
) -> None:
    silence[0] = seconds
    code, body = asked(probe, "/healthz?verbose")
    assert (code, json.loads(body)) == (status, {"status": word, "last_turn_age_s": seconds})


def test_the_counters_of_the_process_are_served_on_this_machine(probe: Probe) -> None:
    code, body = asked(probe, "/metrics")
    assert code == 200
    assert b"jobsplatform_events" in body


def test_there_is_nothing_else(probe: Probe) -> None:
    assert asked(probe, "/admin/")[0] == 404


def test_a_loop_whose_database_is_away_goes_on_turning() -> None:
    def away() -> int:
        raise Unavailable

    turn, stop = Turn(), Stop()
    turn.at = 0.0
    timer = threading.Timer(0.3, stop.request)
    timer.start()
    loop.run_loop([Pass("work", away, 0.05)], stop, turn)
    timer.join()
    assert turn.age_s() < 2


def test_a_pass_that_hangs_lets_the_turn_grow_old() -> None:
    turn, stop, hung = Turn(), Stop(), threading.Event()
    runner = threading.Thread(
        target=loop.run_loop, args=([Pass("work", lambda: hung.wait(5), 1)], stop, turn)
    )
    runner.start()
    threading.Event().wait(0.4)
    age_s = turn.age_s()
    stop.request()
    hung.set()
    runner.join()
    assert age_s >= 0.3


@pytest.mark.parametrize("port", [0, 70_000])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(CommandError, match="must be 1 to 65535"):
        loop.serve_probe(port, "127.0.0.1", "x", lambda: 0)


def test_a_port_that_is_taken_is_told(probe: Probe) -> None:
    with pytest.raises(CommandError, match="in use"):
        loop.serve_probe(probe.port, "127.0.0.1", "x", lambda: 0)
