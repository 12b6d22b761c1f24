"""When leases are renewed, marked as started and lost. Pure: the clock is given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.worker.board import FINISHED, RUNNING, WAITING
from jobqueue.worker.channel import Held
from jobqueue.worker.leasebook import HeldLease, LeaseBook

EPOCH = 1_000_000.0


def make_book(count: int = 1, lease_s: float = 60.0, at: float = 0.0) -> LeaseBook:
    book = LeaseBook(memoryview(bytearray(2_048)))
    book.add(at, [Held(n, n, 1, b"t" * 16, EPOCH, lease_s) for n in range(count)], at)
    return book


def renew(lease: HeldLease, now: float, lease_s: float = 60.0) -> None:
    lease.renewed(lease.call(now), EPOCH + now + lease_s, now)
    lease.book.expect(lease, now)


def test_a_lease_of_60_s_is_renewed_every_20_s_within_10_percent() -> None:
    book = make_book()
    book.states[0] = RUNNING
    [lease] = book
    lease.is_started = True
    beats = []
    now = 0.0
    while now < 400:
        for due in book.due(now):
            beats.append(now)
            renew(due, now)
        now += 0.05
    gaps = [b - a for a, b in zip([0.0, *beats], beats, strict=False)]
    assert len(beats) >= 18
    assert all(17.9 <= gap <= 22.1 for gap in gaps)


def test_leases_that_fall_due_together_are_renewed_together() -> None:
    book = make_book(500)
    batches = []
    for now in range(30):
        if due := book.due(now):
            batches.append(len(due))
            for lease in due:
                renew(lease, now)
    assert sum(batches) >= 500
    assert len(batches) <= 6


def test_a_waiting_job_is_renewed_as_not_started() -> None:
    [waiting] = make_book()
    assert waiting.call(0).started is False
    waiting.book.states[0] = FINISHED
    assert waiting.call(0).started is True


def test_a_job_that_runs_on_is_marked_as_started_within_a_moment() -> None:
    book = make_book(3)
    book.states[1] = RUNNING
    assert book.due(0.01) == []
    assert book.due(0.021) == []
    [lease] = book.due(0.045)
    assert lease.place == 1
    renew(lease, 0.05)
    assert lease.is_started
    assert [one.place for one in book.due(0.1)] == []


def test_a_job_that_starts_during_a_beat_is_still_marked() -> None:
    book = make_book()
    [lease] = book
    call = lease.call(0.02)
    book.states[0] = RUNNING
    assert book.due(0.03) == []
    lease.renewed(call, EPOCH + 60, 1.0)
    book.expect(lease, 1.0)
    assert book.due(1.03) == []
    assert book.due(1.06) == [lease]


def test_quick_jobs_are_never_marked() -> None:
    book = make_book(100)
    for tick in range(1, 50):
        book.states[tick % 100] = FINISHED
        book.states[(tick + 1) % 100] = RUNNING if tick % 2 else WAITING
        assert all(book.states[lease.place] == RUNNING for lease in book.due(tick * 0.001))


def test_a_failed_beat_is_tried_again_soon_and_the_end_is_known() -> None:
    book = make_book(lease_s=30)
    [lease] = book
    lease.is_started = True
    assert book.due(10.6) == [lease]
    lease.call(10.6)
    assert book.due(10.7) == []
    lease.failed(10.7)
    book.expect(lease, 10.7)
    assert book.due(10.8) == [lease]
    assert book.lapsed(29.9) == []
    assert book.lapsed(30.0) == [lease]
    assert len(book) == 0


def test_a_beat_without_an_answer_is_sent_again_after_an_interval() -> None:
    book = make_book(lease_s=30)
    [lease] = book
    lease.is_started = True
    assert book.due(10.6) == [lease]
    lease.call(10.6)
    assert book.due(20) == []
    assert book.due(20.7) == [lease]


def test_a_capped_lease_goes_on_beating_and_its_end_is_told_once() -> None:
    book = make_book()
    [lease] = book
    lease.is_started = True
    assert lease.call(0.5).lease_s is None
    lease.capped(1)
    book.expect(lease, 1)
    assert book.due(10) == []
    assert book.due(21) == [lease]
    assert lease.call(21).lease_s == 1  # asks for nothing, hears of a cancel
    assert book.ending(39.9) == []
    assert book.ending(40.1) == [lease]
    assert book.ending(40.2) == []


def test_a_late_answer_does_not_take_the_place_of_another_lease() -> None:
    book = make_book()
    [old] = book
    book.drop([0])
    book.add(1.0, [Held(0, 77, 1, b"t" * 16, EPOCH, 60.0)], 1.0)
    assert not book.lose(old)
    assert [lease.job_id for lease in book] == [77]


def test_a_crash_is_the_running_jobs_alone() -> None:
    book = make_book(4)
    book.states[2] = RUNNING
    book.states[3] = FINISHED
    running, resting = book.take_all()
    assert [lease.place for lease in running] == [2]
    assert [lease.place for lease in resting] == [0, 1, 3]
    assert len(book) == 0


@given(st.floats(0, 5), st.floats(1, 43_200))
def test_an_end_is_never_later_than_the_databases(delay: float, lease_s: float) -> None:
    """The claim was sent at 100 and granted up to `delay` later by the database's clock."""
    book = LeaseBook(memoryview(bytearray(2_048)))
    book.add(100.0, [Held(0, 1, 1, b"t" * 16, EPOCH + delay, lease_s)], 100.0 + delay)
    [lease] = book
    assert lease.ends_at <= 100 + delay + lease_s
    lease.renewed(lease.call(114.0), EPOCH + delay + 10 + lease_s, 115.0)
    assert lease.ends_at == pytest.approx(110 + lease_s)
