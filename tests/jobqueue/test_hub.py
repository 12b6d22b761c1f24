"""The hub with a queue in memory: one claim for many, nobody twice, nobody forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.claiming import ClaimRequest, Lease
from jobqueue.hub import core
from jobqueue.hub.core import Hub
from jobqueue.hub.waiters import Group, Waiter, deal
from jobqueue.types import Scope
from jobqueue.wakeup import Mark
from jobsplatform.errors import Unauthenticated, Unavailable
from tests.cast import wait_until
from tests.jobqueue.worker.fake import make_lease

SCOPE = Scope(tenant_id=1, token_id=1)


def ask(limit: int = 1, *, queue_id: int = 1, **changes: Any) -> ClaimRequest:
    queue: Any = SimpleNamespace(id=queue_id, name=f"q{queue_id}")
    return ClaimRequest(queues=(queue,), limit=limit, **changes)


class Shelf:
    """Jobs that are there, and every claim that was made for them."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.claims: list[int] = []
        self.looks = 0
        self.returned: list[int] = []
        self.at_once = self.most_at_once = 0
        self.error: Exception | None = None
        self.gate: threading.Event | None = None
        self._lock = threading.Lock()

    def claim_for(self, members: Sequence[Waiter], is_urgent: bool) -> list[list[Lease]]:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                assert self.gate.wait(30)
            if self.error is not None:
                raise self.error
            asked = sum(member.request.limit for member in members)
            with self._lock:
                self.claims.append(len(members))
                taken, self.jobs = self.jobs[:asked], self.jobs[asked:]
            return deal([make_lease(job_id) for job_id in taken], list(members))
        finally:
            with self._lock:
                self.at_once -= 1

    def anything(self, groups: Sequence[Group]) -> set[Group]:
        self.looks += 1
        return set(groups) if self.jobs else set()

    def give_back(self, held: Sequence[Lease], scope: Scope) -> None:
        self.returned += [lease.job_id for lease in held]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def make(shelf: Shelf) -> Iterator[Callable[..., Hub]]:
    made: list[Hub] = []

    def hub(**options: Any) -> Hub:
        values = {"parked_max": 5_000, "poll_s": 60.0} | options
        made.append(
            Hub(claim_for=shelf.claim_for, anything=shelf.anything, give_back=shelf.give_back, **values)
        )
        return made[-1]

    yield hub
    if shelf.gate is not None:
        shelf.gate.set()
    for one in made:
        one.stop()


def park(hub: Hub, wait_s: float = 60, request: ClaimRequest | None = None, **options: Any) -> Waiter:
    waiter = hub.park(request or ask(), options.pop("scope", SCOPE), wait_s, **options)
    assert waiter is not None
    return waiter


def settled(hub: Hub, shelf: Shelf) -> None:
    """Everyone who has come was looked for once."""
    wait_until(lambda: shelf.looks + len(shelf.claims) > 0)
    wait_until(lambda: not hub._busy)


def job_ids(waiter: Waiter) -> list[int]:
    waiter.wait()
    return [lease.job_id for lease in waiter.leases()]


