"""Several poisons of one tenant's kind hold back its lanes, and no others."""

from __future__ import annotations

import pytest

from jobqueue import poisons, upkeep
from jobqueue.types import FLEET
from jobqueue.why import why
from jobsplatform.errors import Invalid, NotFound
from tests import cast
from tests.cast import OPS, at
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _one_crash_is_poison() -> None:
    cast.queue(max_crashes=1)


def poisoned(count: int = 1, *, second: float = 0, **changes: object) -> None:
    """So many jobs whose worker died with them, taken back half a minute later."""
    cast.enqueue_many(count, now=at(second), **{"kind": "pdf.render", **changes})
    assert len(cast.claim(now=at(second), limit=count, lease_s=1)) == count
    assert upkeep.reap(now=at(second + 1))["dead"] == count


def started(second: float, **changes: object) -> int:
    cast.enqueue(now=at(second), **{"kind": "pdf.render", **changes})
    return len(cast.claim(now=at(second), limit=10))


def test_one_poison_leaves_its_lane_open() -> None:
    poisoned()
    assert started(2) == 1


def test_three_poisons_in_a_window_gate_their_lane() -> None:
    poisoned(3)
    assert started(2) == 0


def test_three_poisons_over_a_longer_time_do_not() -> None:
    for second in (0, 300, 700):
        poisoned(second=second)
    assert started(702) == 1


def test_every_band_of_the_kind_is_held_back() -> None:
    cast.enqueue(kind="pdf.render", priority=3)
    poisoned(3, second=-10, priority=1)
    assert cast.claim(now=at(2), limit=10) == []


@pytest.mark.parametrize("other", ["kind", "tenant"])
def test_other_kinds_and_other_tenants_go_on(other: str) -> None:
    poisoned(3)
    changes = {"kind": "noop"} if other == "kind" else {"tenant_id": cast.globex().pk}
    assert started(2, **changes) == 1


def test_the_gate_ends_by_itself() -> None:
    poisoned(3)
    cast.enqueue(now=at(2), kind="pdf.render")
    assert cast.claim(now=at(1 + poisons.GATE_SECONDS - 0.1)) == []
    assert len(cast.claim(now=at(1 + poisons.GATE_SECONDS))) == 1


def test_an_operator_ends_it_and_poisons_are_counted_anew() -> None:
    poisoned(3)
    cast.enqueue(now=at(2), kind="pdf.render")
    assert poisons.release("acme", "pdf.render", actor=OPS, reason="fixed", now=at(3)) == 1
    cast.complete(cast.claim_one(now=at(3)), now=at(4))
    poisoned(2, second=50)
    assert started(52) == 1
    assert cast.audited("lane.release") == 1


def test_what_is_gated_waits_uncharged() -> None:
    poisoned(3)
    job_id = cast.enqueue(now=at(2), kind="pdf.render")
    assert cast.claim(now=at(3), limit=5) == []
    assert cast.row("queue_readyjob", job_id)["attempt"] == 0


def test_why_names_the_gate_and_its_end() -> None:
    poisoned(3)
    answer = why(cast.enqueue(now=at(2), kind="pdf.render"), scope=FLEET, now=at(3))
    gate = next(gate for gate in answer.gates if gate.gate == "paused")
    assert gate.until == at(1 + poisons.GATE_SECONDS)
    assert "poison" in gate.detail


def test_a_lane_that_is_held_back_sleeps() -> None:
    poisoned(3)
    cast.enqueue(now=at(2), kind="pdf.render")
    upkeep.sweep_lanes()
    assert cast.read("SELECT is_active FROM queue_lane WHERE kind = 'pdf.render'") == [(False,)]


def test_the_command_lets_them_go_on() -> None:
    poisoned(3)
    assert (
        run("ungate", "acme", "pdf.render", "--reason", "fixed").out
        == "1 lane goes on: pdf.render of acme.\n"
    )
    assert started(2) == 1


def test_an_unknown_tenant_and_an_impossible_kind_are_refused() -> None:
    with pytest.raises(NotFound):
        poisons.release("nobody", "noop", actor=OPS)
    with pytest.raises(Invalid):
        poisons.release(cast.acme().slug, "No Kind", actor=OPS)
    assert refused("ungate", "nobody", "noop") == "CommandError: There is no tenant 'nobody'."
