"""Admissions that run at once: no limit is passed, none refuses what it has room for, and nobody waits for a commit."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from jobqueue import admitting, policies, upkeep
from jobqueue.claiming import Lease
from jobqueue.enqueue import Accepted
from jobqueue.enqueue import enqueue as enqueue_jobs
from tenants import registry
from tenants.admission import Ask
from tests import api_cast, cast
from tests.cast import OPS, SHARD, acme, new_job, together

pytestmark = pytest.mark.django_db(transaction=True)


def _limit(*, queue: str = "", band: int | None = None, **limits: Any) -> None:
    acme()
    registry.set_quota("acme", limits, queue=queue, band=band, actor=OPS)


def _put(count: int = 1, **changes: Any) -> Counter[str]:
    outcomes = enqueue_jobs([new_job(**changes)] * count)
    return Counter("in" if isinstance(one, Accepted) else one.code for one in outcomes)


def _sum(answers: Sequence[Counter[str] | BaseException]) -> dict[str, int]:
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return dict(sum(answers, Counter()))  # type: ignore[type-var,arg-type]


def test_at_depth_995_of_1000_twenty_parallel_posts_give_exactly_five_201() -> None:
    """S94, over HTTP; a replay at the limit is still answered."""
    caller = api_cast.caller("acme", "produce")
    _limit(max_depth=1_000)
    first = caller.enqueue(request_key="k")
    cast.enqueue_many(994, now=None)

    def post() -> tuple[int, str]:
        response = api_cast.Api(caller.token).post("/v1/jobs", {"kind": "a", "payload": {}})
        return response.status_code, response.get("Retry-After", "")

    answers = together(*[post] * 20)
    refused = [answer for answer in answers if answer != (201, "")]
    assert len(refused) == 15
    assert all(status == 429 and int(wait) >= 1 for status, wait in refused)  # type: ignore[misc]
    again = caller.post("/v1/jobs", {"kind": "a", "payload": {}, "request_key": "k"})
    assert (again.status_code, again.json()["job_id"], again.json()["replayed"]) == (200, first, True)
    assert cast.read("SELECT count(*) FROM queue_readyjob") == [(1_000,)]
    assert cast.read("SELECT count(*) FROM tenants_reservation") == [(0,)]


def test_parallel_batches_never_pass_a_depth_and_fill_it() -> None:
    other = cast.queue("other")
    _limit(max_depth=100)
    _limit(max_depth=30, queue="other")
    _limit(max_depth=10, queue="default", band=0)
    puts = [partial(_put, 7, queue=other), partial(_put, 7, priority=0), partial(_put, 9, priority=3)]
    assert _sum(together(*puts * 6)) == {"in": 30 + 10 + 54, "quota_exceeded": 12 + 32}
    assert _sum([_put(20)]) == {"in": 6, "quota_exceeded": 14}


def test_a_large_depth_is_as_exact() -> None:
    """Far from the limit counts are remembered, near it each admission counts."""
    _limit(max_depth=2_500)
    assert _sum(together(*[partial(_put, 150)] * 20)) == {"in": 2_500, "quota_exceeded": 500}


def test_a_queue_s_depth_holds_over_its_tenants() -> None:
    queue = cast.queue("small", depth_limit=50)
    owners = [cast.tenant(f"t{index}").pk for index in range(5)]
    puts = [partial(_put, 5, queue=queue, tenant_id=owner) for owner in owners] * 4
    assert _sum(together(*puts)) == {"in": 50, "queue_full": 50}


def test_a_rate_is_exact_among_parallel_callers() -> None:
    _limit(enqueue_rate_per_s=0.001, enqueue_burst=100)
    single = _sum([_put() for _ in range(30)])
    parallel = _sum(together(*[partial(_put, 5)] * 20))
    assert single["in"] + parallel["in"] == 100
    assert parallel["rate_limited"] == 30


def test_a_depth_holds_beside_claims_and_its_room_is_used_again() -> None:
    _limit(max_depth=20)
    seen: list[int] = []
    end = time.monotonic() + 3

    def produce() -> int:
        done = 0
        while time.monotonic() < end:
            done += _put(3)["in"]
            seen.append(int(cast.read("SELECT count(*) FROM queue_readyjob")[0][0]))
        return done

    def consume() -> int:
        done = 0
        while time.monotonic() < end:
            for lease in cast.claim(limit=5, now=None):
                cast.complete(lease)
                done += 1
        return done

    *made, first, second = together(*[produce] * 4, consume, consume)
    assert max(seen) <= 20
    assert sum(made) > 20  # type: ignore[arg-type]
    assert first + second <= sum(made)  # type: ignore[operator,arg-type]


def test_two_first_uses_of_a_key_take_one_place_and_one_token() -> None:
    _limit(max_depth=40, enqueue_rate_per_s=0.001, enqueue_burst=40)
    for turn in range(20):
        job = partial(enqueue_jobs, [new_job(request_key=f"k{turn}")])
        answers = together(job, job)
        accepted = [cast.accepted(answer[0]) for answer in answers]  # type: ignore[index]
        assert sorted(one.replayed for one in accepted) == [False, True]
    assert _put(30) == {"in": 20, "rate_limited": 10}
    assert cast.read("SELECT count(*) FROM queue_readyjob") == [(40,)]


def test_an_insert_that_waits_for_its_commit_holds_up_no_other() -> None:
    """A slow insert of the tenant is under way (its reservation deleted, not committed): others come in meanwhile."""
    _limit(max_depth=3)
    cast.enqueue(now=None)
    (ticket,) = admitting.admit([Ask(acme().pk, "default", 2, 1)], alias=SHARD)
    assert isinstance(ticket, admitting.Ticket)
    with cast.second_session() as slow:
        slow.execute("DELETE FROM tenants_reservation WHERE id = %s", [ticket.reservation])
        started = time.monotonic()
        assert _put(2) == {"in": 1, "quota_exceeded": 1}
        assert upkeep.sweep_reservations() == 0
        assert time.monotonic() - started < 5


def test_a_limit_that_changes_meanwhile_is_never_waited_for_in_a_circle() -> None:
    other, owner = cast.queue("other"), acme().pk
    stop = threading.Event()

    def change() -> int:
        for depth in range(30):
            _limit(max_depth=1_000 + depth, enqueue_rate_per_s=10_000.0)
            _limit(max_depth=500 + depth, queue="other")
        stop.set()
        return 30

    def put() -> int:
        done = 0
        while not stop.is_set():
            jobs = [new_job(queue=other, tenant_id=owner), new_job(tenant_id=owner)]
            done += sum(isinstance(one, Accepted) for one in enqueue_jobs(jobs))
        return done

    answers = together(change, put, put, put)
    assert all(isinstance(answer, int) and answer > 0 for answer in answers), answers


# Running


def _granted(answers: Sequence[list[Lease] | BaseException]) -> list[Lease]:
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [lease for answer in answers for lease in answer]  # type: ignore[union-attr]


def _watched(claims: Sequence[Any], scope: str) -> tuple[list[Lease], int]:
    """What parallel claims were granted, and the most that ever ran in a scope."""
    stop = threading.Event()
    most = [0]

    def watch() -> list[Lease]:
        while not stop.is_set():
            running = (
                f"SELECT count(*) FROM queue_lease s JOIN queue_lane l ON l.id = s.lane_id WHERE {scope}"
            )
            most[0] = max(most[0], int(cast.read(running)[0][0]))
        return []

    left = [len(claims)]
    lock = threading.Lock()

    def counted(claim: Any) -> Any:
        try:
            return claim()
        finally:
            with lock:
                left[0] -= 1
                if not left[0]:
                    stop.set()

    answers = together(watch, *[partial(counted, claim) for claim in claims])
    return _granted(answers), most[0]


def test_forty_claims_of_five_never_run_eleven_of_ten() -> None:
    cast.enqueue_many(300, now=None)
    _limit(max_running=10)
    found, most = _watched([partial(cast.claim, limit=5, now=None)] * 40, "true")
    assert most <= 10
    found += cast.claim(limit=10, now=None)
    assert len(found) == 10


def test_a_running_limit_of_a_queue_binds_that_queue() -> None:
    other = cast.queue("other")
    for queue in (cast.queue(), other):
        cast.enqueue_many(100, queue=queue, now=None)
    _limit(max_running=10, queue="other")
    claims = [partial(cast.claim, name, limit=5, now=None) for name in ("other", "default")] * 15
    found, most = _watched(claims, f"l.queue_id = {other.id}")
    assert most <= 10
    granted = Counter(lease.queue_id for lease in found + cast.claim("other", limit=10, now=None))
    assert granted[other.id] == 10
    assert granted[policies.by_name("default").id] == 75  # a limit elsewhere gates nothing here


def test_a_running_limit_of_a_band_binds_that_band() -> None:
    for band in (0, 2, 3):
        cast.enqueue_many(80, priority=band, now=None)
    _limit(max_running=10, queue="default", band=0)
    _limit(max_running=6, queue="default", band=2)
    found, most = _watched([partial(cast.claim, limit=5, now=None)] * 40, "l.priority = 0")
    assert most <= 10
    found += [lease for _ in range(10) for lease in cast.claim(limit=10, now=None)]
    granted = Counter(lease.priority for lease in found)
    assert (granted[0], granted[2], granted[3]) == (10, 6, 80)


def test_a_band_s_limit_and_the_tenant_s_hold_together() -> None:
    for band in (1, 2):
        cast.enqueue_many(80, priority=band, now=None)
    _limit(max_running=10)
    _limit(max_running=4, queue="default", band=1)
    found, most = _watched([partial(cast.claim, limit=5, now=None)] * 20, "true")
    assert most <= 10
    found += [lease for _ in range(5) for lease in cast.claim(limit=10, now=None)]
    granted = Counter(lease.priority for lease in found)
    assert sum(granted.values()) == 10
    assert granted[1] <= 4


def test_all_p0_gets_no_more_than_the_quota() -> None:
    """A tenant that labels everything P0."""
    cast.enqueue_many(100, priority=0, now=None)
    cast.enqueue_many(20, priority=2, tenant_id=cast.globex().pk, now=None)
    _limit(max_running=3)
    found, _ = _watched([partial(cast.claim, limit=5, now=None)] * 20, "true")
    found += cast.claim(limit=30, now=None)
    assert Counter(lease.tenant_id for lease in found) == {acme().pk: 3, cast.globex().pk: 20}
