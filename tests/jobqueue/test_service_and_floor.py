"""Service time and the floor through real claims: what the simulation stands for."""

from __future__ import annotations

from collections import Counter

import pytest

from jobqueue import claiming, upkeep
from jobqueue.policy.plan import DEBT_MAX_S
from jobqueue.policy.types import SERVICE_TIME
from tenants import registry
from tests import cast
from tests.cast import acme, at, together

pytestmark = pytest.mark.django_db(transaction=True)


def served_s(tenant_id: int) -> float:
    """A tenant's service so far, folded or not."""
    folded = "SELECT coalesce(sum(served_s), 0) FROM queue_tenantservice WHERE tenant_id = %s"
    fresh = "SELECT coalesce(sum(moved_s), 0) FROM queue_servicedelta WHERE tenant_id = %s"
    return sum(float(cast.read(statement, [tenant_id])[0][0]) for statement in (folded, fresh))


def test_bulk_bands_share_the_floor_of_a_flood_in_single_claims() -> None:
    claiming.forget()
    for band, jobs in ((0, 80), (3, 10), (4, 10)):
        cast.enqueue_many(jobs, priority=band)
    count = Counter(cast.claim_one(lease_s=3_600).priority for _ in range(80))
    assert count[3] + count[4] >= 4
    assert count[0] >= 75
    claiming.forget()
    more = Counter(lease.priority for _ in range(4) for lease in cast.claim(limit=5))
    assert more[3] + more[4] >= 20 - (80 - count[0])  # when P0 is at its end the rest is theirs


@pytest.mark.parametrize("limit", [1, 5])
def test_claims_beside_each_other_keep_the_floor_as_one_after_the_other(limit: int) -> None:
    claiming.forget()
    for band, jobs in ((0, 400), (4, 100)):
        cast.enqueue_many(jobs, priority=band)

    def some() -> int:
        held = [lease for _ in range(50 // limit) for lease in cast.claim(limit=limit, lease_s=3_600)]
        return sum(lease.priority == 4 for lease in held)

    counts = [count for count in together(*[some] * 6) if isinstance(count, int)]
    assert len(counts) == 6
    assert sum(counts) in (15, 16)  # 300 starts earn 15.75


def test_p3_does_not_take_the_whole_floor_from_p4() -> None:
    claiming.forget()
    queue = cast.queue("half", reserved_share=0.5)
    for band, jobs in ((0, 60), (3, 30), (4, 30)):
        cast.enqueue_many(jobs, queue=queue, priority=band)
    count = Counter(cast.claim_one(queue).priority for _ in range(48))
    assert count[0] == pytest.approx(24, abs=2)
    assert count[3] == pytest.approx(14, abs=2)
    assert count[4] == pytest.approx(10, abs=2)


def test_a_start_is_charged_and_settled_by_the_weight_of_its_queue() -> None:
    queue = cast.queue("costed", cost_model=SERVICE_TIME)
    registry.set_quota(acme().slug, {"weight": 4}, queue="costed", actor=cast.OPS)
    cast.enqueue(queue=queue)
    lease = cast.claim_one(queue, now=at(0))
    assert served_s(acme().pk) == pytest.approx(1 / 4)
    cast.complete(lease, now=at(11))
    assert served_s(acme().pk) == pytest.approx(11 / 4)


def test_a_debt_is_cut_when_it_is_added_up() -> None:
    queue = cast.queue("costed", cost_model=SERVICE_TIME, max_run_s=600_000)
    cast.enqueue(queue=queue)
    lease = cast.claim_one(queue, now=at(0), lease_s=43_200)
    cast.complete(lease, now=at(40_000))
    assert served_s(acme().pk) == pytest.approx(40_000)
    upkeep.fold()
    assert served_s(acme().pk) == pytest.approx(DEBT_MAX_S, abs=2)
