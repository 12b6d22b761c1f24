"""Slots of request keys: each key has one shard, before, while and after slots move."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import content
from jobqueue.enqueue import Accepted, enqueue
from jobqueue.policy.slots import SLOTS, balanced, slot_of
from jobqueue.shard_models import Ring, Shard, SlotMove
from jobqueue.shards import keys, moving, register, telling
from jobqueue.shards import map as shard_map
from jobsplatform import database, reach, sql
from jobsplatform.errors import Invalid, JobsPlatformError, Unavailable, UnknownOutcome
from tests import cast
from tests.shards.conftest import ALIASES, cut, heal

DATABASES = ["default", *ALIASES]
on_shards = pytest.mark.django_db(transaction=True, databases=DATABASES)


# The algebra


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=300), st.sets(st.integers(0, 6), min_size=1))
def test_balanced_owners_are_even_and_move_no_more_than_they_must(
    owners: list[int], shards: set[int]
) -> None:
    after = balanced(owners, shards)
    counts = Counter(after)
    assert set(counts) <= shards
    parts = [counts[number] for number in shards]
    assert max(parts) - min(parts) <= 1
    moved = sum(one != other for one, other in zip(owners, after, strict=True))
    most = sorted((Counter(owners)[number] for number in shards), reverse=True)
    whole, rest = divmod(len(owners), len(shards))
    kept = sum(min(held, whole + (place < rest)) for place, held in enumerate(most))
    assert moved == len(owners) - kept


def test_slots_without_a_shard_are_refused() -> None:
    with pytest.raises(ValueError, match="shard"):
        balanced([0], set())


@on_shards
def test_the_statement_finds_the_same_slots_as_python() -> None:
    acme, queue = cast.acme().pk, cast.queue().id
    names = [f"schlüssel-{turn}-日本" for turn in range(200)]
    cast_ids = [cast.enqueue(now=None, request_key=name) for name in names]
    ring = Ring.objects.get()
    found: dict[str, int] = {}
    for alias in ALIASES:
        params: dict[str, Any] = {
            "queue_id": None,
            "tenant_id": None,
            "other_queues": [],
            "other_tenants": [],
            "above": 0,
        }
        for slot in {slot_of(acme, queue, 0, name) for name in names}:
            more = {"slots": [slot], "limit": 1_000, "since": None}
            rows = sql.rows("jobqueue/slot_keys", params | more, alias=alias)
            found.update((row[4], slot) for row in rows if row[4] is not None)
    assert found == {name: slot_of(acme, queue, 0, name) for name in names}
    for job_id, name in zip(cast_ids, names, strict=True):
        assert ring.owners[found[name]] == database.space_of(job_id)


# Enqueues


@on_shards
def test_work_is_spread_and_a_key_finds_its_job_again() -> None:
    ids = [cast.enqueue(now=None, request_key=f"k-{turn}") for turn in range(60)]
    again = [cast.enqueue(now=None, request_key=f"k-{turn}") for turn in range(60)]
    assert ids == again
    assert len({database.space_of(job_id) for job_id in ids}) == 4
    unkeyed = {database.space_of(cast.enqueue(now=None)) for _ in range(60)}
    assert unkeyed == {0, 1, 2, 3}


@on_shards
def test_a_shard_refuses_a_slot_that_it_does_not_own() -> None:
    """Two processes with different maps cannot accept one key twice: the old one is refused and looks anew."""
    job = cast.new_job(request_key="order-1")
    first = cast.accepted(enqueue([job])[0])
    old = shard_map._held
    slot = content.slot(job.identity)
    ring = Ring.objects.get()
    target = (ring.owners[slot] + 1) % 4
    wanted = list(ring.owners)
    wanted[slot] = target
    assert moving.move(ring.pk, wanted) == 0
    shard_map._held = old  # as another process still has it
    again = cast.accepted(enqueue([job])[0])
    assert (again.job_id, again.replayed) == (first.job_id, True)
    other = cast.new_job(request_key="order-1", payload='"other"')
    shard_map._held = old
    refused = enqueue([other])[0]
    assert isinstance(refused, JobsPlatformError)
    assert refused.code == "request_key_conflict"
    where = [alias for alias in ALIASES if cast.read("SELECT 1 FROM queue_job", alias=alias)]
    assert where == [database.alias_of(first.job_id)]


@on_shards
def test_a_process_that_knows_one_shard_alone_takes_only_what_is_that_shard_s() -> None:
    cast.enqueue(now=None)
    settings.SHARD_ALIASES = {0: "shard0"}  # as a process that was started before there were several
    shard_map.forget()
    telling.tell_all(Ring.objects.get())
    jobs = [cast.new_job(request_key=f"k-{turn}") for turn in range(20)]
    owners = [Ring.objects.get().owners[content.slot(job.identity)] for job in jobs]
    outcomes = enqueue(jobs)
    assert [isinstance(outcome, Accepted) for outcome in outcomes] == [owner == 0 for owner in owners]
    assert database.space_of(cast.enqueue(now=None)) == 0


@on_shards
def test_all_slots_can_move_while_keys_are_used() -> None:
    acme = cast.acme()
    names = [f"k-{turn}" for turn in range(200)]
    ids = {name: cast.enqueue(now=None, request_key=name) for name in names}
    ring = Ring.objects.get()
    for _ in range(3):
        wanted = [random.randrange(4) for _ in range(SLOTS)]
        assert moving.move(ring.pk, wanted) == 0
        assert Ring.objects.get().owners == wanted
        assert {name: cast.enqueue(now=None, request_key=name) for name in names} == ids
    assert sum(len(cast.read("SELECT 1 FROM queue_job", alias=alias)) for alias in ALIASES) == len(names)
    assert acme is not None
    assert list(register.faults()) == []


@on_shards
def test_a_move_that_breaks_off_is_taken_up_and_nothing_is_accepted_twice() -> None:
    cast.enqueue(now=None, request_key="a")
    ring = Ring.objects.get()
    source = ring.owners[7]
    target = (source + 1) % 4
    slots = [slot for slot in range(SLOTS) if ring.owners[slot] == source]
    SlotMove.objects.create(ring=ring, slots=slots, source=source, target=target)
    moving._own(ring, slots, -1)
    shard_map.forget()
    key = next(
        name for name in map(str, range(10_000)) if slot_of(cast.acme().pk, cast.queue().id, 0, name) in slots
    )
    assert enqueue([cast.new_job(request_key=key), cast.new_job()])[0].status == 503  # type: ignore[union-attr]
    assert any("on their way" in fault for fault in register.faults())
    assert register.repair() >= 1
    assert not SlotMove.objects.exists()
    job = cast.accepted(enqueue([cast.new_job(request_key=key)])[0])
    assert database.space_of(job.job_id) == target


@on_shards
def test_a_late_copy_of_keys_changes_nothing_at_the_new_owner() -> None:
    """Two processes end one move: the slower one must not bring back what the faster one's owner has replaced."""
    cast.enqueue(now=None, request_key="a")
    old = Ring.objects.get()
    slot = slot_of(cast.acme().pk, cast.queue().id, 0, "a")
    source, wanted = old.owners[slot], list(old.owners)
    wanted[slot] = target = (source + 1) % 4
    moving.move(old.pk, wanted)
    with pytest.raises(Unavailable):
        keys.copy(old, [slot], source, target, spaces=[target], since=None)


