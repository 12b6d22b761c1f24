"""Claims that run at once: one lease a job, limits that hold, repeats that agree, upkeep beside them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from jobqueue import claiming, leases, policies, upkeep
from jobqueue.claiming import Lease
from jobqueue.types import Scope
from jobsplatform.errors import JobsPlatformError
from tenants import registry
from tests import cast
from tests.cast import OPS, acme, together

pytestmark = pytest.mark.django_db(transaction=True)


def _flat(answers: list[list[Lease] | BaseException]) -> list[Lease]:
    found: list[Lease] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found += answer
    return found


def test_no_job_is_leased_twice() -> None:
    ids = cast.enqueue_many(200, now=None)
    found = _flat(together(*[partial(cast.claim, limit=20, now=None)] * 12))
    assert sorted(lease.job_id for lease in found) == ids


def test_parallel_claims_never_pass_a_limit_on_running_jobs() -> None:
    """S92 on one shard: forty claims over two queues."""
    other = cast.queue("other")
    for queue in (cast.queue(), other):
        for kind in ("a", "b"):
            cast.enqueue_many(60, queue=queue, kind=kind, now=None)
    registry.set_quota("acme", {"max_running": 10}, actor=OPS)
    claims = [partial(cast.claim, name, limit=5, now=None) for name in ("default", "other")] * 20
    found = _flat(together(*claims))
    assert len(found) <= 10
    for name in ("default", "other"):
        found += cast.claim(name, limit=10, now=None)
    assert len(found) == 10
    assert cast.read("SELECT count(*) FROM queue_lease") == [(10,)]


def test_room_made_by_completions_is_never_overdrawn() -> None:
    cast.enqueue_many(120, now=None)
    registry.set_quota("acme", {"max_running": 4}, actor=OPS)
    most: list[int] = []

    def work() -> int:
        done = 0
        for _ in range(15):
            held = cast.claim(limit=3, now=None)
            most.append(int(cast.read("SELECT count(*) FROM queue_lease")[0][0]))
            for lease in held:
                cast.complete(lease)
                done += 1
        return done

    answers = together(*[work] * 6)
    assert all(isinstance(answer, int) for answer in answers), answers
    assert max(most) <= 4


def test_two_racing_repeats_of_a_claim_get_the_same_leases() -> None:
    for turn in range(10):
        cast.enqueue_many(6, now=None)
        claim = partial(cast.claim, limit=3, now=None, claim_key=f"c-{turn}", scope=Scope(token_id=1))
        one, other = together(claim, claim)
        assert not isinstance(one, BaseException)
        assert not isinstance(other, BaseException)
        assert {x.job_id for x in one} == {x.job_id for x in other}
        assert {x.token for x in one} == {x.token for x in other}
        assert len(one) == 3


def test_two_racing_repeats_over_queues_get_the_same_leases() -> None:
    for name in ("a", "b"):
        cast.queue(name)
    for turn in range(10):
        for name in ("a", "b"):
            cast.enqueue_many(3, queue=policies.by_name(name), now=None)
        first = partial(cast.claim, "a", "b", limit=4, now=None, claim_key=f"c-{turn}")
        second = partial(cast.claim, "b", "a", limit=4, now=None, claim_key=f"c-{turn}")
        one, other = together(first, second)
        assert not isinstance(one, BaseException)
        assert not isinstance(other, BaseException)
        assert {x.job_id for x in one} == {x.job_id for x in other}
        assert len(one) == 4


def test_a_repeat_that_comes_between_two_queues_of_a_claim_hears_of_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("a", "b"):
        cast.enqueue_many(2, queue=cast.queue(name), now=None)
    claim = partial(cast.claim, "a", "b", limit=4, now=None, claim_key="c")
    is_halfway, was_read = threading.Event(), threading.Event()
    claim_from, earlier = claiming._claim_from, claiming._earlier

    def claim_and_wait(*args: Any) -> Any:
        rows = claim_from(*args)
        is_halfway.set()
        was_read.wait(10)
        return rows

    def read(*args: Any) -> Any:
        found = earlier(*args)
        if found:
            was_read.set()
        return found

    def repeat() -> Any:
        is_halfway.wait(10)
        return claim()

    monkeypatch.setattr(claiming, "_claim_from", claim_and_wait)
    monkeypatch.setattr(claiming, "_earlier", read)
    one, other = (_flat([answer]) for answer in together(claim, repeat))
    assert {x.job_id for x in one} == {x.job_id for x in other}
    assert len(one) == 4


def test_a_claim_passes_over_a_job_that_is_being_touched() -> None:
    locked, free = cast.enqueue_many(2, now=None)
    with cast.second_session() as other:
        other.execute("SELECT FROM queue_readyjob WHERE job_id = %s FOR UPDATE", [locked])
        found = [lease.job_id for _ in range(2) for lease in cast.claim(now=None, limit=2)]
    assert found == [free]


def test_a_busy_tenant_is_passed_over_not_waited_for() -> None:
    cast.enqueue_many(2, now=None)
    theirs = cast.enqueue(tenant_id=cast.globex().pk, now=None)
    registry.set_quota("acme", {"max_running": 1}, actor=OPS)
    with cast.second_session() as other:
        other.execute("SELECT FROM tenants_tenantstate WHERE tenant_id = %s FOR UPDATE", [acme().pk])
        assert [lease.job_id for lease in cast.claim(now=None, limit=5)] == [theirs]


def test_a_pause_holds_from_the_moment_that_its_push_commits() -> None:
    cast.enqueue_many(400, now=None)
    paused_at: list[float] = []
    granted: list[float] = []

    def claim() -> None:
        for _ in range(40):
            before = time.monotonic()
            if cast.claim(limit=2, now=None):
                granted.append(before)

    def pause() -> None:
        time.sleep(0.2)
        policies.pause("default", actor=OPS)
        paused_at.append(time.monotonic())

    answers = together(claim, claim, pause)
    assert answers == [None, None, None]
    assert granted
    assert max(granted) <= paused_at[0]
    cast.enqueue(now=None)


@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_claimers_reapers_and_completers_never_deadlock(seconds: int) -> None:
    """S19: eight claimers, four reapers, four completers on two hundred rows."""
    before = cast.deadlocks()
    queue = cast.queue("grim", max_crashes=100, max_attempts=100)
    for kind in "abcd":
        cast.enqueue_many(50, queue=queue, kind=kind, now=None)
    held: list[Lease] = []
    end = time.monotonic() + seconds

    def claimer(lease_s: int) -> int:
        turns = 0
        while time.monotonic() < end:
            held.extend(cast.claim(queue, limit=10, now=None, lease_s=lease_s))
            turns += 1
        return turns

    def reaper() -> int:
        turns = 0
        while time.monotonic() < end:
            upkeep.reap(limit=20)
            upkeep.promote(limit=20)
            upkeep.sweep_lanes()
            turns += 1
        return turns

    def completer() -> int:
        turns = 0
        while time.monotonic() < end:
            batch = [held.pop() for _ in range(min(7, len(held)))]
            keys = [cast.key_of(lease) for lease in batch]
            leases.complete([leases.Complete(**key) for key in keys[:2]])
            leases.renew([leases.Renew(**key) for key in keys[2:4]])
            leases.fail([leases.Fail(**key, error_class="transient") for key in keys[2:6]])
            leases.release([leases.Release(**key) for key in keys[4:]])
            if len(batch) < 7:
                cast.enqueue_many(20, queue=queue, now=None)
            turns += 1
        return turns

    claimers = [partial(claimer, 1 + index % 2) for index in range(8)]
    answers = together(*claimers, *[reaper] * 4, *[completer] * 4)
    assert all(isinstance(answer, int) and answer > 0 for answer in answers), answers
    assert cast.deadlocks() == before
    assert _standing_wrongly() == []


def _standing_wrongly() -> list[tuple[int, int]]:
    places = " UNION ALL ".join(f"SELECT job_id FROM {table}" for table in cast.PLACES)
    return cast.read(
        f"SELECT j.id, count(p.job_id) FROM queue_job j LEFT JOIN ({places}) p ON p.job_id = j.id"
        " GROUP BY j.id HAVING count(p.job_id) <> 1"
    )


def test_upkeep_may_run_many_times_over() -> None:
    """Each pass takes its own rows: together they do each thing once."""
    cast.enqueue_many(100, now=cast.at(0), delay_s=1)
    cast.enqueue_many(100, now=cast.at(0), expires_in_s=50)
    cast.enqueue_many(100, now=cast.at(0), kind="run")
    cast.claim(now=cast.at(0), limit=100, kinds=("run",))
    passes = [partial(verb, now=cast.at(60)) for verb in (upkeep.promote, upkeep.reap, upkeep.expire)] * 3
    done = together(*passes)
    assert not [answer for answer in done if isinstance(answer, JobsPlatformError)], done
    assert sum(answer for answer in done if isinstance(answer, int)) == 100
    counted: Counter[str] = sum((answer for answer in done if isinstance(answer, Counter)), Counter())
    assert counted == {"ready": 100, "expired": 100}
    assert _standing_wrongly() == []


def test_a_claim_that_meets_urgent_work_keeps_what_its_connection_has_prepared() -> None:
    """A rolled back attempt at the other bands would have every statement of the next claim planned anew."""
    policies.create_queue("urgent", preset="five", actor=OPS)
    for _ in range(3):
        cast.enqueue_many(1, queue=cast.queue("urgent"), priority=0, now=None)
        assert len(cast.claim("urgent", limit=1, now=None)) == 1
        assert (
            cast.claim("urgent", limit=1, now=None) == []
        )  # so that the next one takes strict bands for empty
    times = cast.read(
        "SELECT max(generic_plans) FROM pg_prepared_statements WHERE statement LIKE '-- claim_heads%%'"
    )
    assert times[0][0] > 3


def test_a_claim_of_one_passes_over_a_job_that_is_being_touched() -> None:
    locked, free = cast.enqueue_many(2, now=None)
    with cast.second_session() as other:
        other.execute("SELECT FROM queue_readyjob WHERE job_id = %s FOR UPDATE", [locked])
        assert [lease.job_id for lease in cast.claim(now=None, limit=1)] == [free]


def test_a_turn_that_met_a_held_job_is_not_used_up() -> None:
    policies.create_queue("turns", preset="high-normal", actor=OPS)
    turns = cast.queue("turns")
    [held, *_] = cast.enqueue_many(8, queue=turns, priority=0, now=None)
    cast.enqueue_many(4, queue=turns, priority=1, now=None)
    with cast.second_session() as other:
        other.execute("SELECT FROM queue_readyjob WHERE job_id = %s FOR UPDATE", [held])
        bands = [lease.priority for _ in range(10) for lease in cast.claim("turns", now=None, limit=1)]
    assert bands == [0] * 7 + [1] * 3
