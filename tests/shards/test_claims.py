"""Claims over four shards: the most urgent work first wherever it is, shares by weight, and shards that are away."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from django.db import connections

from jobqueue import claiming, fsck, hub, listing, stats, upkeep, wakeup
from jobqueue.api import names, working
from jobqueue.claiming import ClaimRequest, Lease, inversions, over_shards, summaries
from jobqueue.claiming.transaction import QueueClaim
from jobqueue.enqueue import enqueue
from jobqueue.hub.core import POLL_SECONDS
from jobqueue.listing import JobFilter
from jobqueue.policy.routing import STALE_S
from jobqueue.policy.types import Chosen
from jobqueue.shards import register
from jobqueue.types import FLEET
from jobsplatform import database, public, reach
from jobsplatform.errors import Unavailable
from tenants import registry
from tests import cast
from tests.shards.conftest import ALIASES, cut, heal, heal_and_forget

on_shards = pytest.mark.django_db(transaction=True, databases=["default", *ALIASES])


def put(alias: str, count: int = 1, **changes: object) -> None:
    """Work without a key, on one shard."""
    from django.db import transaction

    for _ in range(count):
        with transaction.atomic(using=alias):
            cast.accepted(enqueue([cast.new_job(**changes)], within=alias)[0])


def shards_of(held: list[Lease]) -> Counter[int]:
    return Counter(database.space_of(lease.job_id) for lease in held)


@on_shards
def test_urgent_work_comes_first_wherever_it_is() -> None:
    put("shard0", 30, priority=4)
    put("shard1", 10, priority=4)
    put("shard3", 2, priority=0)
    put("shard2", 1, priority=0)
    held = cast.claim(now=None, limit=3)
    assert [lease.priority for lease in held] == [0, 0, 0]
    assert shards_of(held) == {2: 1, 3: 2}
    assert {lease.priority for lease in cast.claim(now=None, limit=1)} == {4}


@on_shards
def test_bands_share_by_weight_over_shards() -> None:
    """A shard that holds P4 alone must not lend its turns to P4 while another has P1."""
    put("shard0", 60, priority=4)
    put("shard1", 60, priority=1)
    counts = Counter(cast.claim_one(now=None).priority for _ in range(30))
    assert counts == {1: 25, 4: 5}


@on_shards
def test_a_claim_takes_all_there_is_and_each_job_once() -> None:
    for alias in ALIASES:
        put(alias, 7, priority=2)
        put(alias, 3, priority=4)
    held = [lease for _ in range(5) for lease in cast.claim(now=None, limit=12)]
    assert len(held) == len({lease.job_id for lease in held}) == 40
    assert cast.claim(now=None, limit=10) == []
    for lease in held:
        cast.complete(lease)
    assert list(fsck.check()) == []


@on_shards
def test_a_claim_over_queues_takes_their_strict_work_first() -> None:
    other = cast.queue("other")
    put("shard0", 5, priority=3)
    put("shard2", 1, priority=0, queue=other)
    held = cast.claim("default", "other", now=None, limit=1)
    assert [(lease.queue_id, lease.priority) for lease in held] == [(other.id, 0)]
    assert len(cast.claim("default", "other", now=None, limit=10)) == 5


@on_shards
def test_a_repeated_claim_key_gives_the_same_leases() -> None:
    put("shard0", 5, priority=3)
    put("shard1", 5, priority=1)
    first = cast.claim(now=None, limit=3, claim_key="c-1")
    again = cast.claim(now=None, limit=3, claim_key="c-1")
    assert {lease.job_id for lease in first} == {lease.job_id for lease in again}
    assert {lease.priority for lease in first} == {1}


@on_shards
def test_one_pinned_shard_gives_strict_order_within_a_band() -> None:
    queue = cast.queue("ordered")
    cast.enqueue(now=None)
    register.pin([2], queue="ordered", actor=cast.OPS)
    ids = [cast.enqueue(now=None, queue=queue, priority=turn % 2 + 2) for turn in range(30)]
    held = [cast.claim_one("ordered", now=None) for _ in ids]
    for band in (2, 3):
        got = [lease.job_id for lease in held if lease.priority == band]
        assert got == [job_id for turn, job_id in enumerate(ids) if turn % 2 + 2 == band]


@on_shards
def test_each_start_says_why_it_was_chosen() -> None:
    put("shard0", 1, priority=0)
    put("shard1", 3, priority=1)
    put("shard2", 3, priority=4)
    cast.claim(now=None, limit=7)
    found = [row[0] for alias in ALIASES for row in cast.read("SELECT chosen FROM queue_lease", alias=alias)]
    assert Counter(found)["strict"] == 1
    assert set(found) <= {word.value for word in Chosen}


@on_shards
def test_an_inversion_is_measured_when_it_comes_to_light() -> None:
    put("shard0", 5, priority=4)
    put("shard1", 5, priority=4)
    cast.claim(now=None, limit=1)
    put("shard2", 1, priority=1)
    time.sleep(0.15)
    asked = next(iter(summaries._words))
    inversions.started(cast.queue(), 4, Chosen.LENT, 1, {4})  # as by a map that did not know
    summaries.spoil(asked, range(4))
    summaries.read(asked)
    assert 0.1 < inversions.worst_s() < 5


@on_shards
def test_leases_come_most_urgent_first_whichever_shard_they_are_of() -> None:
    put("shard0", 1, priority=2)
    put("shard0", 2, priority=4)
    put("shard1", 1, priority=2)
    put("shard3", 1, priority=0)
    held = cast.claim(now=None, limit=5)
    assert [lease.priority for lease in held] == [0, 2, 2, 4, 4]


@on_shards
def test_equally_old_heads_are_claimed_from_every_shard_first_now_and_then() -> None:
    queue, firsts = cast.queue(), Counter[int]()
    for alias in ALIASES:
        put(alias, 30, priority=3)
        with connections[alias].cursor() as cursor:
            cursor.execute("UPDATE queue_readyjob SET position = '2026-01-01'")
    for _ in range(40):
        [lease] = claiming.claim(ClaimRequest(queues=(queue,), limit=1))
        firsts[database.space_of(lease.job_id)] += 1
    assert set(firsts) == {0, 1, 2, 3}


@on_shards
def test_urgent_work_that_comes_during_a_claim_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not there when the claim looked, and was told of before it took what it had seen."""
    put("shard0", 1, priority=3)
    put("shard1", 1, priority=4)
    put("shard2", 5, priority=4)
    take, rounds = over_shards._QueueTurn._take, [0]

    def taken(self: Any, part: Any, aims: Any) -> Any:
        rounds[0] += 1
        if rounds[0] == 1:
            put("shard3", 1, priority=0)
        return take(self, part, aims)

    monkeypatch.setattr(over_shards._QueueTurn, "_take", taken)
    held = cast.claim(now=None, limit=4)
    assert [lease.priority for lease in held] == [0, 3, 4, 4]


