"""Folding the ledger, keeping lanes, and forgetting what is past its retention."""

from __future__ import annotations

import pytest

from jobqueue import reads, upkeep
from jobqueue.enqueue import Accepted
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.types import FLEET
from jobsplatform.errors import NotFound
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db

DAY = 86_400


# The ledger


def test_folding_keeps_every_sum() -> None:
    for turn in range(3):
        lease = cast.leased(now=at(turn * 61))
        cast.complete(lease, now=at(turn * 61 + 2))
    assert upkeep.fold() == 6 + 2  # and two states of the scheduler that are not the newest
    assert cast.read("SELECT count(*) FROM queue_lanedelta") == [(0,)]
    sums = "SELECT count(*), sum(started), sum(succeeded), sum(service_ms) FROM queue_laneminute"
    assert cast.read(sums) == [(3, 3, 3, 6000)]


def test_folding_adds_to_a_minute_that_was_folded() -> None:
    for _ in range(2):
        cast.leased(now=at(0))
        upkeep.fold()
    assert cast.read("SELECT minute, started FROM queue_laneminute") == [(at(0), 2)]


def test_folding_takes_no_more_than_its_limit() -> None:
    for _ in range(3):
        cast.leased(now=at(0))
    ledger_and_states = [2 + 2, 1 + 0, 0]
    assert [upkeep.fold(limit=2) for _ in range(3)] == ledger_and_states


# Lanes


def _age(seconds: int = 120) -> None:
    cast.read("UPDATE queue_lane SET used_at = used_at - %s * interval '1 second' RETURNING 1", [seconds])


def test_an_idle_lane_is_put_to_sleep() -> None:
    cast.leased()
    _age()
    upkeep.sweep_lanes()
    assert cast.read("SELECT is_active FROM queue_lane") == [(False,)]


def test_a_lane_that_was_just_used_stays_awake() -> None:
    cast.leased()
    upkeep.sweep_lanes()
    assert cast.read("SELECT is_active FROM queue_lane") == [(True,)]


def test_a_lane_with_work_stays_awake() -> None:
    cast.enqueue()
    _age()
    upkeep.sweep_lanes()
    assert cast.read("SELECT is_active FROM queue_lane") == [(True,)]


def test_a_sleeping_lane_with_work_is_woken() -> None:
    cast.enqueue()
    cast.read("UPDATE queue_lane SET is_active = false RETURNING 1")
    upkeep.sweep_lanes()
    assert len(cast.claim()) == 1


def test_a_row_below_its_lane_s_bound_is_uncovered() -> None:
    """The server's clock was set back: new positions are older than the bound."""
    job_id = cast.enqueue(now=at(-3_600))
    cast.read("UPDATE queue_lane SET low = %s RETURNING 1", [at(0)])
    assert cast.claim(now=at(1)) == []
    assert upkeep.recheck_lanes() == 1
    assert cast.claim_one(now=at(1)).job_id == job_id


def test_work_that_came_back_is_not_hidden_by_the_bound() -> None:
    lease = cast.leased(now=at(0))
    cast.read("UPDATE queue_lane SET low = %s RETURNING 1", [at(10)])
    upkeep.reap(now=at(30))
    assert cast.claim_one(now=at(31)).job_id == lease.job_id


def test_a_recheck_of_sound_lanes_changes_nothing() -> None:
    cast.enqueue()
    assert upkeep.recheck_lanes() == 0


# Retention


def test_a_finished_job_is_forgotten_after_its_time() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    upkeep.purge(now=at(30 * DAY + 2))
    assert cast.rows("queue_job", lease.job_id) == []
    assert {name for name, found in cast.everything_about(lease.job_id).items() if found} == set()
    with pytest.raises(NotFound):
        reads.job(lease.job_id, scope=FLEET)


def test_a_finished_job_is_kept_for_its_time() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    with cast.changes_nothing(lease.job_id):
        upkeep.purge(now=at(30 * DAY))


def test_each_queue_has_its_own_retention() -> None:
    short = cast.queue("short", retention_s=3_600)
    brief = cast.leased(now=at(0), queue=short)
    long = cast.leased(now=at(0))
    for lease in (brief, long):
        cast.complete(lease, now=at(1))
    upkeep.purge(now=at(3_602))
    assert (cast.places(brief.job_id), cast.place(long.job_id)) == ([], "result")


