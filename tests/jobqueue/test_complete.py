"""Completing: the first durable result of the current generation's live lease, once; and the fence around it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobqueue import leases, reads, upkeep
from jobqueue.claiming import Lease
from jobqueue.types import FLEET, Scope
from jobsplatform import sql
from jobsplatform.errors import (
    AlreadyFinished,
    Conflict,
    LeaseExpired,
    NotFound,
    ResultConflict,
    StaleGeneration,
)
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def test_a_completed_job_is_over() -> None:
    lease = cast.leased(now=at(0))
    done = cast.complete(lease, now=at(2), result='{"ok": 1.50}')
    assert (done.completed_at, done.replayed, done.late) == (at(2), False, False)
    assert cast.place(lease.job_id) == "result"
    result = reads.result(lease.job_id, scope=FLEET)
    assert (result.outcome, result.body, result.generation) == ("succeeded", '{"ok": 1.50}', 1)


def test_a_completion_is_history_and_counted() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(2))
    attempt = cast.row("queue_attempt", lease.job_id)
    assert (attempt["outcome"], attempt["led_to"], attempt["service_ms"]) == ("succeeded", "succeeded", 2000)
    assert cast.read("SELECT sum(succeeded), sum(service_ms) FROM queue_lanedelta") == [(1, 2000)]


def test_a_repeat_is_replayed_with_the_first_instant() -> None:
    """S1: the answer was lost after the commit."""
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    with cast.changes_nothing(lease.job_id):
        again = cast.complete(lease, now=at(2))
    assert (again.completed_at, again.replayed) == (at(1), True)


def test_a_repeat_is_replayed_long_after_the_lease() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    assert cast.complete(lease, now=at(99_999)).replayed


def test_another_result_conflicts() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1), result="1")
    with cast.changes_nothing(lease.job_id), pytest.raises(ResultConflict):
        cast.complete(lease, now=at(2), result="2")


def test_another_generation_s_equal_result_is_no_replay() -> None:
    a = cast.leased(now=at(0))
    upkeep.reap(now=at(30))
    b = cast.claim_one(now=at(31))
    cast.complete(b, now=at(32))
    with pytest.raises(AlreadyFinished):
        cast.complete(a, now=at(33))


@pytest.mark.parametrize("seconds", [30, 30.5])
def test_a_completion_at_or_after_expiry_is_refused(seconds: float) -> None:
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id), pytest.raises(LeaseExpired):
        cast.complete(lease, now=at(seconds))


def test_a_completion_just_before_expiry_is_taken() -> None:
    lease = cast.leased(now=at(0))
    assert not cast.complete(lease, now=at(29.999999)).replayed


def test_a_completion_after_the_reaper_is_refused() -> None:
    lease = cast.leased(now=at(0))
    upkeep.reap(now=at(30))
    with cast.changes_nothing(lease.job_id), pytest.raises(LeaseExpired):
        cast.complete(lease, now=at(31))


def test_a_completion_after_its_deadline_within_the_lease_is_late() -> None:
    lease = cast.leased(now=at(0), deadline=at(10))
    assert cast.complete(lease, now=at(11)).late
    assert cast.complete(lease, now=at(12)).late


def test_a_wrong_token_with_the_right_generation_is_stale() -> None:
    """S13: whose lease it is decides, not who works the queue."""
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id):
        with pytest.raises(StaleGeneration) as wrong_token:
            cast.complete(lease, now=at(1), token=b"x" * 16)
        with pytest.raises(StaleGeneration) as wrong_generation:
            cast.complete(lease, now=at(1), generation=7)
        with pytest.raises(StaleGeneration):
            cast.complete(lease, now=at(1), token=b"")
    assert (wrong_token.value.code, wrong_token.value.detail) == (
        wrong_generation.value.code,
        wrong_generation.value.detail,
    )


def test_a_job_that_was_never_claimed_is_not_completed() -> None:
    job_id = cast.enqueue()
    with cast.changes_nothing(job_id):
        (answer,) = leases.complete([leases.Complete(job_id, 1, b"x" * 16)], now=at(1))
    assert isinstance(answer, StaleGeneration)


def test_another_tenant_s_job_and_an_absent_one_look_alike() -> None:
    lease = cast.leased(now=at(0))
    foreign, absent = leases.complete(
        [leases.Complete(**cast.key_of(lease)), leases.Complete(987_654, 1, lease.token)],
        scope=cast.mallory(),
        now=at(1),
    )
    assert isinstance(foreign, NotFound)
    assert isinstance(absent, NotFound)
    assert foreign.detail == absent.detail
    assert cast.place(lease.job_id) == "lease"


def test_a_foreign_queue_s_lease_is_not_there() -> None:
    lease = cast.leased(now=at(0))
    narrow = Scope(queue_ids=(cast.queue("other").id,))
    with pytest.raises(NotFound):
        cast.complete(lease, now=at(1), scope=narrow)


def test_an_id_of_an_unknown_shard_is_absent() -> None:
    (answer,) = leases.complete([leases.Complete(9 << 48 | 1, 1, b"x" * 16)])
    assert isinstance(answer, NotFound)


def test_a_large_result_is_kept() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1), result='"' + "é" * 65_000 + '"')
    assert len(reads.result(lease.job_id, scope=FLEET).body or "") == 65_002


def test_a_batch_with_a_repeat_of_its_own_completes_once() -> None:
    lease = cast.leased(now=at(0))
    call = leases.Complete(**cast.key_of(lease), result="1")
    first, second = leases.complete([call, call], now=at(1))
    assert (first, second) == (leases.Completed(at(1)), leases.Completed(at(1), replayed=True))


def test_a_batch_stands_call_by_call() -> None:
    cast.enqueue_many(3)
    one, two, three = cast.claim(now=at(0), limit=3)
    calls = [
        leases.Complete(**cast.key_of(one)),
        leases.Complete(**cast.key_of(two) | {"token": b"x" * 16}),
        leases.Complete(**cast.key_of(three)),
    ]
    answers = leases.complete(calls, now=at(1))
    assert [type(answer) for answer in answers] == [leases.Completed, StaleGeneration, leases.Completed]


# A claims generation 1 and lets it lapse; B claims generation 2 and completes. What A may still do: nothing.

CALLS: dict[str, Callable[..., object]] = {
    "renew": cast.renew,
    "complete": cast.complete,
    "fail": cast.fail,
    "release": cast.release,
}


@pytest.mark.parametrize("verb", CALLS)
def test_a_lapsed_generation_is_told_that_it_lapsed(verb: str) -> None:
    a = cast.leased(now=at(0))
    with cast.changes_nothing(a.job_id), pytest.raises(LeaseExpired):
        CALLS[verb](a, now=at(30))
    upkeep.reap(now=at(30))
    with cast.changes_nothing(a.job_id), pytest.raises(LeaseExpired):
        CALLS[verb](a, now=at(31))


@pytest.mark.parametrize("verb", CALLS)
def test_an_older_generation_is_stale_while_another_runs(verb: str) -> None:
    a, b = _two_generations()
    with cast.changes_nothing(b.job_id), pytest.raises(StaleGeneration):
        CALLS[verb](a, now=at(33))


@pytest.mark.parametrize("verb", CALLS)
def test_an_older_generation_is_told_that_the_job_is_over(verb: str) -> None:
    a, b = _two_generations()
    cast.complete(b, now=at(33), result='"of b"')
    expected: type[Conflict] = ResultConflict if verb == "complete" else AlreadyFinished
    with cast.changes_nothing(b.job_id), pytest.raises(expected):
        CALLS[verb](a, now=at(34))


@pytest.mark.parametrize("verb", CALLS)
def test_an_older_generation_is_stale_while_a_later_one_waits(verb: str) -> None:
    a, b = _two_generations()
    cast.fail(b, now=at(33))
    with cast.changes_nothing(b.job_id), pytest.raises(StaleGeneration):
        CALLS[verb](a, now=at(34))


@pytest.mark.parametrize("verb", CALLS)
def test_a_dead_job_has_finished(verb: str) -> None:
    a, b = _two_generations()
    cast.fail(b, now=at(33), error_class="permanent")
    with cast.changes_nothing(b.job_id), pytest.raises(AlreadyFinished):
        CALLS[verb](a, now=at(34))


def _two_generations() -> tuple[Lease, Lease]:
    a = cast.leased(now=at(0))
    upkeep.reap(now=at(30))
    return a, cast.claim_one(now=at(31))


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize(
    "forged", [{"token": b"x" * 16}, {"token": b""}, {"generation": 2}, {"generation": 0}]
)
def test_no_verb_takes_another_token_or_generation(verb: str, forged: dict[str, Any]) -> None:
    """S13, for every verb that needs a lease."""
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id), pytest.raises(StaleGeneration):
        CALLS[verb](lease._replace(**forged), now=at(1))


def test_a_thousand_repeats_in_one_batch_are_explained_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    run = sql.rows

    def counted(statement: str, *args: Any, **more: Any) -> list[sql.Row]:
        sent.append(statement)
        return run(statement, *args, **more)

    lease = cast.leased(now=at(0))
    calls = [leases.Complete(**cast.key_of(lease), result="1")] * 1_000
    monkeypatch.setattr(sql, "rows", counted)
    answers = leases.complete(calls, now=at(1))
    assert [answer.replayed for answer in answers if isinstance(answer, leases.Completed)] == [False] + [
        True
    ] * 999
    assert sent == ["jobqueue/complete", "jobqueue/whereabouts"]


def test_a_call_behind_a_stale_one_of_the_same_job_in_one_batch_counts() -> None:
    lease = cast.leased(now=at(0))
    right = leases.Complete(**cast.key_of(lease), result="1")
    wrong = leases.Complete(**cast.key_of(lease) | {"generation": 7}, result="1")
    stale, done, again = leases.complete([wrong, right, right], now=at(1))
    assert isinstance(stale, StaleGeneration)
    assert isinstance(done, leases.Completed)
    assert not done.replayed
    assert isinstance(again, leases.Completed)
    assert again.replayed


@pytest.mark.parametrize("end", [cast.complete, cast.fail, cast.release])
def test_an_attempt_ends_no_earlier_than_it_began_though_the_clock_was_set_back(
    end: Callable[..., Any],
) -> None:
    lease = cast.leased(now=at(0))
    end(lease, now=at(-5))
    assert cast.read("SELECT ended_at - claimed_at, service_ms FROM queue_attempt") == [(timedelta(0), 0)]
