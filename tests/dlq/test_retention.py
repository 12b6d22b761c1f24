"""S116, S113: retention takes finished jobs that are old enough, and nothing else."""

from __future__ import annotations

import pytest

from jobqueue import fsck, upkeep
from jobqueue.claiming import Lease
from tests import cast
from tests.cast import acme, at

pytestmark = pytest.mark.django_db

DAY = 86_400
MANY = 100  # of each kind; the slow form of the scenario has ten times as many


def _finish(count: int, *, now: float) -> list[int]:
    cast.enqueue_many(count, now=at(now), kind="done")
    held: list[Lease] = []
    while len(held) < count:
        held += cast.claim(now=at(now), limit=100)
    for lease in held:
        cast.complete(lease, now=at(now + 1))
    return [lease.job_id for lease in held]


def _scenario(many: int) -> None:
    dead = cast.graveyard(many, now=at(0))
    done = _finish(many, now=2)
    cancelled = cast.enqueue_many(many, now=at(4), kind="unwanted")
    for job_id in cancelled:
        cast.cancel(job_id, now=at(5))
    ready = cast.enqueue_many(many, now=at(6))
    delayed = cast.enqueue_many(many, now=at(6), delay_s=60 * DAY)
    audits = cast.read("SELECT count(*) FROM tenants_auditentry")
    while upkeep.purge(limit=37, now=at(40 * DAY)):
        pass
    left = {
        "readyjob": ready,
        "scheduledjob": delayed,
        "deadletter": dead,
    }
    for place, job_ids in left.items():
        assert [cast.place(job_id) for job_id in job_ids] == [place] * many
    assert cast.read("SELECT count(*) FROM queue_job") == [(3 * many,)]
    assert cast.read("SELECT count(*) FROM queue_result") == [(0,)]
    assert cast.read("SELECT count(*) FROM queue_attempt WHERE job_id = ANY(%s)", [done]) == [(0,)]
    assert cast.read("SELECT count(*) FROM tenants_auditentry") == audits
    assert list(fsck.check()) == []


def test_only_finished_jobs_past_their_time_are_deleted() -> None:
    _scenario(MANY)


@pytest.mark.slow
def test_only_finished_jobs_past_their_time_are_deleted_of_a_thousand_each() -> None:
    _scenario(1_000)


def test_a_redriven_job_s_history_goes_with_it_and_its_fork_stays() -> None:
    from dlq import fork

    job_id = cast.buried(error_class="permanent")
    made = fork.fork(
        job_id, fork.NewFork(request_key="new", note="n", actor=cast.OPS), scope=cast.scope_of(acme())
    )
    cast.correct(job_id)
    cast.redriven(job_id, now=at(5))
    for lease in cast.claim(now=at(6), limit=9):
        if lease.job_id == job_id:
            cast.complete(lease, now=at(7))
    upkeep.purge(now=at(40 * DAY))
    assert {name for name, rows in cast.everything_about(job_id).items() if rows} == set()
    assert cast.read("SELECT job_id, origin_job_id FROM dlq_fork") == [(made.job_id, job_id)]


def test_a_fork_s_origin_is_forgotten_with_the_fork() -> None:
    from dlq import fork

    job_id = cast.buried()
    made = fork.fork(
        job_id, fork.NewFork(request_key="new", note="n", actor=cast.OPS), scope=cast.scope_of(acme())
    )
    cast.cancel(made.job_id, now=at(5))
    upkeep.purge(now=at(40 * DAY))
    assert cast.places(made.job_id) == []
    assert cast.read("SELECT count(*) FROM dlq_fork") == [(0,)]
    assert cast.place(job_id) == "deadletter"
