"""Redrive: the audited way back, once under any race; identity stays, attempts and crashes restart."""

from __future__ import annotations

import pytest

from dlq.redrive import Redriven
from jobqueue import reads, upkeep
from jobqueue.types import FLEET
from jobsplatform.errors import (
    AlreadyRedriven,
    CorrectionRequired,
    DeadlineInPast,
    Invalid,
    JobsPlatformError,
    KeyConflict,
    NotDead,
    NotFound,
    RedriveLimit,
    Unavailable,
)
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def test_a_redriven_job_is_ready_with_its_identity() -> None:
    job_id = cast.buried(request_key="k")
    done = cast.redriven(job_id, now=at(5))
    assert (done.job_id, done.redrive_generation, done.state, done.replayed) == (job_id, 1, "ready", False)
    view = reads.job(job_id, scope=FLEET)
    assert (view.state, view.request_key, view.redrive_generation) == ("ready", "k", 1)


def test_attempts_restart_and_generations_go_on() -> None:
    job_id = cast.buried()
    cast.redriven(job_id, now=at(5))
    lease = cast.claim_one(now=at(6))
    assert (lease.attempt, lease.generation, lease.redrive_generation) == (1, 2, 1)


def test_crashes_lapses_and_releases_restart() -> None:
    lease = cast.leased(now=at(0), queue=cast.queue("grim", max_crashes=1))
    upkeep.reap(now=at(30))
    cast.correct(lease.job_id)
    cast.redriven(lease.job_id, now=at(40))
    ready = cast.row("queue_readyjob", lease.job_id)
    assert (ready["crashes"], ready["lapses"], ready["releases"], ready["attempt"]) == (0, 0, 0, 0)


def test_a_redriven_job_enters_at_the_tail() -> None:
    job_id = cast.buried(now=at(0))
    waiting = cast.enqueue(now=at(3))
    cast.redriven(job_id, now=at(5))
    assert [lease.job_id for lease in cast.claim(now=at(6), limit=2)] == [waiting, job_id]


def test_a_redrive_may_wait() -> None:
    job_id = cast.buried()
    assert cast.redriven(job_id, now=at(5), not_before=at(60)).state == "scheduled"
    waiting = cast.row("queue_scheduledjob", job_id)
    assert (waiting["due_at"], waiting["reason"]) == (at(60), "redriven")
    upkeep.promote(now=at(60))
    assert cast.claim_one(now=at(61)).job_id == job_id


def test_a_redrive_may_allow_other_attempts() -> None:
    job_id = cast.buried()
    cast.redriven(job_id, now=at(5), max_attempts=9)
    assert cast.row("queue_readyjob", job_id)["max_attempts"] == 9


def test_a_redrive_may_set_a_new_deadline() -> None:
    job_id = cast.buried(deadline=at(100))
    cast.redriven(job_id, now=at(5), deadline=at(900))
    assert reads.job(job_id, scope=FLEET).deadline == at(900)


def test_a_passed_deadline_needs_a_new_one() -> None:
    job_id = cast.buried(deadline=at(100))
    with cast.changes_nothing(job_id), pytest.raises(Invalid) as refused:
        cast.redriven(job_id, now=at(100))
    assert refused.value.errors[0].pointer == "/deadline"
    assert cast.redriven(job_id, now=at(100), deadline=at(200)).state == "ready"


def test_a_new_deadline_must_lie_ahead() -> None:
    job_id = cast.buried()
    with cast.changes_nothing(job_id), pytest.raises(DeadlineInPast):
        cast.redriven(job_id, now=at(5), deadline=at(5))


def test_a_redrive_must_be_due_before_its_deadline() -> None:
    job_id = cast.buried(deadline=at(100))
    with cast.changes_nothing(job_id), pytest.raises(Invalid) as refused:
        cast.redriven(job_id, now=at(5), not_before=at(100))
    assert refused.value.errors[0].pointer == "/not_before"


