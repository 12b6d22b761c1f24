"""What callers read of jobs: each from the place where it stands, their own alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobqueue import listing, reads, upkeep
from jobqueue.listing import JobFilter
from jobqueue.types import FLEET, Scope
from jobsplatform.errors import NotFound
from tests import cast
from tests.cast import acme, at, globex

pytestmark = pytest.mark.django_db


def test_a_ready_job_as_a_client_sees_it() -> None:
    q = cast.queue()
    job_id = cast.enqueue(
        now=at(0), payload='{"é":1}', request_key="k", deadline=at(60), dependency="smtp", max_attempts=3
    )
    view = reads.job(job_id, scope=FLEET)
    assert (view.state, view.kind, view.priority, view.queue_id, view.tenant_id) == (
        "ready",
        "noop",
        2,
        q.id,
        acme().pk,
    )
    assert (view.payload_bytes, len(view.payload_sha256 or "")) == (8, 64)
    assert (view.request_key, view.dependency, view.max_attempts, view.attempts_used) == ("k", "smtp", 3, 0)
    assert (view.created_at, view.deadline, view.due_at, view.finished_at) == (at(0), at(60), None, None)


def test_a_scheduled_job_shows_when_it_is_due() -> None:
    view = reads.job(cast.enqueue(now=at(0), delay_s=60), scope=FLEET)
    assert (view.state, view.due_at, view.not_before) == ("scheduled", at(60), at(60))


def test_a_running_job_shows_its_lease() -> None:
    view = reads.job(cast.leased(now=at(0)).job_id, scope=FLEET)
    assert (view.state, view.claimed_at, view.expires_at, view.generation) == ("running", at(0), at(30), 1)


def test_a_dead_job_shows_its_reason() -> None:
    view = reads.job(cast.buried(), scope=FLEET)
    assert (view.state, view.dead_reason, view.finished_at) == ("dead", "exhausted", at(1))


def test_a_finished_job_keeps_its_counts() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    view = reads.job(lease.job_id, scope=FLEET)
    assert (view.state, view.attempts_used, view.generation, view.finished_at) == ("succeeded", 1, 1, at(1))


def test_a_foreign_job_and_an_absent_one_look_alike() -> None:
    job_id = cast.enqueue()
    for wanted in (job_id, job_id + 1_000_000, 9 << 48 | 1):
        with pytest.raises(NotFound) as refused:
            reads.job(wanted, scope=cast.mallory())
        assert refused.value.detail == NotFound().detail


@pytest.mark.parametrize("read", [reads.result, reads.payload])
def test_a_foreign_job_s_words_are_not_there(read: object) -> None:
    lease = cast.leased(now=at(0), payload='"secret"')
    cast.complete(lease, now=at(1))
    with pytest.raises(NotFound):
        read(lease.job_id, scope=cast.mallory())  # type: ignore[operator]


def test_a_foreign_job_s_attempts_are_not_there() -> None:
    lease = cast.leased(now=at(0))
    with pytest.raises(NotFound):
        reads.attempts(lease.job_id, scope=cast.mallory(), before=None, limit=9)


def test_there_is_no_result_before_the_end() -> None:
    with pytest.raises(NotFound):
        reads.result(cast.leased().job_id, scope=FLEET)


def test_a_result_has_its_hash() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1), result="{}")
    expected = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert reads.result(lease.job_id, scope=FLEET).payload_hash == expected


def test_attempts_are_newest_first_with_the_one_that_runs() -> None:
    lease = cast.leased(now=at(0))
    cast.fail(lease, now=at(1))
    upkeep.promote(now=at(60))
    cast.claim_one(now=at(60), worker="w-2")
    found, more = reads.attempts(lease.job_id, scope=FLEET, before=None, limit=9)
    assert [(a.generation, a.outcome, a.worker) for a in found] == [(2, None, "w-2"), (1, "failed", "")]
    assert more is None


def test_attempts_page_without_gaps() -> None:
    job_id = cast.enqueue(now=at(0))
    for turn in range(5):
        cast.release(cast.claim_one(now=at(turn)), now=at(turn))
    seen, before = [], None
    while True:
        page, before = reads.attempts(job_id, scope=FLEET, before=before, limit=2)
        seen += [attempt.generation for attempt in page]
        if before is None:
            break
    assert seen == [5, 4, 3, 2, 1]


# Lists


def _ids(scope: Scope = FLEET, limit: int = 50, **wanted: object) -> list[int]:
    page, _ = listing.page(JobFilter(**wanted), scope=scope, before=None, limit=limit)  # type: ignore[arg-type]
    return [view.job_id for view in page]


def test_a_list_is_newest_first() -> None:
    ids = cast.enqueue_many(3)
    assert _ids() == ids[::-1]


def test_a_list_pages_without_gaps_or_repeats() -> None:
    ids = cast.enqueue_many(7)
    seen, before = [], None
    while True:
        page, before = listing.page(JobFilter(), scope=FLEET, before=before, limit=3)
        seen += [view.job_id for view in page]
        if before is None:
            break
    assert seen == ids[::-1]


def test_a_tenant_lists_its_own() -> None:
    cast.enqueue()
    theirs = cast.enqueue(tenant_id=globex().pk)
    assert _ids(scope=cast.mallory()) == [theirs]


def test_a_token_of_some_queues_lists_those() -> None:
    other = cast.queue("other")
    cast.enqueue()
    job_id = cast.enqueue(queue=other)
    assert _ids(scope=Scope(queue_ids=(other.id,))) == [job_id]


def test_a_list_by_state_asks_the_place() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    dead = cast.buried(now=at(2))
    running = cast.leased(now=at(3))
    ready, scheduled = cast.enqueue(now=at(4)), cast.enqueue(now=at(4), delay_s=9)
    expected = {
        "succeeded": lease.job_id,
        "dead": dead,
        "running": running.job_id,
        "ready": ready,
        "scheduled": scheduled,
    }
    assert {state: _ids(state=state) for state in expected} == {state: [i] for state, i in expected.items()}
    assert _ids(state="cancelled") == []


def test_a_list_is_narrowed_by_each_filter() -> None:
    other = cast.queue("other")
    job_id = cast.enqueue(now=at(5), queue=other, kind="odd", priority=1, request_key="k")
    cast.enqueue(now=at(0))
    for wanted in (
        {"queue_id": other.id},
        {"kind": "odd"},
        {"priority": 1},
        {"request_key": "k"},
        {"created_after": at(4)},
    ):
        assert _ids(**wanted) == [job_id]
    assert _ids(created_before=at(0) + timedelta(microseconds=1)) != [job_id]


def test_an_unknown_state_lists_nothing() -> None:
    cast.enqueue()
    assert _ids(state="asleep") == []
