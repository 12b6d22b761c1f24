"""The proof of the promises on a live database: faults are named, a lost job is put back under a higher fence."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from jobqueue import fsck, upkeep
from jobqueue.fsck import Fault
from tests import cast
from tests.cast import OPS, at

pytestmark = pytest.mark.django_db


def _run(statement: str, *params: Any) -> None:
    with connections[cast.SHARD].cursor() as cursor:
        cursor.execute(statement, params)


def _faults() -> list[tuple[int, str]]:
    return [(fault.job_id, fault.fault) for fault in fsck.check()]


def _lost(**fields: object) -> int:
    job_id = cast.enqueue(now=at(0), **fields)
    _run("DELETE FROM queue_readyjob WHERE job_id = %s", job_id)
    return job_id


def test_work_of_every_kind_is_sound() -> None:
    cast.complete(cast.leased(now=at(0), request_key="done"), now=at(1))
    cast.fail(cast.leased(now=at(2)), now=at(3))
    cast.correct(cast.buried(now=at(4)))
    cast.redriven(cast.buried(now=at(6), error_class="uncertain"), now=at(8), not_before=at(99))
    cast.cancel(cast.enqueue(now=at(9)), now=at(9))
    cast.release(cast.leased(now=at(10)), now=at(11))
    cast.claim_one(now=at(12))
    cast.enqueue(now=at(13))
    assert _faults() == []


def test_a_job_that_stands_nowhere_is_named() -> None:
    job_id = _lost()
    assert _faults() == [(job_id, "nowhere")]
    assert str(next(iter(fsck.check()))).startswith(f"0-{job_id} nowhere: ")


TWICE = """
    INSERT INTO queue_result (
        job_id, generation, attempt, crashes, redrive_generation, late, finished_at, outcome, payload_hash, body
    ) SELECT job_id, 1, 1, 0, 0, false, claimed_at, 'cancelled', NULL, NULL FROM queue_lease
"""


@pytest.mark.parametrize(
    ("fault", "damage"),
    [
        ("several_places", TWICE),
        ("orphan", "DELETE FROM queue_job"),
        ("attempts_exceeded", "UPDATE queue_lease SET attempt = -1"),
        ("wrong_lane", "UPDATE queue_lease SET lane_id = lane_id + 1000"),
        ("correction_missing", "UPDATE queue_lease SET payload_version = 1"),
        ("redrive_unrecorded", "UPDATE queue_lease SET redrive_generation = 1"),
        ("key_missing", "DELETE FROM queue_requestkey"),
        ("key_dangling", "DELETE FROM queue_job"),
    ],
)
def test_each_fault_is_named(fault: str, damage: str) -> None:
    lease = cast.leased(now=at(0), request_key="k")
    _run(damage)
    assert (lease.job_id, fault) in _faults()


def test_a_generation_behind_its_history_is_named() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1))
    _run("UPDATE queue_scheduledjob SET generation = 0")
    assert _faults() == [(lease.job_id, "generation_behind")]


def test_a_result_without_its_attempt_is_named() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    _run("DELETE FROM queue_attempt")
    assert _faults() == [(lease.job_id, "completion_unrecorded")]


def test_a_row_below_its_lane_s_bound_is_named() -> None:
    job_id = cast.enqueue(now=at(0))
    _run("UPDATE queue_lane SET low = %s", at(9))
    assert _faults() == [(job_id, "hidden")]


def test_faults_are_found_in_every_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck, "RANGE_JOBS", 3)
    ids = [_lost() for _ in range(8)]
    assert _faults() == [(job_id, "nowhere") for job_id in ids]


# Repair


def _repair() -> set[int]:
    return fsck.repair(list(fsck.check()), actor=OPS, pause_seconds=0)


def test_a_lost_job_is_put_back_and_runs() -> None:
    job_id = _lost(payload='"p"', priority=1)
    assert _repair() == {job_id}
    assert cast.row("queue_scheduledjob", job_id)["reason"] == "repaired"
    assert _faults() == []
    upkeep.promote()
    lease = cast.claim_one()
    assert (lease.job_id, lease.payload, lease.priority) == (job_id, '"p"', 1)


def test_a_lost_lease_s_holder_is_fenced_off() -> None:
    """The lease that was lost ran a generation that the history does not know: the next one is beyond it."""
    lost = cast.leased(now=at(0))
    _run("DELETE FROM queue_lease")
    assert _repair() == {lost.job_id}
    upkeep.promote()
    again = cast.claim_one()
    assert again.generation > lost.generation
    with cast.changes_nothing(again.job_id), pytest.raises(Exception, match="lease"):
        cast.complete(lost, now=at(1))


def test_a_repair_is_audited() -> None:
    job_id = _lost()
    _repair()
    entries = cast.read("SELECT actor, target FROM tenants_auditentry WHERE action = 'job.repair'")
    assert entries == [(OPS, f"job:0-{job_id}")]


def test_a_completed_job_that_lost_its_result_is_left_to_people() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    _run("DELETE FROM queue_result")
    assert _repair() == set()
    assert _faults() == [(lease.job_id, "nowhere")]


def test_a_repair_of_a_job_that_stands_somewhere_does_nothing() -> None:
    job_id = cast.enqueue(now=at(0))
    with cast.changes_nothing(job_id):
        assert fsck.repair([Fault(cast.SHARD, job_id, "nowhere", "")], actor=OPS, pause_seconds=0) == set()


def test_a_repair_keeps_what_redrives_and_corrections_said() -> None:
    job_id = cast.buried(error_class="permanent")
    cast.correct(job_id, payload='"new"')
    cast.redriven(job_id, now=at(5))
    _run("DELETE FROM queue_readyjob")
    _repair()
    waiting = cast.row("queue_scheduledjob", job_id)
    assert (waiting["redrive_generation"], waiting["payload_version"], waiting["generation"]) == (1, 1, 2)


def test_a_repair_keeps_the_deadline_and_the_attempts_of_the_latest_redrive() -> None:
    job_id = cast.buried(deadline=at(100))
    cast.redriven(job_id, now=at(5), deadline=at(900), max_attempts=7)
    _run("DELETE FROM queue_readyjob")
    assert _repair() == {job_id}
    waiting = cast.row("queue_scheduledjob", job_id)
    assert (waiting["deadline"], waiting["max_attempts"], waiting["attempt"]) == (at(900), 7, 0)


def test_a_repair_of_a_job_that_was_never_redriven_keeps_its_own_deadline() -> None:
    job_id = _lost(deadline=at(100), max_attempts=3)
    _repair()
    waiting = cast.row("queue_scheduledjob", job_id)
    assert (waiting["deadline"], waiting["max_attempts"]) == (at(100), 3)


def test_many_lost_jobs_are_put_back_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck, "REPAIR_BATCH", 2)
    ids = {_lost() for _ in range(5)}
    assert _repair() == ids
    assert _faults() == []