@pytest.mark.parametrize("reason", ["invalid", "poison"])
def test_poison_and_invalid_need_a_correction_first(reason: str) -> None:
    if reason == "invalid":
        job_id = cast.buried(error_class="permanent")
    else:
        job_id = cast.leased(now=at(0), queue=cast.queue("grim", max_crashes=1)).job_id
        upkeep.reap(now=at(30))
    with cast.changes_nothing(job_id), pytest.raises(CorrectionRequired):
        cast.redriven(job_id, now=at(40))
    cast.correct(job_id)
    assert cast.redriven(job_id, now=at(41)).state == "ready"


def test_a_correction_serves_one_redrive() -> None:
    job_id = cast.buried(error_class="permanent")
    cast.correct(job_id)
    cast.redriven(job_id, now=at(5))
    cast.fail(cast.claim_one(now=at(6)), now=at(7), error_class="permanent")
    with pytest.raises(CorrectionRequired):
        cast.redriven(job_id, now=at(8))


def test_an_uncertain_job_comes_back_to_reconcile() -> None:
    job_id = cast.buried(error_class="uncertain")
    cast.redriven(job_id, now=at(5))
    lease = cast.claim_one(now=at(6))
    assert (lease.reconcile, lease.earlier_generations) == (True, [1])


def test_redrives_are_bounded_by_the_queue() -> None:
    q = cast.queue("thrifty", max_redrives=1)
    job_id = cast.buried(queue=q)
    cast.redriven(job_id, now=at(5), max_attempts=1)
    cast.fail(cast.claim_one(q, now=at(6)), now=at(7))
    with cast.changes_nothing(job_id), pytest.raises(RedriveLimit):
        cast.redriven(job_id, now=at(8))


# Refusals


@pytest.mark.parametrize("where", ["ready", "running", "scheduled", "succeeded", "cancelled"])
def test_a_job_that_never_died_is_not_redriven(where: str) -> None:
    job_id = cast.enqueue(now=at(0), delay_s=60 if where == "scheduled" else None)
    if where == "cancelled":
        cast.cancel(job_id, now=at(1))
    if where in ("running", "succeeded"):
        lease = cast.claim_one(now=at(1))
        if where == "succeeded":
            cast.complete(lease, now=at(2))
    with cast.changes_nothing(job_id), pytest.raises(NotDead):
        cast.redriven(job_id, now=at(3))


@pytest.mark.parametrize("where", ["ready", "running", "scheduled"])
def test_a_second_redrive_learns_that_another_won(where: str) -> None:
    job_id = cast.buried()
    cast.redriven(job_id, now=at(5), not_before=at(60) if where == "scheduled" else None)
    if where == "running":
        cast.claim_one(now=at(6))
    with cast.changes_nothing(job_id), pytest.raises(AlreadyRedriven):
        cast.redriven(job_id, now=at(7))


def test_a_redriven_job_that_is_done_is_not_dead() -> None:
    job_id = cast.buried()
    cast.redriven(job_id, now=at(5))
    cast.complete(cast.claim_one(now=at(6)), now=at(7))
    with pytest.raises(NotDead):
        cast.redriven(job_id, now=at(8))


def test_a_foreign_dead_letter_and_an_absent_one_look_alike() -> None:
    job_id = cast.buried()
    with cast.changes_nothing(job_id):
        for wanted in (job_id, job_id + 1_000_000, 9 << 48 | 1):
            with pytest.raises(NotFound):
                cast.redriven(wanted, scope=cast.mallory())


# Keys


def test_the_same_key_again_is_replayed() -> None:
    job_id = cast.buried()
    first = cast.redriven(job_id, redrive_key="r-1", now=at(5))
    with cast.changes_nothing(job_id):
        again = cast.redriven(job_id, redrive_key="r-1", now=at(6))
    assert again == Redriven(job_id, 1, first.audit_id, "ready", replayed=True)


def test_the_same_key_is_replayed_after_the_job_ended() -> None:
    job_id = cast.buried()
    cast.redriven(job_id, redrive_key="r-1", now=at(5))
    cast.complete(cast.claim_one(now=at(6)), now=at(7))
    assert cast.redriven(job_id, redrive_key="r-1", now=at(8)).replayed


