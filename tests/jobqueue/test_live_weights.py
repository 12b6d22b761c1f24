"""Weights that are changed while work runs, clocks that differ, and what a claiming process keeps of its callers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobqueue import claiming, policies
from jobqueue.claiming import transaction
from jobqueue.policies import Band
from jobqueue.policy.turns import Rotation
from jobqueue.policy.types import Turn
from tests import cast
from tests.cast import OPS, at

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_lowered_weight_holds_at_once() -> None:
    queue = cast.queue("work", preset="hnl")
    heavy = [Band("H", weight=1_000), Band("N", weight=2), Band("L", weight=1)]
    policies.set_policy("work", {"bands": heavy}, actor=OPS, reason="a slip")
    cast.enqueue_many(40, queue=queue, priority=0)
    cast.enqueue_many(10, queue=queue, priority=2)
    cast.claim(policies.by_name("work"), limit=5)
    policies.set_policy("work", {"bands": list(queue.bands)}, actor=OPS, reason="put right")
    found = [lease.priority for lease in cast.claim(policies.by_name("work"), limit=12)]
    assert found.count(2) >= 2


@pytest.mark.parametrize("left", [0, 1, 2, 999_999])
def test_what_is_left_of_a_turn_never_passes_the_weight(left: int) -> None:
    rotation = Rotation(Turn(0, left))
    rotation.use(0, 3)
    assert rotation.left <= 2


def test_ageing_is_judged_by_the_database_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    class Skewed(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(hours=2)

    monkeypatch.setattr(transaction, "datetime", Skewed)
    queue = cast.queue("work", preset="hnl", ageing_s=600)
    cast.enqueue(queue=queue, priority=2, now=None)
    urgent = cast.enqueue(queue=queue, priority=0, now=None)
    assert cast.claim_one("work", now=None).job_id == urgent


def test_what_is_remembered_of_classes_of_claims_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "CLASSES_MAX", 10)
    for number in range(25):
        cast.enqueue(kind=f"k{number}", priority=0)
        cast.claim(kinds=(f"k{number}", "noop"), now=at(number))
    assert len(claiming._floors) <= 10
    assert len(transaction.urgent) <= 10
    assert len(claiming._noted) <= 10
