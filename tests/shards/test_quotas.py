"""Limits over four shards: exact while shares move, and while a shard is away."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import datetime

import pytest
from django.db import connections

from jobqueue import dependencies, judging
from jobqueue.claiming import Lease
from jobqueue.enqueue import Accepted, NewJob, alias_of_key, enqueue
from jobqueue.models import Dependency
from jobqueue.shard_models import DependencyGrant
from jobqueue.shards import limited, register, shares
from jobsplatform import database
from jobsplatform.errors import JobsPlatformError, Unavailable
from tenants import registry
from tenants.models import LimitGrant
from tests import cast
from tests.shards.conftest import ALIASES, cut, heal, heal_and_forget
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
    scope = next(limited.of_quota(tenant.quota_set.get()))
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


def keyed_on(number: int, count: int) -> list[NewJob]:
    """Jobs whose keys belong to one shard: a refusal there is a refusal."""
    cast.enqueue(now=None, tenant_id=cast.globex().pk)  # so that there is a map
    jobs = (cast.new_job(request_key=f"k-{turn}") for turn in itertools.count())
    here = (job for job in jobs if alias_of_key(job) == ALIASES[number])
    return list(itertools.islice(here, count))


def taken(jobs: Iterable[NewJob]) -> int:
    """How many are accepted, each alone."""
    count = 0
    for job in jobs:
        with contextlib.suppress(Unavailable):  # the last shard that was tried is away
            count += isinstance(enqueue([job])[0], Accepted)
    return count


@on_shards
def test_a_rate_goes_to_the_shard_that_is_asked_and_is_never_exceeded() -> None:
    """Twenty at once, next to nothing after them: one shard gets them all, wherever they were before."""
    cast.acme()
    registry.set_quota("acme", {"enqueue_rate_per_s": 0.001, "enqueue_burst": 20}, actor=cast.OPS)
    jobs = keyed_on(3, 60)
    assert taken(jobs[:20]) == 5
    for turn in range(4):
        shares.balance()
        assert granted() <= 20
        taken(jobs[20 + 10 * turn : 30 + 10 * turn])
    assert len(cast.read("SELECT 1 FROM queue_job WHERE request_key IS NOT NULL", alias="shard3")) == 20
    assert taken(cast.new_job() for _ in range(10)) == 0, "nowhere is anything left"


@on_shards
def test_tokens_that_are_spent_stay_where_they_were_spent() -> None:
    """Else the share's next place would begin with a full burst again."""
    cast.acme()
    registry.set_quota("acme", {"enqueue_rate_per_s": 0.001, "enqueue_burst": 8}, actor=cast.OPS)
    first, second = keyed_on(0, 20), keyed_on(1, 20)
    total = 0
    for turn in range(6):
        total += taken(first[turn * 2 : turn * 2 + 2]) + taken(second[turn * 2 : turn * 2 + 2])
        shares.balance()
    assert total == 8


@on_shards
def test_a_rate_refills_over_shards_as_fast_as_the_limit_says_and_no_faster() -> None:
    cast.acme()
    cast.enqueue(now=None, tenant_id=cast.globex().pk)
    began = time.monotonic()
    registry.set_quota("acme", {"enqueue_rate_per_s": 20, "enqueue_burst": 8}, actor=cast.OPS)
    count = 0
    while time.monotonic() - began < 3:
        count += taken(cast.new_job() for _ in range(4))
        shares.balance()
    lasted_s = time.monotonic() - began
    assert 20 < count <= 8 + 20 * lasted_s + 1


@on_shards
def test_a_burst_may_be_smaller_than_the_number_of_shards() -> None:
    cast.acme()
    cast.enqueue(now=None, tenant_id=cast.globex().pk)
    registry.set_quota("acme", {"enqueue_rate_per_s": 0.001, "enqueue_burst": 2}, actor=cast.OPS)
    assert taken(cast.new_job() for _ in range(10)) == 2
    cast.globex()
    register.pin([0, 2], tenant="globex", actor=cast.OPS)
    registry.set_quota("globex", {"enqueue_rate_per_s": 0.001, "enqueue_burst": 2}, actor=cast.OPS)
    found = LimitGrant.objects.filter(tenant=cast.globex())
    assert dict(found.values_list("shard", "granted")) == {0: 1, 1: 0, 2: 1, 3: 0}


@on_shards
def test_a_shard_that_is_away_keeps_its_part_of_a_rate() -> None:
    cast.acme()
    registry.set_quota("acme", {"enqueue_rate_per_s": 0.001, "enqueue_burst": 8}, actor=cast.OPS)
    cast.enqueue(now=None, tenant_id=cast.globex().pk)
    cut("shard1")
    try:
        count = 0
        for _ in range(4):
            count += taken(cast.new_job() for _ in range(6))
            shares.balance()
        assert count == 6
    finally:
        heal_and_forget()
    count += taken(cast.new_job() for _ in range(6))
    assert count == 8


def bears(**limits: object) -> Dependency:
    return dependencies.set_dependency("bank", limits, actor=cast.OPS)


def put_for_bank(alias: str, count: int) -> None:
    put(alias, count, dependency="bank")