def test_the_same_key_with_other_arguments_conflicts() -> None:
    job_id = cast.buried()
    cast.redriven(job_id, redrive_key="r-1", now=at(5))
    with cast.changes_nothing(job_id), pytest.raises(KeyConflict):
        cast.redriven(job_id, redrive_key="r-1", now=at(6), max_attempts=3)


def test_two_jobs_may_use_one_key() -> None:
    one, two = cast.buried(now=at(0)), cast.buried(now=at(5))
    assert not cast.redriven(one, redrive_key="r", now=at(9)).replayed
    assert not cast.redriven(two, redrive_key="r", now=at(9)).replayed


# Audit


def test_a_redrive_is_audited_where_it_happened() -> None:
    job_id = cast.buried()
    done = cast.redriven(job_id, note="supplier is back", now=at(5))
    alias, _, entry = done.audit_id.partition("-")
    assert alias == cast.SHARD
    found = cast.read(
        "SELECT action, target, reason, actor FROM tenants_auditentry WHERE id = %s", [int(entry)]
    )
    assert found == [("job.redrive", f"job:0-{job_id}", "supplier is back", cast.OPS)]


@pytest.mark.parametrize("refusal", ["correction", "limit", "not dead"])
def test_a_refused_redrive_leaves_no_audit_entry(refusal: str) -> None:
    if refusal == "not dead":
        job_id = cast.enqueue()
    else:
        job_id = cast.buried(error_class="permanent" if refusal == "correction" else "transient")
    if refusal == "limit":
        cast.read("UPDATE dlq_deadletter SET redrive_generation = 10 RETURNING 1")
    with pytest.raises(JobsPlatformError):
        cast.redriven(job_id)
    assert cast.audited("job.redrive") == 0


def test_a_redrive_that_fails_takes_its_audit_entry_back(monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = cast.buried()
    from jobsplatform import sql

    run = sql.rows

    def broken(statement: str, *args: object, **kwargs: object) -> object:
        if statement == "dlq/redrive":
            raise ConnectionError("cut")
        return run(statement, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(sql, "rows", broken)
    with cast.changes_nothing(job_id), pytest.raises(ConnectionError):
        cast.redriven(job_id)
    assert cast.audited("job.redrive") == 0


def test_history_survives_a_redrive() -> None:
    job_id = cast.buried()
    cast.redriven(job_id, now=at(5))
    cast.complete(cast.claim_one(now=at(6)), now=at(7))
    outcomes = [row["outcome"] for row in cast.rows("queue_attempt", job_id)]
    assert sorted(outcomes) == ["failed", "succeeded"]


def test_an_old_worker_is_fenced_off_the_new_life() -> None:
    lease = cast.leased(now=at(0), max_attempts=1)
    cast.fail(lease, now=at(1))
    cast.redriven(lease.job_id, now=at(5))
    new = cast.claim_one(now=at(6))
    with cast.changes_nothing(new.job_id), pytest.raises(JobsPlatformError):
        cast.complete(lease, now=at(7))


def test_the_deadline_of_a_second_life_ends_it_as_a_dead_letter() -> None:
    job_id = cast.buried()
    cast.redriven(job_id, now=at(5), deadline=at(50))
    upkeep.expire(now=at(50))
    assert reads.job(job_id, scope=FLEET).dead_reason == "deadline_exceeded"


@pytest.mark.parametrize("guard", ["correction", "limit", "deadline"])
def test_the_statement_itself_keeps_each_guard(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check before it only explains: what changes in between must not slip through."""
    error_class = "permanent" if guard == "correction" else "transient"
    job_id = cast.buried(error_class=error_class, deadline=at(50))
    if guard == "correction":  # one of an earlier life
        cast.correct(job_id)
        cast.read("UPDATE dlq_correction SET redrive_generation = 7 RETURNING 1")
    if guard == "limit":
        cast.read("UPDATE dlq_deadletter SET redrive_generation = 10 RETURNING 1")
    monkeypatch.setattr("dlq.redrive._refusal", lambda *_: None)
    with cast.changes_nothing(job_id), pytest.raises(Unavailable):
        cast.redriven(job_id, now=at(50 if guard == "deadline" else 5))
    assert cast.audited("job.redrive") == 0
