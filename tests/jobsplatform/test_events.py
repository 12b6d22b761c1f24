"""Events reach every subscriber, and a broken one harms nobody."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from prometheus_client import REGISTRY

from jobsplatform import events


def sample(event: str, queue: str = "", outcome: str = "") -> float:
    labels = {"event": event, "queue": queue, "outcome": outcome}
    return REGISTRY.get_sample_value("jobsplatform_events_total", labels) or 0.0


def test_a_subscriber_gets_the_name_and_the_fields_until_it_leaves():
    seen: list[tuple[str, dict[str, Any]]] = []
    leave = events.subscribe(lambda name, fields: seen.append((name, fields)))
    events.emit("tried", count=2)
    leave()
    events.emit("tried", count=3)
    assert seen == [("tried", {"count": 2})]


def test_a_failing_subscriber_is_logged_and_the_others_still_hear(caplog: pytest.LogCaptureFixture):
    seen: list[str] = []

    def fail(name: str, fields: dict[str, Any]) -> None:
        raise RuntimeError("broken")

    leaves = [events.subscribe(fail), events.subscribe(lambda name, fields: seen.append(name))]
    events.emit("tried")
    for leave in leaves:
        leave()
    assert seen == ["tried"]
    assert "subscriber failed on tried" in caplog.text


def test_events_are_counted_by_their_count():
    before = sample("tried", queue="default")
    events.emit("tried", queue="default", count=7)
    assert sample("tried", queue="default") == before + 7


def test_an_event_with_several_outcomes_counts_each():
    before = sample("tried", outcome="ready"), sample("tried", outcome="dead")
    events.emit("tried", ready=3, dead=1)
    assert (sample("tried", outcome="ready"), sample("tried", outcome="dead")) == (
        before[0] + 3,
        before[1] + 1,
    )


@pytest.mark.parametrize(
    ("name", "level"),
    [("claimed", logging.DEBUG), ("created", logging.INFO), ("lease_lost", logging.WARNING)],
)
def test_the_level_of_a_log_line_follows_the_event(name: str, level: int, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG, logger="jobsplatform.events"):
        events.emit(name)
    assert {record.levelno for record in caplog.records} == {level}


def test_the_exposition_holds_the_counters():
    events.emit("tried")
    assert b'jobsplatform_events_total{event="tried"' in events.exposition()
