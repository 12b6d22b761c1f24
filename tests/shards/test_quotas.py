"""Limits over four shards: exact while shares move, and while a shard is away."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import pytest
from django.db import connections

from jobqueue.enqueue import Accepted, enqueue
from jobqueue.shards import register, shares
from jobsplatform.errors import Invalid, JobsPlatformError
from tenants import registry
from tenants.models import LimitGrant
from tests import cast
from tests.shards.conftest import ALIASES, cut, heal
from tests.shards.test_claims import put

on_shards = pytest.mark.django_db(transaction=True, databases=["default", *ALIASES])


def running() -> int:
    return sum(cast.read("SELECT count(*) FROM queue_lease", alias=alias)[0][0] for alias in ALIASES)


def granted() -> int:
    return sum(LimitGrant.objects.values_list("granted", flat=True))


@on_shards
def test_a_limit_is_one_limit_over_all_shards() -> None:
    cast.acme()
    registry.set_quota("acme", {"max_running": 10}, actor=cast.OPS)
    for alias in ALIASES:
        put(alias, 20)
    held = [lease for _ in range(10) for lease in cast.claim(now=None, limit=20)]
    assert len(held) == running() == 10
    cast.complete(held[0])
    assert len(cast.claim(now=None, limit=20)) <= 1
    assert running() <= 10


@on_shards
def test_shares_go_where_the_work_is() -> None:
    cast.acme()
    registry.set_quota("acme", {"max_running": 10}, actor=cast.OPS)
    put("shard3", 20)
    for _ in range(3):
        cast.claim(now=None, limit=20)
        shares.balance()
        assert granted() <= 10
    cast.claim(now=None, limit=20)
    assert running() == 10


@on_shards
def test_a_limit_of_one_reaches_every_shard_in_turn() -> None:
    cast.acme()
    registry.set_quota("acme", {"max_running": 1}, actor=cast.OPS)
    for alias in ALIASES:
        put(alias, 2)
    done = 0
    for _ in range(40):
        for lease in cast.claim(now=None, limit=5):
            assert running() == 1
            cast.complete(lease)
            done += 1
        shares.balance()
        assert granted() <= 1
        if done == 8:
            break
    assert done == 8


@on_shards
def test_a_lowered_limit_takes_nothing_from_those_who_run() -> None:
    cast.acme()
    registry.set_quota("acme", {"max_running": 8}, actor=cast.OPS)
    for alias in ALIASES:
        put(alias, 5)
    held = cast.claim(now=None, limit=8)
    assert len(held) == 8
    registry.set_quota("acme", {"max_running": 2}, actor=cast.OPS)
    assert cast.claim(now=None, limit=8) == []
    for lease in held[:6]:
        cast.complete(lease)
    shares.balance()
    assert cast.claim(now=None, limit=8) == []
    cast.complete(held[6])
    shares.balance()
    assert len(cast.claim(now=None, limit=8)) == 1


@on_shards
def test_a_shard_that_is_away_keeps_its_share_until_it_is_fenced() -> None:
    """S155."""
    cast.acme()
    registry.set_quota("acme", {"max_running": 8}, actor=cast.OPS)
    for alias in ALIASES:
        put(alias, 10)
    cut("shard1")
    try:
        for _ in range(4):
            cast.claim(now=None, limit=20)
            shares.balance()
        assert (
            sum(len(cast.read("SELECT 1 FROM queue_lease", alias=a)) for a in ALIASES if a != "shard1") == 6
        )
        register.fence(1, actor=cast.OPS)
        shares.balance()
        cast.claim(now=None, limit=20)
        assert (
            sum(len(cast.read("SELECT 1 FROM queue_lease", alias=a)) for a in ALIASES if a != "shard1") == 8
        )
    finally:
        heal()


@on_shards
def test_a_grant_that_did_not_arrive_is_never_used_later() -> None:
    """A raise that is late by a lowering changes nothing: versions say so."""
    tenant = cast.acme()
    registry.set_quota("acme", {"max_running": 8}, actor=cast.OPS)
    scope = next(iter(shares._scopes(tenant.quota_set.all())))
    late = LimitGrant.objects.get(shard=1)
    late.granted, late.version = 8, late.version  # as it was sent, and has not arrived
    put("shard0", 20)
    cast.claim(now=None, limit=20)
    shares.balance()
    shares._put(scope, late)
    rows = cast.read("SELECT share FROM tenants_limitshare", alias="shard1")
    assert rows == [(LimitGrant.objects.get(shard=1).granted,)]


@on_shards
def test_depth_is_one_limit_over_all_shards() -> None:
    cast.acme()
    registry.set_quota("acme", {"max_depth": 10}, actor=cast.OPS)
    taken = 0
    for _ in range(30):
        taken += isinstance(enqueue([cast.new_job()])[0], Accepted)
        shares.balance()
    assert taken == 10


@on_shards
def test_a_burst_smaller_than_the_shards_must_be_pinned_first() -> None:
    cast.acme()
    with pytest.raises(Invalid):
        registry.set_quota("acme", {"enqueue_rate_per_s": 0.01, "enqueue_burst": 2}, actor=cast.OPS)
    cast.enqueue(now=None)
    register.pin([0, 2], tenant="acme", actor=cast.OPS)
    registry.set_quota("acme", {"enqueue_rate_per_s": 0.01, "enqueue_burst": 2}, actor=cast.OPS)
    accepted = [isinstance(enqueue([cast.new_job()])[0], Accepted) for _ in range(10)]
    assert sum(accepted) == 2


@on_shards
def test_many_claimers_never_pass_a_limit_while_shards_come_and_go() -> None:
    """S155, S92: a short form; 12 claimers, one shard cut off at random."""
    chaos(claimers=12, seconds=8, away_s=2.0)


@on_shards
@pytest.mark.slow
def test_two_hundred_claimers_never_pass_a_limit_while_a_shard_is_cut_off_for_half_a_minute() -> None:
    """S155."""
    chaos(claimers=200, seconds=45, away_s=30.0)


def chaos(*, claimers: int, seconds: float, away_s: float) -> None:
    """Claim, hold for a moment and complete, with shares moving; a second session counts what runs, never above 10."""
    cast.acme()
    registry.set_quota("acme", {"max_running": 10}, actor=cast.OPS)
    for alias in ALIASES:
        put(alias, 1)
        jobs = [cast.new_job()] * 400
        from django.db import transaction

        with transaction.atomic(using=alias):
            enqueue(jobs, within=alias)
    queue = cast.queue()
    ends, done, most = time.monotonic() + seconds, [0], [0]
    lock, held_now = threading.Lock(), [0]

    def work() -> None:
        rng = random.Random()
        try:
            while time.monotonic() < ends:
                try:
                    held = cast.claim(queue.name, now=None, limit=rng.choice([1, 3, 10]), lease_s=120)
                except JobsPlatformError:
                    time.sleep(0.05)
                    continue
                with lock:
                    held_now[0] += len(held)
                    most[0] = max(most[0], held_now[0])
                time.sleep(rng.uniform(0, 0.03))
                for lease in held:
                    with lock:
                        held_now[0] -= 1  # before it ends: what is counted here is never more than what runs
                    _complete(lease, ends + 60)
                    done[0] += 1
                if not held:
                    time.sleep(0.02)
        finally:
            connections.close_all()

    def keep() -> None:
        try:
            while time.monotonic() < ends:
                with contextlib.suppress(JobsPlatformError):
                    shares.balance()
                time.sleep(0.2)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(claimers)] + [threading.Thread(target=keep)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    cut("shard2")
    time.sleep(away_s)
    heal()
    for thread in threads:
        thread.join()
    assert most[0] <= 10
    assert most[0] >= 5
    assert granted() <= 10
    assert done[0] > 50


def _complete(lease: object, until: float) -> None:
    """Until the shard has heard of it: a lease on a shard that is away runs on."""
    while True:
        try:
            cast.complete(lease)  # type: ignore[arg-type]
            return
        except JobsPlatformError as error:
            if error.code not in ("unavailable", "unknown_outcome"):
                return
            assert time.monotonic() < until
            time.sleep(0.1)