def test_one_job_and_a_thousand_waiters_cost_one_claim(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    waiters = [park(hub, request=ask(worker=f"w{n}")) for n in range(1_000)]
    settled(hub, shelf)
    claims = len(shelf.claims)
    shelf.jobs = [1]
    hub.hint("default", [Mark(1, 2)])
    wait_until(lambda: any(waiter.is_settled for waiter in waiters))
    wait_until(lambda: not hub._busy)
    assert len(shelf.claims) == claims + 1
    assert [waiter.is_settled for waiter in waiters].count(True) == 1


def test_the_longest_waiting_gets_the_first_job(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    first, second = park(hub), park(hub)
    settled(hub, shelf)
    shelf.jobs = [1]
    hub.hint("default", [Mark(1, 0)])
    assert job_ids(first) == [1]
    assert not second.is_settled


def test_many_jobs_wake_all_with_few_claims(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    waiters = [park(hub) for _ in range(2_000)]
    settled(hub, shelf)
    claims = len(shelf.claims)
    shelf.jobs = list(range(2_000))
    hub.hint("default", [Mark(1, 2)])
    got = [job_id for waiter in waiters for job_id in job_ids(waiter)]
    assert sorted(got) == list(range(2_000))
    assert len(shelf.claims) - claims <= 5


def test_of_one_queue_one_claim_is_under_way(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    shelf.gate = threading.Event()
    shelf.jobs = list(range(10))
    groups = [park(hub, request=ask(kinds=(f"k{n}",))) for n in range(6)]
    wait_until(lambda: shelf.at_once == 1)
    shelf.gate.set()
    for waiter in groups:
        waiter.wait()
    assert shelf.most_at_once == 1


def test_two_queues_are_claimed_beside_each_other(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    shelf.gate = threading.Event()
    shelf.jobs = [1, 2]
    waiters = [park(hub, request=ask(queue_id=n)) for n in (1, 2)]
    wait_until(lambda: shelf.at_once == 2)
    shelf.gate.set()
    assert sorted(job_ids(waiters[0]) + job_ids(waiters[1])) == [1, 2]


@pytest.mark.parametrize("mark", [Mark(2, 0), Mark(1, 3)])
def test_a_hint_for_another_queue_or_band_disturbs_nobody(
    make: Callable[..., Hub], shelf: Shelf, mark: Mark
) -> None:
    hub = make()
    park(hub, request=ask(max_priority=2))
    settled(hub, shelf)
    before = (len(shelf.claims), shelf.looks)
    hub.hint("default", [mark])
    time.sleep(0.3)
    assert (len(shelf.claims), shelf.looks) == before


def test_without_any_hint_work_is_found_by_looking(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make(poll_s=0.2)
    waiter = park(hub)
    settled(hub, shelf)
    shelf.jobs = [1]
    assert job_ids(waiter) == [1]


def test_a_look_at_an_empty_queue_is_no_claim(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make(poll_s=0.05)
    park(hub)
    wait_until(lambda: shelf.looks >= 5)
    assert len(shelf.claims) <= 1  # the first one, so that `why` knows that somebody asks


def test_a_hint_during_a_claim_leads_to_another(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    shelf.gate = threading.Event()
    waiter = park(hub)
    wait_until(lambda: shelf.at_once == 1)
    hub.hint("default", [Mark(1, 0)])
    shelf.jobs = []
    shelf.gate.set()
    wait_until(lambda: len(shelf.claims) >= 2)
    assert not waiter.is_settled


def test_after_missed_hints_everyone_is_looked_for(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    waiter = park(hub)
    settled(hub, shelf)
    shelf.jobs = [1]
    hub.resync()
    assert job_ids(waiter) == [1]


def test_who_waits_long_enough_gets_nothing(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    assert job_ids(park(hub, wait_s=0.1)) == []
    wait_until(lambda: hub.parked == 0)


def test_a_lease_for_a_client_that_went_away_goes_back_at_once(
    make: Callable[..., Hub], shelf: Shelf
) -> None:
    hub = make()
    shelf.gate = threading.Event()
    shelf.jobs = [1]
    waiter = park(hub)
    wait_until(lambda: shelf.at_once == 1)
    hub.abandon(waiter)
    shelf.gate.set()
    wait_until(lambda: shelf.returned == [1])


def test_a_lease_that_was_not_sent_yet_goes_back_too(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    shelf.jobs = [1]
    waiter = park(hub)
    waiter.wait()
    hub.abandon(waiter)
    assert shelf.returned == [1]


def test_who_went_away_before_gets_no_claim(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    waiter, other = park(hub), park(hub)
    settled(hub, shelf)
    hub.abandon(waiter)
    shelf.jobs = [1]
    hub.hint("default", [Mark(1, 0)])
    assert job_ids(other) == [1]
    assert shelf.returned == []


def test_a_process_takes_so_many_and_no_more(make: Callable[..., Hub]) -> None:
    hub = make(parked_max=2)
    park(hub), park(hub)
    assert hub.park(ask(), SCOPE, 60) is None


def test_when_the_process_stops_all_are_answered_empty_and_nobody_is_taken_in(
    make: Callable[..., Hub], shelf: Shelf
) -> None:
    stopping = threading.Event()
    hub = make(is_stopping=stopping.is_set)
    waiters = [park(hub) for _ in range(50)]
    stopping.set()
    assert [job_ids(waiter) for waiter in waiters] == [[]] * 50
    assert hub.park(ask(), SCOPE, 60) is None


def test_a_caller_that_is_no_longer_let_in_gets_the_refusal(make: Callable[..., Hub], shelf: Shelf) -> None:
    def check() -> None:
        raise Unauthenticated

    shelf.jobs = [1]
    waiter = park(make(), check=check)
    waiter.wait()
    with pytest.raises(Unauthenticated):
        waiter.leases()
    assert shelf.jobs == [1]


def test_a_failed_claim_is_the_waiters_answer_and_the_hub_goes_on(
    make: Callable[..., Hub], shelf: Shelf
) -> None:
    hub = make()
    shelf.error = Unavailable()
    waiter = park(hub)
    waiter.wait()
    with pytest.raises(Unavailable):
        waiter.leases()
    shelf.error, shelf.jobs = None, [1]
    assert job_ids(park(hub)) == [1]


def test_tokens_and_lengths_of_leases_are_never_mixed_in_one_claim(
    make: Callable[..., Hub], shelf: Shelf
) -> None:
    requests = [ask(), ask(lease_s=5), ask(prefetch=True)]
    groups = {Group.of(request, SCOPE) for request in requests} | {Group.of(ask(), Scope(1, None, 2))}
    assert len(groups) == 4


def test_a_claim_key_parts_nobody() -> None:
    assert (
        Group.of(ask(claim_key="a"), SCOPE) == Group.of(ask(claim_key="b"), SCOPE) == Group.of(ask(), SCOPE)
    )


def test_the_name_of_a_worker_parts_nobody() -> None:
    assert Group.of(ask(worker="a"), SCOPE) == Group.of(ask(worker="b", limit=7), SCOPE)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 40))
def test_dealing_wastes_nothing_and_leaves_nobody_empty_while_another_has_two(
    limits: list[int], jobs: int
) -> None:
    members = [Waiter(ask(limit), SCOPE, 1) for limit in limits]
    leases = [make_lease(n) for n in range(min(jobs, sum(limits)))]
    hands = deal(leases, members)
    assert sorted(lease.job_id for hand in hands for lease in hand) == list(range(len(leases)))
    assert all(len(hand) <= limit for hand, limit in zip(hands, limits, strict=True))
    for hand, limit in zip(hands, limits, strict=True):
        assert len(hand) == limit or len(hand) >= max(map(len, hands)) - 1
        assert [lease.job_id for lease in hand] == sorted(lease.job_id for lease in hand)


# Surplus: leases whose consumer had gone when they came


def surplus(hub: Hub, shelf: Shelf, **changes: Any) -> None:
    """A lease comes for a consumer that went away while it was claimed."""
    shelf.gate = threading.Event()
    gone = park(hub, request=ask(**changes))
    shelf.jobs.append(1)
    hub.hint("shard0", [Mark(1, 0)])
    wait_until(lambda: shelf.at_once == 1)
    hub.abandon(gone)
    shelf.gate.set()
    wait_until(lambda: shelf.claims != [] and not hub._busy)
    shelf.gate = None


def test_a_lease_that_nobody_waits_for_goes_to_the_next_consumer(
    make: Callable[..., Hub], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SPARE_SECONDS", 10.0)
    hub = make()
    surplus(hub, shelf)
    assert job_ids(park(hub)) == [1]
    assert shelf.returned == []
    assert len(shelf.claims) == 1


def test_it_goes_back_when_nobody_comes_within_fifty_milliseconds(
    make: Callable[..., Hub], shelf: Shelf
) -> None:
    hub = make()
    began = time.monotonic()
    surplus(hub, shelf)
    wait_until(lambda: shelf.returned == [1])
    assert time.monotonic() - began < 2
    assert core.SPARE_SECONDS == 0.05
    assert hub._spare == []


def test_it_goes_to_nobody_of_another_kind_or_name(
    make: Callable[..., Hub], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SPARE_SECONDS", 0.3)
    hub = make()
    surplus(hub, shelf)
    others = [
        park(hub, 0.1, request=ask(worker="another")),
        park(hub, 0.1, request=ask(kinds=("k",))),
        park(hub, 0.1, request=ask(claim_key="c")),
        park(hub, 0.1, scope=Scope(tenant_id=1, token_id=2)),
    ]
    assert [job_ids(other) for other in others] == [[], [], [], []]
    wait_until(lambda: shelf.returned == [1])


def test_a_key_s_leases_go_back_at_once(make: Callable[..., Hub], shelf: Shelf) -> None:
    hub = make()
    surplus(hub, shelf, claim_key="c")
    assert hub._spare == []
    wait_until(lambda: shelf.returned == [1])


def test_what_is_kept_goes_back_when_the_hub_ends(
    make: Callable[..., Hub], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SPARE_SECONDS", 60.0)
    hub = make()
    surplus(hub, shelf)
    hub.stop()
    assert shelf.returned == [1]


# Many groups


def test_many_groups_are_looked_for_together(make: Callable[..., Hub], shelf: Shelf) -> None:
    """Ten thousand queues with a waiting consumer each: twenty looks a second, not ten thousand."""
    hub = make(parked_max=20_000, poll_s=1.0)
    waiters = [park(hub, request=ask(queue_id=number)) for number in range(10_000)]
    wait_until(lambda: all(row.looked_at > 0 for row in hub._rows.values()), 20)
    before, began = shelf.looks, time.monotonic()
    time.sleep(2)
    assert shelf.looks - before <= 21 * (time.monotonic() - began) + 1
    assert all(row.looked_at > began - 0.2 for row in hub._rows.values()), "and each within a second"
    hub.stop()
    assert all(job_ids(waiter) == [] for waiter in waiters)


def test_of_many_groups_those_are_served_for_which_there_is_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "NOTES_PER_SECOND", 0.001)  # nobody is claimed for to leave word alone
    served: list[int] = []

    def anything(groups: Sequence[Group]) -> set[Group]:
        return {group for group in groups if group.queue_ids[0] % 10 == 3}

    def claim_for(members: Sequence[Waiter], is_urgent: bool) -> list[list[Lease]]:
        served.append(members[0].group.queue_ids[0])
        return [[make_lease(1)] for _ in members]

    hub = Hub(parked_max=1_000, poll_s=0.2, anything=anything, claim_for=claim_for)
    try:
        waiters = [park(hub, request=ask(queue_id=number)) for number in range(50)]
        wait_until(lambda: len(served) >= 5)
        time.sleep(0.3)
        assert sorted(served) == [3, 13, 23, 33, 43]
        assert sum(waiter.is_settled for waiter in waiters) == 5
    finally:
        hub.stop()


def test_a_group_whose_caller_is_not_let_in_any_more_costs_the_others_nothing(
    make: Callable[..., Hub], shelf: Shelf
) -> None:
    def refuse() -> None:
        raise Unauthenticated

    hub = make(poll_s=0.2)
    refused = [park(hub, request=ask(queue_id=number), check=refuse) for number in range(5)]
    others = [park(hub, request=ask(queue_id=number)) for number in range(5, 10)]
    for waiter in refused:
        with pytest.raises(Unauthenticated):
            job_ids(waiter)
    shelf.jobs = [1, 2, 3, 4, 5]
    assert sorted(job for waiter in others for job in job_ids(waiter)) == [1, 2, 3, 4, 5]
