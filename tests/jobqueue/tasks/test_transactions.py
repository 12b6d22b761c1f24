"""An enqueue belongs to the caller's transaction where that is open on a shard, and leaves nothing behind in it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connections, transaction

from jobqueue import lanes, policies
from jobqueue.ids import parse_id
from jobqueue.tasks import placing
from jobqueue.tasks.framework import TaskResultStatus, task_enqueued
from tests import cast
from tests.cast import SHARD
from tests.tasks_cast import Site

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _known_policy(site: Site) -> None:
    """The shard knows the queue, as it does outside of tests that empty all tables."""
    policies.push_by_name("default")


class Undone(Exception):
    """Rolls a transaction back."""


def jobs() -> int:
    return int(cast.read("SELECT count(*) FROM queue_job")[0][0])


def settings_of_the_planner() -> Any:
    return cast.read(
        "SELECT current_setting('enable_seqscan'), current_setting('enable_hashjoin'),"
        " current_setting('enable_mergejoin'), current_setting('join_collapse_limit')"
    )


def roll_back(site: Site, *, using: str) -> None:
    with transaction.atomic(using=using):
        site.tasks.add.enqueue(1, 2)
        raise Undone


def test_a_rolled_back_transaction_takes_the_task_back(site: Site) -> None:
    with pytest.raises(Undone):
        roll_back(site, using=SHARD)
    assert jobs() == 0


def test_a_task_is_visible_when_its_transaction_commits(site: Site) -> None:
    with transaction.atomic(using=SHARD):
        result = site.tasks.add.enqueue(1, 2)
        with cast.second_session() as other:
            assert other.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)
    assert cast.place(parse_id(result.id)) == "readyjob"


def test_after_a_rollback_the_next_task_is_stored(site: Site) -> None:
    """Its lane was made in vain, if in the transaction; what was remembered of it must not matter."""
    with pytest.raises(Undone):
        roll_back(site, using=SHARD)
    assert cast.place(parse_id(site.tasks.add.enqueue(1, 2).id)) == "readyjob"


def test_the_caller_s_queries_are_planned_as_before(site: Site) -> None:
    with transaction.atomic(using=SHARD):
        cast.read("SELECT set_config('join_collapse_limit', '5', true)")
        before = settings_of_the_planner()
        site.tasks.add.enqueue(1, 2)
        assert settings_of_the_planner() == before


@pytest.mark.parametrize("lane", ["new", "asleep"])
def test_nobody_waits_for_the_end_of_a_transaction_that_has_enqueued(site: Site, lane: str) -> None:
    if lane == "asleep":
        site.tasks.add.enqueue(0, 0)
        cast.read("UPDATE queue_lane SET is_active = false RETURNING 1")
    has_enqueued, may_end = Event(), Event()

    def slow() -> None:
        with transaction.atomic(using=SHARD):
            site.tasks.add.enqueue(1, 2)
            has_enqueued.set()
            assert may_end.wait(60)

    def quick() -> str:
        assert has_enqueued.wait(60)
        try:
            cast.read("SELECT set_config('lock_timeout', '5s', false)")
            return str(site.tasks.add.enqueue(3, 4).id)
        finally:
            may_end.set()
            connections[SHARD].close()

    answers = cast.together(slow, quick)
    assert answers[0] is None
    assert cast.place(parse_id(str(answers[1]))) == "readyjob"


def test_two_transactions_with_tasks_in_opposite_order_do_not_deadlock(site: Site) -> None:
    first, second = Event(), Event()

    def run(tasks: list[Any], mine: Event, other: Event) -> None:
        with transaction.atomic(using=SHARD):
            tasks[0]()
            mine.set()
            assert other.wait(60)
            tasks[1]()

    def add() -> None:
        site.tasks.add.enqueue(1, 2)

    def shout() -> None:
        site.tasks.urgent.enqueue("x")

    answers = cast.together(
        lambda: run([add, shout], first, second), lambda: run([shout, add], second, first)
    )
    assert answers == [None, None]
    assert jobs() == 4


def test_a_lane_that_cannot_be_opened_beforehand_is_opened_in_the_transaction(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "LOCK_WAIT", "1ms")
    with cast.second_session() as other:
        other.execute("LOCK TABLE queue_lane IN SHARE MODE")

        def enqueue() -> str:
            with transaction.atomic(using=SHARD):
                return str(site.tasks.add.enqueue(1, 2).id)

        def let_go() -> None:
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
            while cast.read(query, [connections[SHARD].settings_dict["NAME"]]) == [(0,)]:
                pass
            other.rollback()

        answers = cast.together(enqueue, let_go)
    assert cast.place(parse_id(str(answers[0]))) == "readyjob"


# Transactions elsewhere


def test_elsewhere_a_task_is_enqueued_at_once(site: Site) -> None:
    with pytest.raises(Undone):
        roll_back(site, using="default")
    assert jobs() == 1


def test_on_commit_waits_for_the_caller_s_commit(site: Site) -> None:
    site.use(ON_COMMIT=True)
    seen: list[str] = []

    def receive(**told: Any) -> None:
        seen.append(told["task_result"].id)

    task_enqueued.connect(receive)
    try:
        with transaction.atomic(using="default"):
            result = site.tasks.add.enqueue(1, 2)
            assert (result.id, result.enqueued_at, jobs(), seen) == ("", None, 0, [])
    finally:
        task_enqueued.disconnect(receive)
    assert cast.place(parse_id(result.id)) == "readyjob"
    assert seen == [result.id]


def test_on_commit_forgets_a_task_whose_transaction_is_rolled_back(site: Site) -> None:
    site.use(ON_COMMIT=True)
    with pytest.raises(Undone):
        roll_back(site, using="default")
    assert jobs() == 0


def test_on_commit_without_a_transaction_enqueues_at_once(site: Site) -> None:
    site.use(ON_COMMIT=True)
    assert site.tasks.add.enqueue(1, 2).status == TaskResultStatus.READY
    assert jobs() == 1


# Several shards


@pytest.fixture
def two_shards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The control database as a second shard, behind the one that has the tables' rows in the tests."""
    monkeypatch.setattr(django_settings, "SHARD_ALIASES", {0: SHARD, 1: "default"})
    yield
    lanes.forget()


def test_of_several_shards_the_one_in_the_caller_s_transaction_takes_the_task(
    site: Site, two_shards: None
) -> None:
    for _ in range(8):
        with transaction.atomic(using=SHARD):
            result = site.tasks.add.enqueue(1, 2)
        assert parse_id(result.id) >> 48 == 0
    assert jobs() == 8


def test_without_a_transaction_no_shard_is_preferred(site: Site, two_shards: None) -> None:
    assert placing.open_shard() is None
    with transaction.atomic(using="default"):
        assert placing.open_shard() == "default"
