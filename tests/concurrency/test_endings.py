"""Two ways to end one attempt, a reaper that read too early, keys and redrives taken at once."""

from __future__ import annotations

import time
from functools import partial

import pytest

from dlq import redrive
from jobqueue import leases, upkeep
from jobqueue.enqueue import Accepted
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.leases import Completed, Failed
from jobsplatform.errors import AlreadyRedriven, Conflict, JobsPlatformError, LeaseExpired, RequestKeyConflict
from tests import cast
from tests.cast import at, together

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = [40, pytest.param(500, marks=pytest.mark.slow)]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_complete_and_fail_of_one_lease_exactly_one_wins(rounds: int) -> None:
    """S3."""
    for _ in range(rounds):
        lease = cast.leased(now=None)
        answers = together(partial(cast.complete, lease), partial(cast.fail, lease))
        won = [answer for answer in answers if isinstance(answer, (Completed, Failed))]
        lost = [answer for answer in answers if isinstance(answer, Conflict)]
        assert (len(won), len(lost)) == (1, 1), answers
        expected = "result" if isinstance(won[0], Completed) else "scheduledjob"
        assert cast.place(lease.job_id) == expected
        assert len(cast.rows("queue_attempt", lease.job_id)) == 1


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_repeat_beside_the_first_call_completes_once(rounds: int) -> None:
    """S1: whichever comes second is replayed with the first one's instant."""
    for _ in range(rounds):
        lease = cast.leased(now=None)
        answers = together(*[partial(cast.complete, lease)] * 3)
        done = [answer for answer in answers if isinstance(answer, Completed)]
        assert len(done) == 3, answers
        assert sorted(answer.replayed for answer in done) == [False, True, True]
        assert len({answer.completed_at for answer in done}) == 1
        assert len(cast.rows("queue_result", lease.job_id)) == 1


@pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_fifty_first_uses_of_one_key_make_one_job(rounds: int) -> None:
    """S33."""
    for turn in range(rounds):
        job = cast.new_job(request_key=f"k-{turn}")
        answers = together(*[partial(enqueue_jobs, [job])] * 50)
        outcomes = [answer[0] for answer in answers if isinstance(answer, list)]
        assert len(outcomes) == 50, answers
        assert all(isinstance(outcome, Accepted) for outcome in outcomes), outcomes
        assert sorted(outcome.replayed for outcome in outcomes) == [False] + [True] * 49  # type: ignore[union-attr]
        assert len({outcome.job_id for outcome in outcomes}) == 1  # type: ignore[union-attr]
    assert cast.read("SELECT count(*) FROM queue_job") == [(rounds,)]


def test_racing_requests_with_other_content_conflict() -> None:
    jobs = [cast.new_job(request_key="k", payload=str(index % 2)) for index in range(20)]
    answers = together(*[partial(enqueue_jobs, [job]) for job in jobs])
    outcomes = [answer[0] for answer in answers if isinstance(answer, list)]
    assert len(outcomes) == 20, answers
    assert sum(isinstance(outcome, RequestKeyConflict) for outcome in outcomes) == 10
    assert sum(isinstance(outcome, Accepted) and not outcome.replayed for outcome in outcomes) == 1
    assert cast.read("SELECT count(*) FROM queue_job") == [(1,)]


def test_racing_batches_with_the_same_keys_agree() -> None:
    jobs = [cast.new_job(request_key=f"k-{index}") for index in range(60)]
    orders = [jobs, jobs[::-1], jobs[30:] + jobs[:30], jobs]
    answers = together(*[partial(enqueue_jobs, order) for order in orders])
    ids: list[dict[str | None, int]] = []
    for order, answer in zip(orders, answers, strict=True):
        assert isinstance(answer, list), answer
        ids.append({job.request_key: cast.accepted(o).job_id for job, o in zip(order, answer, strict=True)})
    assert all(one == ids[0] for one in ids)
    assert cast.read("SELECT count(*) FROM queue_job") == [(60,)]


def test_two_tenants_first_uses_of_one_key_do_not_meet() -> None:
    """S35."""
    ours, theirs = cast.new_job(request_key="k"), cast.new_job(request_key="k", tenant_id=cast.globex().pk)
    one, other = together(partial(enqueue_jobs, [ours]), partial(enqueue_jobs, [theirs]))
    assert isinstance(one, list)
    assert isinstance(other, list)
    assert not cast.accepted(one[0]).replayed
    assert not cast.accepted(other[0]).replayed


# S7: the reaper read its rows, then the job ended, then the reaper went on


def test_a_completion_that_comes_while_the_reaper_holds_the_lease_is_too_late() -> None:
    """S7: the reaper is paused between its read and its move: it wants a lane that another session holds."""
    lease = cast.leased(now=at(0))
    cast.read("UPDATE queue_lane SET is_active = false RETURNING 1")
    with cast.second_session() as other:
        other.execute("SELECT FROM queue_lane FOR UPDATE")

        def complete() -> Completed:
            wait_for_waiters(1)
            return cast.complete(lease, now=at(29))

        def let_go() -> None:
            wait_for_waiters(2)
            other.rollback()

        reaped, done, _ = together(partial(upkeep.reap, now=at(60)), complete, let_go)
    assert reaped == {"ready": 1}
    assert isinstance(done, LeaseExpired)
    assert cast.place(lease.job_id) == "readyjob"


def test_a_reaper_that_comes_while_a_completion_holds_the_lease_takes_nothing() -> None:
    """S7: what the reaper read as lapsed is being ended; it passes over it and meets it never again."""
    lease = cast.leased(now=at(0))
    with cast.second_session() as other:
        other.execute("DELETE FROM queue_lease WHERE job_id = %s", [lease.job_id])
        assert upkeep.reap(now=at(60)) == {}
        other.rollback()
    cast.complete(lease, now=at(29))
    with cast.changes_nothing(lease.job_id):
        assert upkeep.reap(now=at(60)) == {}