@on_shards
def test_a_moved_key_ends_with_its_job() -> None:
    job_id = cast.enqueue(now=None, request_key="a")
    slot = slot_of(cast.acme().pk, cast.queue().id, 0, "a")
    ring = Ring.objects.get()
    wanted = list(ring.owners)
    wanted[slot] = target = (ring.owners[slot] + 1) % 4
    moving.move(ring.pk, wanted)
    alias, home = ALIASES[target], str(database.alias_of(job_id))
    assert cast.read("SELECT is_moved, job_purged_at IS NULL FROM queue_requestkey", alias=alias) == [
        (True, True)
    ]
    assert keys.date_moved() == 0
    for table in ("queue_readyjob", "queue_job"):
        with connections[home].cursor() as cursor:
            cursor.execute(f"DELETE FROM {table}")
    assert keys.date_moved() == 1
    assert cast.read("SELECT job_purged_at IS NULL FROM queue_requestkey", alias=alias) == [(False,)]


# Shards that are away


@on_shards
def test_keyed_work_of_a_shard_that_is_away_is_503_and_other_work_goes_elsewhere() -> None:
    cast.enqueue(now=None)
    cut("shard2")
    try:
        jobs = [cast.new_job(request_key=f"k-{turn}") for turn in range(80)]
        outcomes = enqueue(jobs)
        ring = Ring.objects.get()
        for job, outcome in zip(jobs, outcomes, strict=True):
            if ring.owners[content.slot(job.identity)] == 2:
                assert isinstance(outcome, (Unavailable, UnknownOutcome))
            else:
                assert isinstance(outcome, Accepted)
        for _ in range(30):
            assert database.space_of(cast.enqueue(now=None)) != 2
        assert reach.is_down("shard2")
    finally:
        heal()


# Operators' verbs


