"""The checker itself: each lie, in the history or in the database, is found and named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from tests.chaos import checker
from tests.chaos.checker import Attempt, Facts
from tests.chaos.harness import Answer, Platform
from tests.chaos.load import History, Load

START = datetime(2026, 1, 1, tzinfo=UTC)
JOB = "0-1"


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


class Told:
    """A load that has run: one job was lost once by its worker, then completed, and asked for twice."""

    name = "told"

    def __init__(self, folder: Path) -> None:
        self.history = History()
        self.notes = folder / "notes"
        self.notes.write_text(f"start {JOB} 1\nstart {JOB} 2\nend {JOB} 2\n")
        self.platform = cast(Platform, self)
        lease = {"job_id": JOB, "generation": 2, "lease_token": "t"}
        done = {"completed_at": "2026-01-01T00:00:07Z", "replayed": False}
        self.history.add("enqueue", Answer(503, {"code": "unknown_outcome"}), key="k")
        self.history.add("enqueue", Answer(201, {"job_id": JOB}), key="k")
        self.history.add("enqueue", Answer(200, {"job_id": JOB}), key="k")
        self.history.add("claim", Answer(200, {"leases": [lease]}))
        self.history.add("complete", Answer(200, done), job=JOB, generation=2)
        self.history.add("complete", Answer(200, done | {"replayed": True}), job=JOB, generation=2)
        first = Attempt(JOB, 1, 1, 0, at(0), at(3), "lease_lost", "ready")
        second = Attempt(JOB, 2, 2, 0, at(4), at(7), "succeeded", "succeeded")
        self.facts = Facts(
            keys={"k": [JOB]},
            places={JOB: ["queue_result"]},
            attempts={JOB: [first, second]},
            limits={JOB: 5},
            ledger={"started": 2, "succeeded": 1, "lease_lost": 1, "dead": 0},
            results={JOB: ("succeeded", 2, at(7))},
            letters={},
            deadlocks=0,
        )

    def fsck(self) -> list[dict[str, str]]:
        return []


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told(tmp_path)
    monkeypatch.setattr(checker, "read", lambda platform, tenant: copy.deepcopy(told.facts))
    return told


def found(told: Told) -> set[str]:
    return {line.split()[0] for line in checker.violations(cast(Load, told))}


def test_a_true_history_is_sound(told: Told) -> None:
    assert found(told) == set()


def _attempt(told: Told, index: int, **members: Any) -> None:
    several = told.facts.attempts[JOB]
    several[index] = replace(several[index], **members)


def _say(told: Told, op: str, status: int, body: object, **names: Any) -> None:
    told.history.add(op, Answer(status, body), **names)


LIES: dict[str, tuple[str, Callable[[Told], object]]] = {
    "an acknowledged job is gone": ("I1", lambda told: told.facts.keys.clear()),
    "a job stands in two places": ("I1", lambda told: told.facts.places[JOB].append("queue_readyjob")),
    "a job has not ended": ("I1", lambda told: told.facts.places.update({JOB: ["queue_lease"]})),
    "a job that nobody asked for": ("I1", lambda told: told.facts.keys.update({"other": ["0-9"]})),
    "a key with two jobs": ("I2", lambda told: told.facts.keys["k"].append("0-2")),
    "a key acknowledged as two jobs": (
        "I2",
        lambda told: _say(told, "enqueue", 200, {"job_id": "0-2"}, key="k"),
    ),
    "a key that was new twice": ("I2", lambda told: _say(told, "enqueue", 201, {"job_id": JOB}, key="k")),
    "two completions": ("I3", lambda told: _attempt(told, 0, outcome="succeeded")),
    "a completion told twice as new": (
        "I3",
        lambda told: _say(
            told,
            "complete",
            200,
            {"completed_at": "2026-01-01T00:00:07Z", "replayed": False},
            job=JOB,
            generation=2,
        ),
    ),
    "another completed_at": (
        "I3",
        lambda told: _say(
            told,
            "complete",
            200,
            {"completed_at": "2026-01-01T00:00:08Z", "replayed": True},
            job=JOB,
            generation=2,
        ),
    ),
    "a missing generation": ("I4", lambda told: told.facts.attempts[JOB].pop(0)),
    "a lease that the database forgot": (
        "I4",
        lambda told: _say(
            told, "claim", 200, {"leases": [{"job_id": JOB, "generation": 3, "lease_token": "t"}]}
        ),
    ),
    "a stale completion": (
        "I5",
        lambda told: _say(
            told,
            "complete",
            200,
            {"completed_at": "2026-01-01T00:00:03Z", "replayed": False},
            job=JOB,
            generation=1,
        ),
    ),
    "leases that overlap": ("I6", lambda told: _attempt(told, 1, claimed_at=at(2))),
    "one lease for two workers": (
        "I6",
        lambda told: _say(
            told, "claim", 200, {"leases": [{"job_id": JOB, "generation": 2, "lease_token": "t"}]}
        ),
    ),
    "a lease taken back too early": (
        "I6",
        lambda told: _say(told, "renew", 200, {"expires_at": "2026-01-01T00:00:05Z"}, job=JOB, generation=1),
    ),
    "a job that went on after its end": ("I7", lambda told: _attempt(told, 0, led_to="dead")),
    "an attempt too many": ("I8", lambda told: told.facts.limits.update({JOB: 1})),
    "a failure that was not charged": ("I8", lambda told: _attempt(told, 1, attempt=4)),
    "a wrong counter": ("I9", lambda told: told.facts.ledger.update(started=1)),
    "a dead letter of a success": ("I16", lambda told: told.facts.letters.update({JOB: ("exhausted", 0)})),
    "a death without a letter": ("I16", lambda told: _attempt(told, 1, led_to="dead")),
    "a generation that ran twice": ("I20", lambda told: _note(told, f"start {JOB} 2")),
    "a 500": ("I22", lambda told: _say(told, "claim", 500, {"code": "internal"})),
    "a refusal for nothing": ("I22", lambda told: _say(told, "enqueue", 400, {"code": "invalid"}, key="k")),
    "a deadlock": ("I22", lambda told: setattr(told.facts, "deadlocks", 1)),
}


def _note(told: Told, line: str) -> None:
    told.notes.write_text(told.notes.read_text() + line + "\n")


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found(told: Told, lie: str) -> None:
    number, tell = LIES[lie]
    tell(told)
    assert number in found(told)