def test_cancelled_and_expired_jobs_are_forgotten_too() -> None:
    cancelled, expired = cast.enqueue(now=at(0)), cast.enqueue(now=at(0), deadline=at(5))
    cast.cancel(cancelled, now=at(1))
    upkeep.expire(now=at(5))
    upkeep.purge(now=at(31 * DAY))
    assert (cast.places(cancelled), cast.places(expired)) == ([], [])


def test_retention_never_touches_live_work_or_dead_letters() -> None:
    dead = cast.buried()
    running = cast.leased(now=at(2), lease_s=43_200)
    waiting = [cast.enqueue(now=at(3)), cast.enqueue(now=at(3), delay_s=60 * DAY)]
    with cast.changes_nothing(dead, running.job_id, *waiting):
        upkeep.purge(now=at(40 * DAY))


def test_a_key_outlives_its_job() -> None:
    job = cast.new_job(request_key="k")
    job_id = cast.accepted(enqueue_jobs([job], now=at(0))[0]).job_id
    cast.complete(cast.claim_one(now=at(0)), now=at(1))
    upkeep.purge(now=at(31 * DAY))
    assert enqueue_jobs([job], now=at(31 * DAY)) == [Accepted(job_id, replayed=True)]
    assert cast.rows("queue_job", job_id) == []


def test_a_key_is_free_seven_days_after_its_job() -> None:
    job = cast.new_job(request_key="k")
    job_id = cast.accepted(enqueue_jobs([job], now=at(0))[0]).job_id
    cast.complete(cast.claim_one(now=at(0)), now=at(1))
    upkeep.purge(now=at(31 * DAY))
    upkeep.purge(now=at(37 * DAY))
    assert enqueue_jobs([job], now=at(37 * DAY)) == [Accepted(job_id, replayed=True)]
    upkeep.purge(now=at(39 * DAY))
    again = cast.accepted(enqueue_jobs([job], now=at(39 * DAY))[0])
    assert (again.replayed, again.job_id == job_id) == (False, False)


def test_a_key_holds_for_its_window_at_least() -> None:
    q = cast.queue("short", retention_s=3_600, key_window_s=20 * DAY)
    job = cast.new_job(request_key="k", queue=q)
    job_id = cast.accepted(enqueue_jobs([job], now=at(0))[0]).job_id
    cast.complete(cast.claim_one(q, now=at(0)), now=at(1))
    upkeep.purge(now=at(2 * DAY))
    upkeep.purge(now=at(10 * DAY))
    assert enqueue_jobs([job], now=at(10 * DAY)) == [Accepted(job_id, replayed=True)]


def test_old_minutes_are_forgotten() -> None:
    cast.leased(now=at(0))
    upkeep.fold()
    upkeep.purge(now=at(6 * DAY))
    assert cast.read("SELECT count(*) FROM queue_laneminute") == [(1,)]
    upkeep.purge(now=at(8 * DAY))
    assert cast.read("SELECT count(*) FROM queue_laneminute") == [(0,)]


def test_a_short_retention_behind_a_long_one_is_found_window_by_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass looks at so many windows and the next goes on there: what others keep is not walked through each time."""
    monkeypatch.setattr(upkeep, "PURGE_WINDOW", 2)
    monkeypatch.setattr(upkeep, "PURGE_WINDOWS", 2)
    monkeypatch.setattr(upkeep, "_purged_to", {})
    short = cast.queue("short", retention_s=3_600)
    kept = [cast.leased(now=at(2 * turn)) for turn in range(5)]
    for turn, lease in enumerate(kept):
        cast.complete(lease, now=at(10 + turn))
    brief = [cast.leased(now=at(20 + turn), queue=short) for turn in range(3)]
    for turn, lease in enumerate(brief):
        cast.complete(lease, now=at(30 + turn))
    ends = [upkeep._purge_jobs(cast.SHARD, 10, at(DAY)) for _ in range(4)]
    assert ends == [0, 3, 0, 0]
    assert {cast.place(lease.job_id) for lease in kept} == {"result"}
    assert [cast.places(lease.job_id) for lease in brief] == [[]] * 3


def test_a_purge_is_bounded() -> None:
    for _ in range(3):
        cast.complete(cast.leased(now=at(0)), now=at(1))
    jobs_classes_and_states = [2 + 1 + 2, 1 + 0, 0]
    assert [upkeep.purge(limit=2, now=at(40 * DAY)) for _ in range(3)] == jobs_classes_and_states
