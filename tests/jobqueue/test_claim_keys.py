"""A claim that names itself gets what one without a key would get: its own first leases are no answer to it."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue import policies
from jobqueue.claiming import ClaimRequest, Lease
from jobqueue.hub import claims
from jobqueue.hub.waiters import Waiter
from jobqueue.types import Scope
from jobsplatform.errors import KeyConflict
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db(transaction=True)


def keyed(*queues: str, key: str = "c", **asked: Any) -> list[Lease]:
    return cast.claim(*queues, claim_key=key, **asked)


def test_a_keyed_claim_goes_on_behind_urgent_work() -> None:
    cast.enqueue(priority=0)
    cast.enqueue_many(4, priority=2)
    assert [lease.priority for lease in keyed(limit=5)] == [0, 2, 2, 2, 2]


def test_a_keyed_claim_repeats_its_leases_of_all_bands() -> None:
    cast.enqueue_many(2, priority=0)
    cast.enqueue_many(4, priority=2)
    first = keyed(limit=5)
    assert {lease.job_id for lease in keyed(limit=5, now=at(1))} == {lease.job_id for lease in first}
    assert len(first) == 5


def test_the_reserved_share_holds_for_keyed_claims() -> None:
    cast.enqueue_many(400, priority=0)
    bulk = set(cast.enqueue_many(50, priority=4))
    held = [lease for turn in range(20) for lease in keyed(limit=10, key=f"c-{turn}")]
    assert len(held) == 200
    assert sum(lease.job_id in bulk for lease in held) >= 10


def test_a_keyed_claim_over_queues_asks_strict_bands_first_oldest_first() -> None:
    a, b = cast.queue("a"), cast.queue("b")
    cast.enqueue_many(5, now=at(0), queue=a)
    younger = cast.enqueue(now=at(2), queue=a, priority=0)
    older = cast.enqueue(now=at(1), queue=b, priority=0)
    assert [lease.job_id for lease in keyed("a", "b", now=at(3), limit=2)] == [older, younger]


def test_keyed_claims_over_queues_take_them_in_turn() -> None:
    for name in "ab":
        cast.enqueue_many(40, queue=cast.queue(name))
    met = [keyed("a", "b", key=f"c-{turn}")[0].queue_id for turn in range(40)]
    counts = sorted(met.count(queue_id) for queue_id in set(met))
    assert len(counts) == 2
    assert counts[0] >= 8


def test_a_keyed_claim_over_queues_fills_up_where_one_is_short() -> None:
    cast.enqueue_many(2, queue=cast.queue("a"))
    cast.enqueue_many(20, queue=cast.queue("b"))
    cast.queue("c")
    for turn in range(2):
        assert len(keyed("a", "b", "c", key=f"c-{turn}", limit=10)) == 10


def test_a_keyed_claim_over_queues_repeats_what_it_filled_up() -> None:
    cast.enqueue(queue=cast.queue("a"), priority=0)
    cast.enqueue_many(20, queue=cast.queue("b"))
    first = keyed("a", "b", limit=10, scope=Scope(token_id=1))
    again = keyed("a", "b", limit=10, scope=Scope(token_id=1), now=at(1))
    assert {lease.job_id for lease in again} == {lease.job_id for lease in first}
    assert len(first) == 10


# Keyed claims that wait together


TOKEN = Scope(token_id=1)


def parked(key: str | None, limit: int = 1, worker: str = "") -> Waiter:
    request = ClaimRequest(queues=(policies.by_name("default"),), limit=limit, claim_key=key, worker=worker)
    return Waiter(request, TOKEN, 10)


def ids(leases: list[Lease]) -> list[int]:
    return [lease.job_id for lease in leases]


def test_one_claim_for_several_keys_gives_each_key_its_own_leases() -> None:
    cast.enqueue_many(6, now=None)
    hands = claims.claim_for([parked("a", 2), parked("b", 2), parked(None, 2)], False)
    assert cast.read("SELECT count(DISTINCT token) FROM queue_lease") == [(1,)]  # of one claim
    for key, hand in zip("ab", hands, strict=False):
        assert ids(keyed(key=key, limit=2, scope=TOKEN, now=None)) == sorted(ids(hand))
    assert cast.read("SELECT count(*) FROM queue_lease WHERE claim_key IS NULL AND claim_hash IS NULL") == [
        (2,)
    ]


def test_several_keys_of_one_worker_are_told_apart() -> None:
    cast.enqueue_many(2, now=None)
    claims.claim_for([parked("a", worker="w"), parked("a", worker="w")], False)
    assert cast.read("SELECT DISTINCT claim_key, worker FROM queue_lease") == [("a", "w")]


def test_a_waiting_repeat_gets_the_leases_that_its_first_call_made_meanwhile() -> None:
    cast.enqueue_many(3, now=None)
    first = keyed(key="a", scope=TOKEN, now=None)
    again, other = claims.claim_for([parked("a"), parked("b")], False)
    assert ids(again) == ids(first)
    assert ids(other) != ids(first)


def test_a_key_that_was_used_for_another_call_costs_the_others_nothing() -> None:
    cast.enqueue_many(3, now=None)
    keyed(key="a", limit=2, scope=TOKEN, now=None)
    conflicting, other = claims.claim_for([parked("a"), parked("b")], False)
    assert (conflicting, len(other)) == ([], 1)
    with pytest.raises(KeyConflict):
        keyed(key="a", scope=TOKEN, now=None)


def test_a_repeat_is_known_at_the_door_while_its_leases_live() -> None:
    cast.enqueue(now=None)
    request = parked("a").request
    assert not claims.is_repeat(request, TOKEN)
    lease = keyed(key="a", scope=TOKEN, now=None)[0]
    assert claims.is_repeat(request, TOKEN)
    assert not claims.is_repeat(request, Scope(token_id=2))
    cast.complete(lease, now=None, scope=TOKEN)
    assert not claims.is_repeat(request, TOKEN)