@on_shards
@pytest.mark.parametrize("place", ["shard3", "shard0"])
def test_urgent_work_that_comes_between_two_bands_of_a_round_is_next(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere by what is told; on the shard that is being claimed from also if nobody tells."""
    for band in (1, 2, 3):
        put("shard0", 1, priority=band)
    put("shard1", 1, priority=4)
    start, calls = QueueClaim.start_band, list[int]()

    def started(self: Any, part: Any, band: int, *others: Any) -> Any:
        got = start(self, part, band, *others)
        if band == 1 and not calls:
            calls.append(band)
            if place == "shard0":
                wakeup.forget_hearer(summaries.hint)
            put(place, 1, priority=0)
        return got

    monkeypatch.setattr(QueueClaim, "start_band", started)
    held = cast.claim(now=None, limit=4)
    assert len(held) == 4
    assert 0 in {lease.priority for lease in held}


@on_shards
def test_what_a_shard_said_is_not_trusted_when_it_has_grown_old(monkeypatch: pytest.MonkeyPatch) -> None:
    put("shard0", 3, priority=4)
    put("shard1", 3, priority=4)
    cast.claim(now=None, limit=1)
    wakeup.forget_hearer(summaries.hint)  # nobody tells of what comes now
    put("shard2", 1, priority=0)
    time.sleep(STALE_S)
    assert cast.claim_one(now=None).priority == 0


@on_shards
def test_told_strict_work_is_claimed_where_it_is_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = ClaimRequest(queues=(cast.queue(),), limit=3)
    summaries.listen()
    put("shard1", 5, priority=1)
    assert claiming.claim_told(request) == []
    put("shard2", 2, priority=0)
    asked: list[str] = []
    start = QueueClaim.start_band

    def started(self: Any, *arguments: Any) -> Any:
        asked.append(self.alias)
        return start(self, *arguments)

    monkeypatch.setattr(QueueClaim, "start_band", started)
    assert [lease.priority for lease in claiming.claim_told(request)] == [0, 0]
    assert asked == ["shard2"]
    assert claiming.claim_told(ClaimRequest(queues=(cast.queue(),), limit=3, claim_key="k")) == []


@on_shards
def test_told_strict_work_goes_to_many_who_wait_until_a_start_is_owed_to_bulk() -> None:
    """Of the forty that eight consumers ask for together two are bulk's, but not the first ones."""
    request = ClaimRequest(queues=(cast.queue(),), limit=40)
    summaries.listen()
    put("shard1", 20, priority=4)
    put("shard2", 1, priority=0)
    assert [lease.priority for lease in claiming.claim_told(request)] == [0]
    put("shard2", 30, priority=0)
    assert [lease.priority for lease in claiming.claim_told(request)] == [0] * 18
    assert claiming.claim_told(request) == []
    assert 4 in {lease.priority for lease in claiming.claim(request, urgent_first=True)}


@on_shards
def test_strict_work_is_held_up_by_nothing_else_where_that_is_asked_for() -> None:
    request = ClaimRequest(queues=(cast.queue(),), limit=5)
    for alias in ALIASES:
        put(alias, 2, priority=2)
    put("shard3", 1, priority=0)
    assert [lease.priority for lease in claiming.claim(request, urgent_first=True)] == [0]
    assert [lease.priority for lease in claiming.claim(request, urgent_first=True)] == [2] * 5
    put("shard0", 1, priority=0)
    assert [lease.priority for lease in claiming.claim(request)] == [0, 2, 2, 2]


@on_shards
def test_told_work_never_exceeds_the_limit_and_leaves_bulk_its_floor() -> None:
    request = ClaimRequest(queues=(cast.queue(),), limit=2)
    summaries.listen()
    for alias in ALIASES:
        put(alias, 20, priority=0)
    put("shard0", 20, priority=4)
    held = []
    for _ in range(20):
        got = claiming.claim_told(request) or claiming.claim(request)
        assert len(got) <= 2
        held += got
        for mark in summaries._told.values():  # as if it were told anew
            mark.update(dict.fromkeys(mark, time.monotonic()))
    assert Counter(lease.priority for lease in held)[4] >= 1


@on_shards
def test_urgent_work_reaches_a_waiting_consumer_and_the_rest_follows_at_once() -> None:
    parked = hub.current()
    waiters = [parked.park(ClaimRequest(queues=(cast.queue(),), limit=2), FLEET, wait_s=10) for _ in range(2)]
    time.sleep(0.2)
    put("shard3", 1, priority=0)
    put("shard1", 5, priority=3)
    got = []
    for waiter in waiters:
        assert waiter is not None
        waiter.wait()
        got += waiter.leases()
    assert 0 in {lease.priority for lease in got}
    assert all(waiter is not None and waiter.leases() for waiter in waiters)


@on_shards
def test_who_waits_beside_one_that_got_urgent_work_need_not_wait_for_the_next_look() -> None:
    parked = hub.current()
    wakeup.forget_hearer(parked.hint)  # nobody tells: the hub finds it by a look of its own
    put("shard3", 1, priority=0)
    put("shard1", 5, priority=3)
    request, began = ClaimRequest(queues=(cast.queue(),), limit=2), time.monotonic()
    waiters = [parked.park(request, FLEET, wait_s=10) for _ in range(2)]
    got = []
    for waiter in waiters:
        assert waiter is not None
        waiter.wait()
        got.append([lease.priority for lease in waiter.leases()])
    assert sorted(got) == [[0], [3, 3]]
    assert time.monotonic() - began < POLL_SECONDS / 2


# Shards that are away


@on_shards
def test_a_shard_that_is_away_costs_only_its_own_work() -> None:
    ids = {alias: [cast.enqueue(now=None)] for alias in ALIASES}
    assert ids
    for alias in ALIASES:
        put(alias, 10)
    cut("shard1")
    try:
        began = time.monotonic()
        held = [lease for _ in range(6) for lease in cast.claim(now=None, limit=10)]
        assert len(held) >= 30
        assert 1 not in shards_of(held)
        for lease in held:
            cast.complete(lease)
        unknown: list[int] = []
        views, _ = listing.page(JobFilter(), scope=FLEET, before=None, limit=10, unknown=unknown)
        assert (len(views), unknown) == (10, [1])
        with pytest.raises(Unavailable):
            listing.page(JobFilter(), scope=FLEET, before=None, limit=10)
        found = stats.of(cast.queue(), FLEET)
        assert [number for number, reached in found.shards.items() if not reached] == [1]
        assert upkeep.promote() == 0
        assert upkeep.reap() == {}
        away: list[int] = []
        assert list(fsck.check(away)) == []
        assert away == [1]
        assert time.monotonic() - began < 15
    finally:
        heal()
    began = time.monotonic()
    while reach.is_down("shard1"):
        assert time.monotonic() - began < 2
        time.sleep(0.02)
    assert shards_of(cast.claim(now=None, limit=20))[1] >= 10


@on_shards
def test_when_no_shard_answers_a_claim_is_503() -> None:
    put("shard0", 1)
    for alias in ALIASES:
        cut(alias)
    try:
        with pytest.raises(Unavailable):
            cast.claim(now=None)
    finally:
        heal()


@on_shards
def test_control_may_be_away_while_work_goes_on() -> None:
    """Enqueue, claim and completion on the shards; who calls is as remembered."""
    from jobqueue.shards import map as shard_map
    from tenants import access

    token, text = access.create_token(tenant=None, scopes=["work"], actor=cast.OPS)
    header = f"Bearer {text}"
    access.authenticate(header)
    job = cast.new_job(request_key="k")
    cast.accepted(enqueue([job])[0])
    cast.claim(now=None)
    cut("default")
    try:
        access._cache = {key: (at - 6, caller) for key, (at, caller) in access._cache.items()}
        shard_map._held = (0.0, *shard_map._held[1:]) if shard_map._held else None
        assert access.authenticate(header).token_id == token.pk
        assert cast.accepted(enqueue([job])[0]).replayed
        for turn in range(20):
            cast.accepted(
                enqueue([cast.new_job(queue=job.queue, tenant_id=job.tenant_id, request_key=f"n-{turn}")])[0]
            )
        held = claiming.claim(ClaimRequest(queues=(job.queue,), limit=30))
        assert len(held) == 20
        for lease in held:
            cast.complete(lease)
        access._cache = {
            key: (at - access.AWAY_SECONDS, caller) for key, (at, caller) in access._cache.items()
        }
        with pytest.raises(Unavailable):
            access.authenticate(header)
    finally:
        heal()


@on_shards
def test_a_process_is_ready_without_control_if_it_ever_met_it_whoever_asked_for_that() -> None:
    """Of several web processes one alone may have been asked for `/readyz` before control went away."""
    reach.forget()
    database.give_connections_back()
    cast.acme()
    cut("default")
    try:
        list(public.faults_of_databases())
        away = public.databases_away()
        assert set(away) == {"default"}
        assert public.may_go_on(away)
        reach.forget()
        assert not public.may_go_on(away), "a process that begins meanwhile knows nobody"
    finally:
        heal()
        public._away.clear()


@on_shards
def test_without_control_a_lease_has_its_tenant_s_name_as_the_shards_were_told() -> None:
    tenant = cast.acme()
    put("shard1", 1, tenant_id=tenant.pk)
    held = cast.claim(now=None)
    names.forget()
    cut("default")
    try:
        assert names.slugs([tenant.pk]) == {tenant.pk: "acme"}
        reply = working.claimed(held, {held[0].queue_id: "default"})
        assert [one["tenant"] for one in json.loads(str(reply.body))["leases"]] == ["acme"]
        names.forget()
        with connections["shard1"].cursor() as cursor:
            cursor.execute("DELETE FROM tenants_tenantstate")
        assert names.slugs([tenant.pk]) == {tenant.pk: "acme"}  # another shard knows it
    finally:
        heal()


@on_shards
def test_a_shard_that_was_away_is_told_of_tenants_later() -> None:
    cast.acme()
    assert registry.repair() == 0
    cut("shard2")
    try:
        with pytest.raises(Unavailable):
            registry.create_tenant("globex", actor=cast.OPS)
    finally:
        heal_and_forget()
    assert registry.repair() == 1
    assert registry.repair() == 0
    assert ("globex",) in cast.read("SELECT slug FROM tenants_tenantstate", alias="shard2")


# Lists


@on_shards
def test_a_list_is_newest_first_over_all_shards() -> None:
    ids = [cast.enqueue(now=cast.at(turn)) for turn in range(23)]
    seen: list[int] = []
    before: listing.Place | None = None
    while True:
        page, before = listing.page(JobFilter(), scope=FLEET, before=before, limit=5)
        seen += [view.job_id for view in page]
        if before is None:
            break
    assert seen == ids[::-1]
