"""A call that comes too late changes nothing, and is told: once, of the attempt's own worker alone."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue import leases, upkeep
from jobqueue.types import FLEET
from jobsplatform.errors import AlreadyFinished, LeaseExpired, ResultConflict, StaleGeneration
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def _told(job_id: int) -> list[tuple[Any, ...]]:
    rows = cast.read(
        "SELECT generation, verb, code FROM queue_latecall WHERE job_id = %s ORDER BY generation, verb",
        [job_id],
    )
    return [tuple(row) for row in rows]


def test_a_completion_after_the_lease_lapsed_is_told() -> None:
    lease = cast.leased(lease_s=10)
    with pytest.raises(LeaseExpired):
        cast.complete(lease, now=at(11))
    assert _told(lease.job_id) == [(1, "complete", "lease_expired")]


def test_a_completion_of_an_older_generation_is_told_and_the_newer_goes_on() -> None:
    old = cast.leased(lease_s=10)
    upkeep.reap(now=at(11))
    new = cast.claim_one(now=at(12))
    with cast.changes_nothing(old.job_id), pytest.raises(StaleGeneration):
        cast.complete(old, now=at(13))
    cast.complete(new, now=at(14))
    assert _told(old.job_id) == [(1, "complete", "stale_generation")]


def test_a_late_call_that_is_repeated_is_told_once() -> None:
    lease = cast.leased()
    cast.complete(lease, now=at(1))
    for _ in range(3):
        with pytest.raises(ResultConflict):
            cast.complete(lease, now=at(2), result='"other"')
        with pytest.raises(AlreadyFinished):
            cast.fail(lease, now=at(3))
    assert _told(lease.job_id) == [(1, "complete", "result_conflict"), (1, "fail", "already_finished")]


def test_a_replay_is_not_late() -> None:
    lease = cast.leased()
    cast.complete(lease, now=at(1))
    assert cast.complete(lease, now=at(2)).replayed
    assert _told(lease.job_id) == []


def test_a_call_with_another_s_token_is_not_told() -> None:
    lease = cast.leased(lease_s=10)
    for generation in (1, 2, 99):
        with pytest.raises(StaleGeneration):
            cast.complete(lease, now=at(11), token=b"x" * 16, generation=generation)
    assert _told(lease.job_id) == []


def test_a_late_renewal_is_not_told() -> None:
    lease = cast.leased(lease_s=10)
    with pytest.raises(LeaseExpired):
        cast.renew(lease, now=at(11))
    assert _told(lease.job_id) == []


def test_what_was_in_time_costs_no_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    from jobsplatform import sql

    seen: list[str] = []
    run = sql._run

    def running(statement: str, *arguments: Any, **more: Any) -> Any:
        seen.append(statement)
        return run(statement, *arguments, **more)

    monkeypatch.setattr(sql, "_run", running)
    lease = cast.leased()
    cast.complete(lease, now=at(1))
    assert "jobqueue/late_calls" not in seen


def test_a_batch_tells_each_of_its_late_calls() -> None:
    held = [cast.leased(lease_s=10, now=at(n)) for n in range(3)]
    calls = [leases.Complete(**cast.key_of(lease)) for lease in held]
    answers = leases.complete(calls, scope=FLEET, now=at(11))
    assert [type(answer).__name__ for answer in answers] == ["LeaseExpired", "LeaseExpired", "Completed"]
    assert [len(_told(lease.job_id)) for lease in held] == [1, 1, 0]


def test_late_calls_go_with_their_job() -> None:
    lease = cast.leased()
    cast.complete(lease, now=at(1))
    with pytest.raises(ResultConflict):
        cast.complete(lease, now=at(2), result='"other"')
    upkeep.purge(now=at(40 * 86_400))
    assert cast.rows("queue_job", lease.job_id) == []
    assert _told(lease.job_id) == []
