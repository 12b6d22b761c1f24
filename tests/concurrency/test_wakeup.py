"""Wake-ups over real connections: after the commit, coalesced, heard by others, found again after a loss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import transaction
from prometheus_client import REGISTRY

from jobqueue import upkeep, wakeup
from jobqueue.claiming import ClaimRequest
from jobqueue.hub import notes, sessions
from jobqueue.hub.core import Hub
from jobqueue.hub.listener import Listener
from jobqueue.hub.notifier import Notifier
from jobqueue.types import FLEET
from jobqueue.wakeup import Mark
from tests import cast
from tests.cast import SHARD, at, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def told() -> Iterator[list[tuple[str, frozenset[Mark]]]]:
    """Every wake-up of this process."""
    found: list[tuple[str, frozenset[Mark]]] = []
    end = wakeup.hear(lambda alias, marks: found.append((alias, marks)))
    yield found
    end()


@pytest.fixture
def notifier() -> Iterator[Notifier]:
    made = Notifier("test.sender")
    yield made
    made.stop()


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """The text of every notification, as another session gets it."""
    found: list[str] = []
    over = threading.Event()
    ready = threading.Event()

    def listen() -> None:
        with sessions.connect(SHARD, "test") as connection:
            connection.execute(f"LISTEN {sessions.CHANNEL}")
            ready.set()
            while not over.is_set():
                found.extend(one.payload for one in connection.notifies(timeout=0.1))

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(30)
    yield found
    over.set()
    thread.join(30)


@pytest.fixture
def listening() -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def listen(
        hear: Any = lambda alias, marks: None, resync: Any = lambda: None, sender: str = "me"
    ) -> Listener:
        made.append(Listener(SHARD, sender, hear, resync))
        made[-1].start()
        wait_until(lambda: made[-1].is_up)
        return made[-1]

    yield listen
    for one in made:
        one.stop()


def listener_sessions() -> list[int]:
    found = cast.read(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'jobsplatform listener'"
        " AND datname = current_database()"
    )
    return [pid for (pid,) in found]


# What is told, and when


def test_an_enqueue_tells_its_band_after_its_commit(told: list[Any]) -> None:
    queue = cast.queue()
    with transaction.atomic(using=SHARD):
        cast.enqueue(priority=0, now=None)
        assert told == []
    assert told == [(SHARD, frozenset({Mark(queue.id, 0)}))]


def test_what_is_rolled_back_is_never_told(told: list[Any]) -> None:
    with transaction.atomic(using=SHARD):
        cast.enqueue(now=None)
        transaction.set_rollback(True, using=SHARD)
    assert told == []


def test_a_delayed_job_is_told_when_it_is_promoted(told: list[Any]) -> None:
    cast.enqueue(delay_s=5, now=at(0))
    assert told == []
    upkeep.promote(now=at(5))
    assert told == [(SHARD, frozenset({Mark(cast.queue().id, 2)}))]


def test_a_released_and_a_lapsed_lease_are_told(told: list[Any]) -> None:
    released = cast.leased(now=at(0))
    told.clear()
    cast.release(released, now=at(1))
    assert len(told) == 1
    cast.claim_one(now=at(2))
    upkeep.reap(now=at(40))
    assert told == [(SHARD, frozenset({Mark(cast.queue().id, 2)}))] * 2


def test_a_notification_never_travels_in_the_enqueue_s_transaction(heard: list[str]) -> None:
    """Only the notifier sends; without it an enqueue is silent."""
    cast.enqueue(now=None)
    time.sleep(0.5)
    assert heard == []


def test_many_wake_ups_of_a_moment_are_one_notification(heard: list[str], notifier: Notifier) -> None:
    for _ in range(500):
        notifier.tell(SHARD, frozenset({Mark(1, 2), Mark(1, 3)}))
    wait_until(lambda: heard)
    time.sleep(0.3)
    assert 1 <= len(heard) < 50
    assert notes.read(heard[0])[1] == {Mark(1, 2), Mark(1, 3)}


def test_its_thread_is_woken_only_to_tell_earlier(
    notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(notifier, "_thread", threading.current_thread())
        patch.setattr(notifier._changed, "notify", lambda: woken.append(1))
        for priority, times in ((2, 1), (3, 1), (2, 1), (0, 2), (2, 2)):
            notifier.tell(SHARD, frozenset({Mark(1, priority)}))
            assert len(woken) == times


def test_a_notifier_whose_session_was_ended_tells_over_a_new_one(
    heard: list[str], notifier: Notifier
) -> None:
    notifier.tell(SHARD, frozenset({Mark(1, 0)}))
    wait_until(lambda: len(heard) == 1)
    cast.read(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'jobsplatform notifier'"
    )
    notifier.tell(SHARD, frozenset({Mark(2, 0)}))
    wait_until(lambda: len(heard) == 2)


def test_urgent_work_is_told_by_the_thread_that_made_it_ready(
    heard: list[str], notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier.tell(SHARD, frozenset({Mark(1, 0)}))
    wait_until(lambda: len(heard) == 1)
    notifier.flush()  # its thread has the connection no more
    monkeypatch.setattr(notifier, "_send", lambda *told: pytest.fail("the thread told it"))
    for number in range(2, 5):
        time.sleep(0.05)  # more than between two notifications
        notifier.tell(SHARD, frozenset({Mark(number, 1)}))
    wait_until(lambda: len(heard) == 4)
    assert notifier._marks == {}


def test_what_the_thread_tells_waits_for_what_was_posted(heard: list[str], notifier: Notifier) -> None:
    for number in range(1, 200):
        notifier.tell(SHARD, frozenset({Mark(number, number % 3)}))
        time.sleep(0.0005)
    told = set(range(1, 200))
    wait_until(lambda: {mark.queue_id for text in heard for mark in notes.read(text)[1]} == told)


def test_flushing_leaves_nothing_untold(heard: list[str], notifier: Notifier) -> None:
    notifier.tell(SHARD, frozenset({Mark(1, 4)}))
    notifier.flush()
    wait_until(lambda: len(heard) == 1)


# Notes


@pytest.mark.parametrize("count", [1, 100, 5_000])
def test_notes_are_read_as_they_were_written_and_fit_into_a_notification(count: int) -> None:
    marks = frozenset(Mark(10**9 + n, n % 5) for n in range(count))
    texts = list(notes.write("me", marks))
    assert all(len(text.encode()) < 8_000 for text in texts)
    assert frozenset().union(*(notes.read(text)[1] for text in texts)) == marks


@pytest.mark.parametrize("text", ["", "x", "me 1", "me 1:2:3 a:b -1:2", "me " + "9" * 30 + ":1"])
def test_a_stranger_s_notification_does_no_harm(text: str) -> None:
    assert notes.read(text)[1] == frozenset()


# Who hears


def test_a_listener_hears_others_and_not_itself(
    listening: Callable[..., Listener], notifier: Notifier
) -> None:
    mine: list[Any] = []
    others: list[Any] = []
    listening(lambda alias, marks: mine.append(marks), sender="test.sender")
    listening(lambda alias, marks: others.append(marks), sender="somebody")
    notifier.tell(SHARD, frozenset({Mark(1, 0)}))
    wait_until(lambda: others == [frozenset({Mark(1, 0)})])
    assert mine == []


def test_a_lost_listener_comes_back_and_everyone_is_looked_for(listening: Callable[..., Listener]) -> None:
    """S118."""
    resyncs: list[float] = []
    listener = listening(resync=lambda: resyncs.append(time.monotonic()))
    assert len(resyncs) == 1
    (pid,) = listener_sessions()
    cast.read("SELECT pg_terminate_backend(%s)", [pid])
    wait_until(lambda: len(resyncs) == 2)
    wait_until(lambda: listener.is_up)
    assert listener_sessions() != [pid]


def test_the_gauge_says_whether_a_process_listens(
    listening: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gauge() -> float | None:
        return REGISTRY.get_sample_value("jobsplatform_listener_up", {"database": SHARD})

    def refuse(alias: str, name: str) -> None:
        raise psycopg.OperationalError("away")

    listening()
    assert gauge() == 1
    (pid,) = listener_sessions()
    connect = sessions.connect
    monkeypatch.setattr(sessions, "connect", refuse)
    cast.read("SELECT pg_terminate_backend(%s)", [pid])
    wait_until(lambda: gauge() == 0)
    monkeypatch.setattr(sessions, "connect", connect)
    wait_until(lambda: gauge() == 1)


def test_work_that_comes_while_the_listener_is_gone_is_found_by_looking() -> None:
    """S118: no hint, no LISTEN, and the job is leased within a poll."""
    hub = Hub(parked_max=10, poll_s=0.3)
    try:
        waiter = hub.park(ClaimRequest(queues=(cast.queue(),)), FLEET, 20)
        assert waiter is not None
        wait_until(lambda: not hub._busy)
        job_id = cast.enqueue(now=None)
        waiter.wait()
        assert [lease.job_id for lease in waiter.leases()] == [job_id]
    finally:
        hub.stop()


def test_a_parked_consumer_of_another_process_is_woken_by_a_notification(
    listening: Callable[..., Listener], notifier: Notifier
) -> None:
    hub = Hub(parked_max=10, poll_s=600)  # nothing but the notification wakes it
    try:
        listening(hub.hint)
        waiter = hub.park(ClaimRequest(queues=(cast.queue(),)), FLEET, 60)
        assert waiter is not None
        wait_until(lambda: next(iter(hub._rows.values())).looked_at > 0 and not hub._busy)
        job_id = cast.enqueue(now=None)
        notifier.tell(SHARD, frozenset({Mark(cast.queue().id, 2)}))
        waiter.wait()
        assert [lease.job_id for lease in waiter.leases()] == [job_id]
    finally:
        hub.stop()


def test_a_direct_session_is_told_from_a_pooled_one() -> None:
    with sessions.connect(SHARD, "test") as connection:
        assert not sessions.is_pooled(connection)
        assert isinstance(connection, psycopg.Connection)


# The claim for many, on the real tables


def test_leases_of_one_claim_for_many_name_each_consumer() -> None:
    hub = Hub(parked_max=10, poll_s=600)
    try:
        asks = [ClaimRequest(queues=(cast.queue(),), worker=f"w{n}") for n in range(3)]
        waiters = [hub.park(ask, FLEET, 60) for ask in asks]
        wait_until(lambda: not hub._busy)
        cast.enqueue_many(3, now=None)
        hub.resync()
        workers = {}
        for n, waiter in enumerate(waiters):
            assert waiter is not None
            waiter.wait()
            (lease,) = waiter.leases()
            workers[f"w{n}"] = cast.row("queue_lease", lease.job_id)["worker"]
        assert workers == {name: name for name in workers}
    finally:
        hub.stop()


def test_nothing_is_open_in_the_database_while_consumers_wait() -> None:
    """S55: no transaction and no connection of a waiter."""
    hub = Hub(parked_max=10, poll_s=600)
    try:
        for _ in range(5):
            hub.park(ClaimRequest(queues=(cast.queue(),)), FLEET, 60)
        wait_until(lambda: not hub._busy)
        open_ = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"
        assert cast.read(open_) == [(0,)]
    finally:
        hub.stop()


def test_a_delayed_job_comes_to_who_waits_when_it_is_due() -> None:
    """S55, S106: neither sooner, nor hidden behind ten thousand that are due next week."""
    week = 7 * 86_400
    cast.enqueue_many(2_000, now=None, delay_s=week)
    hub = Hub(parked_max=10, poll_s=0.5)
    stop_hearing = wakeup.hear(hub.hint)
    try:
        job_id = cast.enqueue(now=None, delay_s=1)
        waiter = hub.park(ClaimRequest(queues=(cast.queue(),)), FLEET, 20)
        assert waiter is not None
        began = time.monotonic()
        while not waiter.is_settled:
            upkeep.promote(limit=200)
            time.sleep(0.05)
        assert [lease.job_id for lease in waiter.leases()] == [job_id]
        assert time.monotonic() - began > 0.7
    finally:
        stop_hearing()
        hub.stop()