@on_shards
def test_a_drained_shard_gets_no_new_work_and_an_added_one_gets_its_part() -> None:
    ids = [cast.enqueue(now=None, request_key=f"k-{turn}") for turn in range(40)]
    assert register.drain(1, actor=cast.OPS) == 0
    assert 1 not in Ring.objects.get().owners
    assert [cast.enqueue(now=None, request_key=f"k-{turn}") for turn in range(40)] == ids
    assert 1 not in {database.space_of(cast.enqueue(now=None)) for _ in range(40)}
    assert register.add(1, actor=cast.OPS) == 0
    assert Ring.objects.get().owners.count(1) == SLOTS // 4
    assert list(register.faults()) == []


@on_shards
def test_the_last_shard_cannot_be_drained() -> None:
    cast.enqueue(now=None)
    for number in (0, 1, 2):
        register.drain(number, actor=cast.OPS)
    with pytest.raises(Invalid):
        register.drain(3, actor=cast.OPS)


@on_shards
def test_a_platform_with_one_shard_grows_and_keeps_its_keys() -> None:
    Shard.objects.exclude(number=0).delete()
    shard_map.forget()
    ids = [cast.enqueue(now=None, request_key=f"k-{turn}") for turn in range(50)]
    assert {database.space_of(job_id) for job_id in ids} == {0}
    assert not Ring.objects.exists()
    assert register.add(1, actor=cast.OPS) == 0
    assert Ring.objects.get().owners.count(1) == SLOTS // 2
    assert [cast.enqueue(now=None, request_key=f"k-{turn}") for turn in range(50)] == ids
    assert {database.space_of(cast.enqueue(now=None)) for _ in range(40)} == {0, 1}


@on_shards
def test_a_pinned_queue_takes_new_work_at_once_and_its_keys_along() -> None:
    queue = cast.queue("ordered")
    ids = [cast.enqueue(now=None, queue=queue, request_key=f"k-{turn}") for turn in range(40)]
    other = [cast.enqueue(now=None, request_key=f"k-{turn}") for turn in range(40)]
    assert register.pin([2], queue="ordered", actor=cast.OPS) == 0
    assert [cast.enqueue(now=None, queue=queue, request_key=f"k-{turn}") for turn in range(40)] == ids
    fresh = {
        database.space_of(cast.enqueue(now=None, queue=queue, request_key=f"n-{turn}")) for turn in range(40)
    }
    assert fresh | {database.space_of(cast.enqueue(now=None, queue=queue)) for _ in range(20)} == {2}
    assert [cast.enqueue(now=None, request_key=f"k-{turn}") for turn in range(40)] == other
    assert list(register.faults()) == []
    register.unpin(queue="ordered", actor=cast.OPS)
    assert [cast.enqueue(now=None, queue=queue, request_key=f"k-{turn}") for turn in range(40)] == ids


@on_shards
def test_a_queue_s_pin_finds_the_keys_of_a_pinned_tenant() -> None:
    queue = cast.queue("ordered")
    cast.enqueue(now=None)
    register.pin([1], tenant="acme", actor=cast.OPS)
    ids = [cast.enqueue(now=None, queue=queue, request_key=f"k-{turn}") for turn in range(40)]
    assert {database.space_of(job_id) for job_id in ids} == {1}
    register.pin([3], queue="ordered", actor=cast.OPS)
    assert [cast.enqueue(now=None, queue=queue, request_key=f"k-{turn}") for turn in range(40)] == ids
    assert database.space_of(cast.enqueue(now=None, queue=queue)) == 3


@on_shards
def test_a_pin_is_refused_whole_when_a_shard_is_away() -> None:
    cast.queue("ordered")
    cast.enqueue(now=None)
    cut("shard3")
    try:
        with pytest.raises(Unavailable):
            register.pin([2], queue="ordered", actor=cast.OPS)
        assert Ring.objects.count() == 1
    finally:
        heal()
    while reach.is_down("shard3"):
        time.sleep(0.02)
    register.repair()
    assert list(register.faults()) == []


@on_shards
def test_a_shard_with_a_new_id_space_keeps_its_old_jobs() -> None:
    register.drain(0, actor=cast.OPS)
    register.drain(1, actor=cast.OPS)
    register.drain(2, actor=cast.OPS)
    old = cast.enqueue(now=None)
    space = register.new_space(3, actor=cast.OPS, reason="restored")
    new = cast.enqueue(now=None)
    assert space >= database.LATER_SPACES
    assert (database.space_of(old), database.space_of(new)) == (3, space)
    assert database.alias_of(old) == database.alias_of(new) == "shard3"
    assert database.alias_of((space + 1) << 48 | 1) is None
    assert list(register.faults()) == []