@on_shards
def test_what_a_dependency_bears_is_one_limit_and_goes_where_its_work_is() -> None:
    """Fewer than there are shards, too."""
    for alias in ALIASES:
        put_for_bank(alias, 1)
    for lease in cast.claim(now=None, limit=10):
        cast.complete(lease)
    bears(max_running=3)
    for number, alias in ((3, "shard3"), (1, "shard1")):
        put_for_bank(alias, 20)
        held: list[Lease] = []
        for _ in range(5):
            held += cast.claim(now=None, limit=20)
            shares.balance()
            assert sum(DependencyGrant.objects.values_list("granted", flat=True)) <= 3
            assert len(held) == running() <= 3
        assert len(held) == 3, number
        for lease in held:
            cast.complete(lease)
        with connections[alias].cursor() as cursor:
            cursor.execute("DELETE FROM queue_readyjob")


@on_shards
def test_a_dependency_s_rate_is_one_rate_over_all_shards() -> None:
    """Ten starts a window of an hour, wherever the work is by then."""
    for alias in ALIASES:
        put_for_bank(alias, 1)
    for lease in cast.claim(now=None, limit=10):
        cast.complete(lease)
    bears(rate_per_s=10 / 3_600, rate_burst=10)
    for alias in ("shard2", "shard0"):
        put_for_bank(alias, 20)
        for _ in range(4):
            for lease in cast.claim(now=None, limit=20):
                cast.complete(lease)
            shares.balance()
    started = sum(cast.read("SELECT count(*) FROM queue_attempt", alias=alias)[0][0] for alias in ALIASES)
    assert started == 10, "four before there was a rate, which count"


@on_shards
def test_a_shard_that_is_away_keeps_its_share_of_a_dependency() -> None:
    for alias in ALIASES:
        put_for_bank(alias, 10)
    bears(max_running=8)
    cut("shard1")
    try:
        for _ in range(4):
            cast.claim(now=None, limit=20)
            shares.balance()
        here = [alias for alias in ALIASES if alias != "shard1"]
        assert sum(len(cast.read("SELECT 1 FROM queue_lease", alias=alias)) for alias in here) == 6
        register.fence(1, actor=cast.OPS)
        shares.balance()
        cast.claim(now=None, limit=20)
        assert sum(len(cast.read("SELECT 1 FROM queue_lease", alias=alias)) for alias in here) == 8
    finally:
        heal()


@on_shards
def test_a_limit_that_overload_has_halved_grows_again_from_there() -> None:
    put_for_bank("shard0", 20)
    bears(max_running=8)
    for _ in range(3):
        held = cast.claim(now=None, limit=20)
        shares.balance()
        if len(held) == 8:
            break
        for lease in held:
            cast.release(lease)
    for lease in cast.claim(now=None, limit=20) or held:
        cast.fail(lease, error_class="overload")
    judging.judge()
    [(halved, share)] = cast.read(
        "SELECT limit_now, running_share FROM queue_dependencystate", alias="shard0"
    )
    assert 1 <= halved <= share / 2 + 1
    shares.balance()
    assert cast.read("SELECT limit_now FROM queue_dependencystate", alias="shard0")[0][0] <= halved + 1


@on_shards
def test_the_size_of_a_payload_is_limited_alike_on_every_shard() -> None:
    cast.acme()
    registry.set_quota("acme", {"max_payload_bytes": 10}, actor=cast.OPS)
    assert taken(cast.new_job(payload='"small"') for _ in range(8)) == 8
    assert taken(cast.new_job(payload='"larger than ten"') for _ in range(8)) == 0


@on_shards
def test_many_claimers_never_pass_a_limit_while_shards_come_and_go() -> None:
    """S155, S92: a short form; 12 claimers, one shard cut off at random."""
    chaos(claimers=12, seconds=8, away_s=2.0)


@pytest.fixture
def small_pools() -> Iterator[None]:
    """What two hundred threads share, so that the server has a connection for every pool."""

    def resize(size: int) -> None:
        for alias in ("default", *ALIASES):
            connections[alias].close_pool()  # type: ignore[attr-defined]  # of the PostgreSQL backend
            connections.settings[alias]["OPTIONS"]["pool"]["max_size"] = size
            connections[alias].settings_dict["OPTIONS"]["pool"]["max_size"] = size

    before = connections.settings["shard0"]["OPTIONS"]["pool"]["max_size"]
    resize(25)
    yield
    for alias in ("default", *ALIASES):
        connections[alias].close()
    resize(before)


@on_shards
@pytest.mark.slow
@pytest.mark.usefixtures("small_pools")
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
                finally:
                    database.give_connections_back()
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
    heal_and_forget()
    print(f"{claimers} claimers: {done[0]} jobs done, at most {most_at_once()} at once")
    assert most[0] <= 10
    assert 5 <= most_at_once() <= 10
    assert granted() <= 10
    assert done[0] > 50


def most_at_once() -> int:
    """The most jobs that ever ran at one instant, by what the databases wrote down: one server, and so one clock.

    Whoever gets a place that another left begins after that one's end was committed, so ends come before beginnings.
    """
    steps: list[tuple[datetime, int]] = []
    for alias in ALIASES:
        for begun, ended in cast.read("SELECT claimed_at, ended_at FROM queue_attempt", alias=alias):
            steps += [(begun, 1), (ended, -1)]
        steps += [(begun, 1) for (begun,) in cast.read("SELECT claimed_at FROM queue_lease", alias=alias)]
    return max(itertools.accumulate(step for _, step in sorted(steps)), default=0)


def _complete(lease: object, until: float) -> None:
    """Until the shard has heard of it: a lease on a shard that is away runs on."""
    while True:
        try:
            cast.complete(lease)  # type: ignore[arg-type]
            database.give_connections_back()
            return
        except JobsPlatformError as error:
            if error.code not in ("unavailable", "unknown_outcome"):
                return
            assert time.monotonic() < until
            time.sleep(0.1)
