"""What a tenant sees of itself: its own figures, and nothing from which another's could be read."""

from __future__ import annotations

import pytest

from jobqueue import ownview, upkeep
from jobqueue.types import Scope
from tenants import registry
from tests import cast
from tests.cast import OPS, acme, at, globex

pytestmark = pytest.mark.django_db


def standing(now: float = 10) -> dict[tuple[str, str], ownview.Depth]:
    found = ownview.standing(acme().pk, now=at(now))
    assert found.unknown_shards == []
    return {(depth.queue, depth.band): depth for depth in found.depths}


def work(tenant_id: int, count: int, seconds: float) -> None:
    """Start and complete that many of a tenant's jobs at an instant."""
    left = count
    while left:
        leases = cast.claim(limit=min(left, 100), now=at(seconds), scope=Scope(tenant_id=tenant_id))
        assert leases
        for lease in leases:
            cast.complete(lease, now=at(seconds + 0.5))
        left -= len(leases)


def test_depth_and_head_age_stand_by_queue_and_level() -> None:
    mail = cast.queue("mail", preset="hnl", age_objective_s={"H": 5})
    cast.enqueue_many(2, queue=mail, priority=0, now=at(0))
    cast.enqueue_many(3, now=at(4))
    cast.enqueue(now=at(4), not_before=at(100))
    cast.claim(limit=1, now=at(5))
    found = standing()
    urgent, default = found["mail", "H"], found["default", "P2"]
    assert (urgent.ready, urgent.age_s, urgent.is_late) == (2, 10, True)
    assert (default.ready, default.scheduled, default.running, default.age_s) == (2, 1, 1, 6)
    assert not default.is_late


def test_another_tenants_jobs_change_no_figure() -> None:
    cast.enqueue_many(2, now=at(0))
    work(acme().pk, 1, 1)
    upkeep.fold()
    before = (standing(), ownview.course(acme().pk, now=at(100)))
    cast.enqueue_many(50, tenant_id=globex().pk, now=at(0))
    work(globex().pk, 30, 2)
    upkeep.fold()
    assert (standing(), ownview.course(acme().pk, now=at(100))) == before


def test_the_course_adds_up_steps_of_ten_minutes() -> None:
    cast.enqueue_many(5, now=at(0))
    work(acme().pk, 2, 1)
    work(acme().pk, 3, 601)
    upkeep.fold()
    steps = ownview.course(acme().pk, now=at(700))
    assert [(step.at, step.started, step.succeeded) for step in steps] == [(at(0), 2, 2), (at(600), 3, 3)]
    assert ownview.course(globex().pk, now=at(700)) == []


# Fair share


def test_who_does_not_wait_has_received_all_it_asked_for() -> None:
    cast.enqueue_many(2, now=at(0))
    work(acme().pk, 2, 1)
    upkeep.fold()
    assert ownview.fair_shares(acme().pk, now=at(300)) == []


def test_entitled_is_the_weights_part_of_what_was_started_while_one_waited() -> None:
    cast.enqueue_many(100, now=at(0))
    cast.enqueue_many(100, tenant_id=globex().pk, now=at(0))
    work(acme().pk, 10, 70)
    work(globex().pk, 30, 71)
    upkeep.fold()
    (share,) = ownview.fair_shares(acme().pk, now=at(180))
    assert (share.queue, share.band, share.unit, share.watched_s) == ("default", "P2", "starts", 120)
    assert (share.entitled, share.received, share.ratio) == (20, 10, 0.5)
    (other,) = ownview.fair_shares(globex().pk, now=at(180))
    assert (other.entitled, other.received) == (20, 30)


def test_a_weight_of_three_is_entitled_to_three_parts() -> None:
    acme()
    registry.set_quota("acme", {"weight": 3}, actor=OPS)
    cast.enqueue_many(100, now=at(0))
    cast.enqueue_many(100, tenant_id=globex().pk, now=at(0))
    work(acme().pk, 30, 70)
    work(globex().pk, 10, 71)
    upkeep.fold()
    (share,) = ownview.fair_shares(acme().pk, now=at(180))
    assert (share.entitled, share.received) == (30, 30)


def test_who_waited_and_got_nothing_is_told_so() -> None:
    cast.enqueue_many(10, now=at(0))
    cast.enqueue_many(100, tenant_id=globex().pk, now=at(0))
    work(globex().pk, 40, 71)
    upkeep.fold()
    (share,) = ownview.fair_shares(acme().pk, now=at(180))
    assert (share.entitled, share.received, share.ratio) == (20, 0, 0)


def test_minutes_before_one_waited_do_not_count() -> None:
    cast.enqueue_many(100, tenant_id=globex().pk, now=at(0))
    work(globex().pk, 40, 10)
    cast.enqueue_many(10, now=at(65))
    work(globex().pk, 20, 130)
    upkeep.fold()
    (share,) = ownview.fair_shares(acme().pk, now=at(240))
    assert (share.entitled, share.received, share.watched_s) == (10, 0, 120)


def test_who_waits_where_nothing_is_started_is_not_told_that_all_is_well() -> None:
    cast.enqueue_many(10, now=at(0))
    (share,) = ownview.fair_shares(acme().pk, now=at(180))
    assert (share.entitled, share.received, share.ratio, share.watched_s) == (0, 0, None, 120)
    assert ownview.fair_shares(acme().pk, now=at(50)) == [], "not a whole minute yet"


def test_where_nothing_is_ready_there_is_no_oldest() -> None:
    cast.enqueue(now=at(0), not_before=at(100))
    (depth,) = standing().values()
    assert (depth.ready, depth.scheduled, depth.age_s, depth.is_late) == (0, 1, None, False)