def wait_for_waiters(count: int) -> None:
    """Until so many sessions of this database wait for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    for _ in range(1_000):
        if cast.read(waiting)[0][0] >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{count} sessions never waited")


@pytest.mark.parametrize("rounds", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_a_completion_beside_the_reaper_wins_or_is_too_late(rounds: int) -> None:
    """S7: at the very edge of a lease one of the two has it, never both."""
    for _ in range(rounds):
        lease = cast.leased(now=at(0))
        reaped, done = together(partial(upkeep.reap, now=at(30)), partial(cast.complete, lease, now=at(29.9)))
        assert not isinstance(reaped, BaseException)
        if isinstance(done, Completed):
            assert cast.place(lease.job_id) == "result"
            assert reaped == {}
        else:
            assert isinstance(done, Conflict)
            assert reaped == {"ready": 1}
            assert cast.place(lease.job_id) == "readyjob"
            cast.cancel(lease.job_id)


def test_a_reaper_leaves_a_later_generation_alone() -> None:
    """S7: completed, redriven and claimed again while the reaper paused."""
    lease = cast.leased(now=at(0), max_attempts=1)
    cast.fail(lease, now=at(1))
    cast.redriven(lease.job_id, now=at(40))
    again = cast.claim_one(now=at(50), lease_s=600)
    with cast.changes_nothing(again.job_id):
        assert upkeep.reap(now=at(60)) == {}


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_locked_leases_do_not_hide_a_free_one(count: int) -> None:
    """S15."""
    for _ in range(count // 100):
        cast.enqueue_many(100, now=at(0))
        cast.claim(now=at(0), limit=100)
    free = cast.leased(now=at(1))
    with cast.second_session() as other:
        other.execute("SELECT FROM queue_lease WHERE job_id <> %s FOR UPDATE", [free.job_id])
        passes = [upkeep.reap(now=at(60)) for _ in range(2)]
        assert sum(led["ready"] for led in passes) == 1
        assert cast.place(free.job_id) == "readyjob"
    left = count
    while left:
        led = upkeep.reap(now=at(60))
        assert led
        left -= led["ready"]


# S109: redrives


def test_twenty_operators_redrive_at_once_and_one_wins() -> None:
    """S109: half of them with one key."""
    job_id = cast.buried(now=at(0))
    calls = [
        partial(cast.redriven, job_id, redrive_key="shared" if index % 2 else None) for index in range(20)
    ]
    answers = together(*calls)
    won = [a for a in answers if isinstance(a, redrive.Redriven) and not a.replayed]
    replayed = [a for a in answers if isinstance(a, redrive.Redriven) and a.replayed]
    refused = [a for a in answers if isinstance(a, AlreadyRedriven)]
    assert (len(won), len(won) + len(replayed) + len(refused)) == (1, 20), answers
    by_key = [answer for index, answer in enumerate(answers) if index % 2]
    assert len({isinstance(answer, AlreadyRedriven) for answer in by_key}) == 1
    assert cast.row("queue_readyjob", job_id)["redrive_generation"] == 1
    assert len(cast.rows("dlq_redrive", job_id)) == 1
    assert cast.audited("job.redrive") == 1
    assert cast.claim_one(now=None).generation == 2


def test_racing_corrections_are_versions_one_after_the_other() -> None:
    job_id = cast.buried(now=at(0))
    answers = together(*[partial(cast.correct, job_id, payload=str(index)) for index in range(10)])
    assert not [answer for answer in answers if isinstance(answer, BaseException)], answers
    assert sorted(row["version"] for row in cast.rows("dlq_correction", job_id)) == list(range(1, 11))


def test_a_correction_beside_a_redrive_is_in_it_or_refused() -> None:
    for _ in range(15):
        job_id = cast.buried(now=at(0))
        corrected, back = together(partial(cast.correct, job_id), partial(cast.redriven, job_id))
        assert isinstance(back, redrive.Redriven), back
        version = cast.row("queue_readyjob", job_id)["payload_version"]
        if isinstance(corrected, JobsPlatformError):
            assert (version, cast.rows("dlq_correction", job_id)) == (0, [])
        else:
            assert version == 1
        cast.cancel(job_id)


def test_cancel_is_answered_wherever_the_job_moves() -> None:
    """A job in flight is nowhere for one statement: the verb reads again."""
    for _ in range(25):
        job_id = cast.enqueue(now=None)
        claimed, cancelled = together(partial(cast.claim, now=None), partial(cast.cancel, job_id))
        assert isinstance(cancelled, leases.Cancelled), cancelled
        if cancelled.cancel_requested:
            assert isinstance(claimed, list)
            cast.release(claimed[0])
        assert cast.place(job_id) == "result"


def test_audit_entries_of_one_tenant_form_one_chain_under_any_race() -> None:
    from jobsplatform import sql
    from tenants import audit

    write = partial(
        sql.in_transaction,
        cast.SHARD,
        lambda: audit.record("t", "t", actor="a", tenant_id=1, alias=cast.SHARD),
    )
    answers = together(*[write] * 20)
    assert not [answer for answer in answers if isinstance(answer, BaseException)], answers
    entries = cast.read("SELECT previous_hash, entry_hash FROM tenants_auditentry ORDER BY id")
    links = [bytes(previous) for previous, _ in entries]
    assert links == [b""] + [bytes(seal) for _, seal in entries[:-1]]
