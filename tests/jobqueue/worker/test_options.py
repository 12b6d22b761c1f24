"""Options of `runworker`, and the probe."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from jobqueue.worker.options import BadOption, WorkerOptions, default_name
from jobqueue.worker.reserve import Slots
from jobsplatform.probe import Probe


@pytest.mark.parametrize(
    "bad",
    [
        {"concurrency": 0},
        {"concurrency": 257},
        {"processes": 0},
        {"lease_s": 0},
        {"lease_s": 43_201},
        {"max_priority": -1},
        {"reserve": Slots("P0", 0)},
        {"reserve": Slots("P0", 8)},
        {"grace_s": -1},
        {"probe_port": 65_536},
        {"name": "x" * 100},
        {"queues": ("a", "")},
        {"kinds": ("",)},
    ],
)
def test_options_out_of_bounds_are_refused_by_name(bad: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="--"):
        WorkerOptions(**bad)


def test_options_survive_the_way_to_an_executor() -> None:
    options = WorkerOptions(queues=("a", "b"), kinds=None, lease_s=5, once=True, name=default_name())
    assert WorkerOptions.from_json(options.to_json()) == options
    options = WorkerOptions(reserve=Slots("P0", 2))
    assert WorkerOptions.from_json(options.to_json()) == options


def test_threads_kept_for_a_band_are_written_band_and_number() -> None:
    assert Slots.parse("P0:2") == Slots("P0", 2)
    for text in ("P0", "P0:", ":2", "P0:-1", "P0:two", ""):
        with pytest.raises(ValueError):
            Slots.parse(text)


@pytest.fixture
def age() -> list[float]:
    return [0.0]


@pytest.fixture
def probe(age: list[float]) -> Iterator[Probe]:
    probe = Probe(0, "last_poll_age_s", lambda: age[0])
    probe.start()
    yield probe
    probe.close()


def ask(probe: Probe, path: str = "/healthz") -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{probe.port}{path}") as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_probe_turns_red_when_polls_stop(probe: Probe, age: list[float]) -> None:
    assert ask(probe) == (200, {"status": "ok", "last_poll_age_s": 0.0})
    age[0] = 60.5
    assert ask(probe) == (503, {"status": "deaf", "last_poll_age_s": 60.5})
    assert ask(probe, "/other")[0] == 404
