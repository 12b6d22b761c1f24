"""What a claim meets on its walk: urgent work that comes in between, tenants that others hold, crowds and pauses."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from benchmarks import ground
from jobqueue.policy.types import SERVICE_TIME
from jobqueue.types import Scope
from tenants import registry
from tests import cast
from tests.cast import OPS, acme, at, globex

pytestmark = pytest.mark.django_db(transaction=True)

CROWD = range(1_000_000, 1_000_700)  # numbers of tenants: more than one walk looks at


def crowd(queue: str = "default", *, priority: int = 2, jobs: int = 1) -> None:
    ground.fill(queue, list(CROWD), jobs, priority=priority, age_s=60)


# Strict bands are looked at in the round trip that locks the others


def test_urgent_work_that_came_since_the_last_claim_is_first() -> None:
    cast.enqueue_many(3, priority=2)
    assert cast.claim_one().priority == 2
    urgent = cast.enqueue(priority=0)
    assert [lease.job_id for lease in cast.claim(limit=2)][:1] == [urgent]


def test_bands_are_served_by_weight_again_when_urgent_work_is_over() -> None:
    cast.enqueue(priority=0)
    cast.enqueue_many(4, priority=2)
    assert [lease.priority for lease in cast.claim(limit=2)] == [0, 2]
    assert [lease.priority for lease in cast.claim(limit=9)] == [2, 2, 2]


@pytest.fixture
def weighted_part_is_locked() -> Iterator[threading.Event]:
    """Another session plans the weighted bands, for at most twenty seconds; the event says that it gave up."""
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('queue.claim.weighted', %s))"
    with cast.second_session() as other:
        other.execute(lock, [cast.queue().id])
        gave_up = threading.Event()

        def give_up() -> None:
            gave_up.set()
            other.rollback()

        timer = threading.Timer(20, give_up)
        timer.start()
        yield gave_up
        timer.cancel()
        timer.join()
        other.rollback()


def test_urgent_work_does_not_wait_for_a_claim_of_bulk(weighted_part_is_locked: threading.Event) -> None:
    cast.enqueue(priority=0)
    cast.enqueue(priority=3)
    assert cast.claim_one().priority == 0
    assert not weighted_part_is_locked.is_set()


# Tenants that others hold, or that are many


def test_tenants_that_another_claim_holds_hide_nobody() -> None:
    """More of them than a claim of one lists."""
    slugs = [f"t{number:02}" for number in range(12)]
    for slug in slugs:
        cast.enqueue(tenant_id=cast.tenant(slug).pk)
        registry.set_quota(slug, {"max_running": 5}, actor=OPS)
    cast.enqueue(tenant_id=cast.tenant("zoe").pk)
    with cast.second_session() as other:
        other.execute("SELECT FROM tenants_tenantstate WHERE limits_running FOR UPDATE")
        assert [lease.tenant_id for lease in cast.claim(limit=1)] == [cast.tenant("zoe").pk]


def test_a_claim_holds_only_the_limited_tenants_that_it_could_start() -> None:
    for number in range(30):
        slug = f"t{number:02}"
        cast.enqueue(tenant_id=cast.tenant(slug).pk)
        registry.set_quota(slug, {"max_running": 5}, actor=OPS)
    cast.claim_one()
    locked = "SELECT count(*) FROM tenants_tenantstate WHERE limits_running AND xmax::text <> '0'"
    assert 1 <= cast.read(locked)[0][0] < 15


def test_a_tenant_s_own_worker_meets_its_work_behind_any_crowd() -> None:
    crowd()
    scope = Scope(tenant_id=CROWD[650])
    assert [lease.tenant_id for lease in cast.claim(limit=3, scope=scope)] == [CROWD[650]]


def test_a_crowd_takes_turns_over_claims() -> None:
    crowd(jobs=2)
    seen = Counter(lease.tenant_id for _ in range(7) for lease in cast.claim(limit=100))
    assert set(seen) == set(CROWD)
    assert set(seen.values()) == {1}


# S96


def test_thirty_three_thousand_jobs_of_a_paused_tenant_hide_nobody() -> None:
    paused = cast.tenant("paused")
    ground.fill("default", [paused.pk], 33_000, priority=1, age_s=3_600)
    others = list(CROWD[:63])
    ground.fill("default", others, 10, priority=1)
    registry.pause("paused", actor=OPS)
    assert len({lease.tenant_id for lease in cast.claim(limit=63)}) == 63
    rest = Counter(lease.tenant_id for _ in range(7) for lease in cast.claim(limit=100))
    assert rest == Counter(dict.fromkeys(others, 9))
    waiting = "SELECT count(*) FROM queue_readyjob"
    assert cast.read(waiting)[0][0] == 33_000
    registry.resume("paused", actor=OPS)
    assert {lease.tenant_id for lease in cast.claim(limit=10)} == {paused.pk}


# Ageing is counted


def aged() -> float:
    return REGISTRY.get_sample_value("jobsplatform_aged_total", {"queue": "work"}) or 0.0


def test_a_start_in_a_more_urgent_band_than_its_own_is_counted() -> None:
    queue = cast.queue("work", preset="hnl", ageing_s=1_800)
    cast.enqueue(queue=queue, priority=2, now=at(0))
    cast.enqueue(queue=queue, priority=2, now=at(1_790))
    before = aged()
    assert len(cast.claim(queue, limit=2, now=at(1_801))) == 2
    assert aged() == before + 1


# Virtual time is the queue's


def test_a_class_that_claims_rarely_gives_no_credit_for_idleness() -> None:
    """acme is served by one class of workers; when globex comes and another class claims, they start level."""
    queue = cast.queue("costed", cost_model=SERVICE_TIME)
    cast.enqueue_many(50, queue=queue)
    assert len(cast.claim(queue, limit=40)) == 40
    cast.enqueue_many(10, queue=queue, tenant_id=globex().pk)
    for rare in ({"kinds": ("noop",)}, {"max_priority": 2}):
        taken = Counter(lease.tenant_id for lease in cast.claim(queue, limit=4, **rare))
        assert taken[acme().pk] >= 1
