"""Limits on intake as an enqueue meets them: what counts, whom it binds, and that none is ignored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction

from jobqueue import admitting, upkeep
from jobqueue.enqueue import Accepted
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobsplatform import events, sql
from jobsplatform.errors import JobsPlatformError, Unavailable
from tenants import registry
from tenants.admission import Ask
from tenants.models import TenantState
from tests import api_cast, cast
from tests.cast import BEGINNING, OPS, SHARD, acme, at, globex, new_job

pytestmark = pytest.mark.django_db


def _limit(*, queue: str = "", band: int | None = None, slug: str = "acme", **limits: Any) -> None:
    cast.tenant(slug)
    registry.set_quota(slug, limits, queue=queue, band=band, actor=OPS)


def _put(count: int = 1, *, now: datetime = BEGINNING, **changes: Any) -> dict[str, int]:
    """How many of so many equal jobs came in ("in"), or were refused with which code."""
    outcomes = enqueue_jobs([new_job(**changes)] * count, now=now)
    return dict(Counter("in" if isinstance(one, Accepted) else one.code for one in outcomes))


def _refusal(*, now: datetime = BEGINNING, **changes: Any) -> JobsPlatformError:
    (outcome,) = enqueue_jobs([new_job(**changes)], now=now)
    assert isinstance(outcome, JobsPlatformError)
    return outcome


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    stop = events.subscribe(lambda name, fields: found.append((name, fields)))
    yield found
    stop()


# Depth


def test_a_depth_counts_ready_and_scheduled_jobs() -> None:
    _limit(max_depth=4)
    cast.enqueue()
    cast.enqueue(delay_s=60)
    assert _put(3) == {"in": 2, "quota_exceeded": 1}


def test_a_running_job_leaves_room_and_takes_it_when_it_comes_back() -> None:
    _limit(max_depth=2)
    cast.enqueue_many(2)
    lease = cast.claim(now=at(1))[0]
    assert _put(now=at(2)) == {"in": 1}
    cast.fail(lease, now=at(3))
    assert _put(now=at(4)) == {"quota_exceeded": 1}
    cast.claim(now=at(5))
    assert _put(now=at(6)) == {"quota_exceeded": 1}  # two wait: one ready, one to be retried
    cast.claim(now=at(7))
    assert _put(now=at(8)) == {"in": 1}


def test_a_depth_of_a_tenant_is_over_all_its_queues() -> None:
    other = cast.queue("other")
    _limit(max_depth=3)
    cast.enqueue_many(2)
    assert _put(2, queue=other) == {"in": 1, "quota_exceeded": 1}


def test_a_depth_in_a_queue_binds_that_queue() -> None:
    other = cast.queue("other")
    _limit(max_depth=1, queue="default")
    assert _put(2) == {"in": 1, "quota_exceeded": 1}
    assert _put(2, queue=other) == {"in": 2}


def test_a_depth_in_a_band_binds_that_band() -> None:
    _limit(max_depth=1, queue="default", band=0)
    assert _put(2, priority=0) == {"in": 1, "quota_exceeded": 1}
    assert _put(2, priority=1) == {"in": 2}


def test_limits_are_the_tenant_s_own() -> None:
    _limit(max_depth=0)
    assert _put(tenant_id=globex().pk) == {"in": 1}


def test_a_depth_of_nothing_takes_nothing() -> None:
    _limit(max_depth=0)
    assert _put() == {"quota_exceeded": 1}


def test_a_changed_limit_holds_in_the_next_call() -> None:
    _limit(max_depth=2)
    assert _put(3) == {"in": 2, "quota_exceeded": 1}
    _limit(max_depth=5)
    assert _put(4) == {"in": 3, "quota_exceeded": 1}
    _limit(max_depth=1)
    assert _put() == {"quota_exceeded": 1}
    _limit(max_depth=None)
    assert _put() == {"in": 1}


def test_a_large_limit_that_was_raised_is_counted_anew() -> None:
    _limit(max_depth=1_500)
    cast.enqueue_many(1_500)
    assert _put() == {"quota_exceeded": 1}
    _limit(max_depth=1_505)
    assert _put(10) == {"in": 5, "quota_exceeded": 5}


def test_room_that_was_left_of_a_larger_limit_is_not_used() -> None:
    _limit(max_depth=50_000)
    assert _put() == {"in": 1}
    _limit(max_depth=3)
    assert _put(5) == {"in": 2, "quota_exceeded": 3}


def test_room_that_was_left_far_from_a_limit_is_used_up_exactly() -> None:
    _limit(max_depth=2_000)
    assert sum((Counter(_put(500)) for _ in range(5)), Counter()) == {"in": 2_000, "quota_exceeded": 500}


def test_a_tenant_without_limits_runs_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    cast.enqueue()
    statements: list[str] = []
    rows = sql.rows

    def counted(statement: str, *args: Any, **options: Any) -> list[sql.Row]:
        statements.append(statement)
        return rows(statement, *args, **options)

    monkeypatch.setattr(sql, "rows", counted)
    monkeypatch.setattr(sql, "short_transaction", lambda *_: pytest.fail("a transaction"))
    job = new_job()
    statements.clear()
    assert isinstance(enqueue_jobs([job], now=BEGINNING)[0], Accepted)
    assert statements == ["jobqueue/enqueue_one"]


# Reservations


def test_a_stored_job_leaves_no_reservation() -> None:
    _limit(max_depth=5)
    cast.enqueue_many(3)
    assert cast.read("SELECT count(*) FROM tenants_reservation") == [(0,)]


def test_a_reserved_place_is_taken() -> None:
    _limit(max_depth=2)
    admitting.admit([Ask(acme().pk, "default", 2, 1)], alias=SHARD, now=at(0))
    assert _put(2) == {"in": 1, "quota_exceeded": 1}


def test_upkeep_frees_the_places_that_dead_processes_hold() -> None:
    _limit(max_depth=1)
    admitting.admit([Ask(acme().pk, "default", 2, 1)], alias=SHARD, now=at(0))
    assert upkeep.sweep_reservations(now=at(59)) == 0
    assert _put(now=at(59)) == {"quota_exceeded": 1}
    assert upkeep.sweep_reservations(now=at(61)) == 1
    assert _put(now=at(61)) == {"in": 1}


def test_an_insert_whose_reservation_was_swept_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(max_depth=1)
    admit, calls = admitting.admit, []

    def slow(asks: Any, **options: Any) -> Any:
        answers = admit(asks, **options)
        calls.append(answers)
        if len(calls) == 1:
            cast.read("DELETE FROM tenants_reservation RETURNING 1")
        return answers

    monkeypatch.setattr(admitting, "admit", slow)
    assert _put() == {"in": 1}
    assert len(calls) == 2
    assert _put() == {"quota_exceeded": 1}


def test_what_was_stored_is_answered_when_limits_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(max_depth=5, queue="default", band=0)
    free = new_job(tenant_id=globex().pk)

    def lost(*_: Any, **__: Any) -> Any:
        raise Unavailable

    monkeypatch.setattr(admitting, "admit", lost)
    stored, refused = enqueue_jobs([free, new_job()], now=BEGINNING)
    assert isinstance(stored, Accepted)
    assert isinstance(refused, Unavailable)
    with pytest.raises(Unavailable):
        enqueue_jobs([new_job()], now=BEGINNING)


def test_an_admission_within_a_transaction_leaves_its_durability_alone() -> None:
    _limit(max_depth=5)
    with transaction.atomic(using=SHARD):
        cast.enqueue()
        assert cast.read("SHOW synchronous_commit") == [("on",)]


# Rates


def test_a_burst_comes_in_at_once_and_the_rest_at_the_rate() -> None:
    _limit(enqueue_rate_per_s=2, enqueue_burst=5)
    assert _put(7, now=at(0)) == {"in": 5, "rate_limited": 2}
    assert _put(7, now=at(1)) == {"in": 2, "rate_limited": 5}
    assert _put(1, now=at(1.4)) == {"rate_limited": 1}
    assert _put(1, now=at(1.6)) == {"in": 1}
    assert _put(7, now=at(1_000)) == {"in": 5, "rate_limited": 2}


def test_without_a_burst_one_second_may_come_at_once() -> None:
    _limit(enqueue_rate_per_s=2.5)
    assert _put(5) == {"in": 3, "rate_limited": 2}


def test_a_hundred_a_minute_is_a_hundred_a_minute() -> None:
    """S163: 150 calls one after the other, then 50 more within the minute; a minute later a hundred again."""
    _limit(enqueue_rate_per_s=100 / 60, enqueue_burst=100)
    first = sum((Counter(_put(now=at(0))) for _ in range(150)), Counter())
    assert first == {"in": 100, "rate_limited": 50}
    assert _put(50, now=at(0)) == {"rate_limited": 50}
    assert _put(150, now=at(60)) == {"in": 100, "rate_limited": 50}


def test_a_rate_in_a_band_binds_that_band() -> None:
    _limit(enqueue_rate_per_s=1, enqueue_burst=1, queue="default", band=0)
    assert _put(2, priority=0) == {"in": 1, "rate_limited": 1}
    assert _put(2, priority=1) == {"in": 2}


def test_a_refused_job_costs_no_token() -> None:
    _limit(enqueue_rate_per_s=0.001, enqueue_burst=3, max_payload_bytes=10)
    assert _put(5, payload='"' + "x" * 20 + '"') == {"quota_exceeded": 5}
    assert _put(4) == {"in": 3, "rate_limited": 1}


def test_a_rate_says_when_the_next_token_is_there() -> None:
    _limit(enqueue_rate_per_s=0.1, enqueue_burst=1)
    _put(now=at(0))
    assert _refusal(now=at(4)).retry_after == 6


# Sizes


def test_a_payload_is_measured_in_bytes_as_sent() -> None:
    _limit(max_payload_bytes=6)
    assert _put(payload='"éé"') == {"in": 1}
    assert _put(payload='"ééé"') == {"quota_exceeded": 1}
    assert _put(payload='{ "a":1 }') == {"quota_exceeded": 1}


# Queues


def test_a_full_queue_is_full_for_everybody() -> None:
    queue = cast.queue("small", depth_limit=3)
    assert _put(2, queue=queue) == {"in": 2}
    assert _put(3, queue=queue, tenant_id=globex().pk) == {"in": 1, "queue_full": 2}
    assert _put(queue=queue) == {"queue_full": 1}
    assert _put() == {"in": 1}


def test_the_tenant_s_own_limit_is_told_first() -> None:
    queue = cast.queue("small", depth_limit=1)
    _limit(max_depth=1)
    assert _put(2, queue=queue) == {"in": 1, "quota_exceeded": 1}


def test_a_queue_s_limit_may_be_changed_and_lifted() -> None:
    queue = cast.queue("small", depth_limit=1)
    assert _put(2, queue=queue) == {"in": 1, "queue_full": 1}
    assert _put(2, queue=cast.queue("small", depth_limit=2)) == {"in": 1, "queue_full": 1}
    assert _put(2, queue=cast.queue("small", depth_limit=None)) == {"in": 2}


# Replays


def test_a_replay_is_answered_at_every_limit_and_costs_nothing() -> None:
    queue = cast.queue("small", depth_limit=2)
    _limit(max_depth=2, enqueue_rate_per_s=0.001, enqueue_burst=2)
    first = cast.enqueue(queue=queue, request_key="k")
    for _ in range(5):
        (again,) = enqueue_jobs([new_job(queue=queue, request_key="k")], now=at(1))
        assert again == Accepted(first, replayed=True)
    assert _put(2, queue=queue, now=at(1)) == {"in": 1, "rate_limited": 1}
    (again,) = enqueue_jobs([new_job(queue=queue, request_key="k")], now=at(1))
    assert again == Accepted(first, replayed=True)


def test_a_repeat_within_a_batch_takes_one_place() -> None:
    _limit(max_depth=2)
    jobs = [new_job(request_key="a"), new_job(request_key="a"), new_job(request_key="b"), new_job()]
    outcomes = enqueue_jobs(jobs, now=at(0))
    assert [isinstance(one, Accepted) for one in outcomes] == [True, True, True, False]


def test_a_job_that_lost_its_key_meanwhile_gets_its_token_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(enqueue_rate_per_s=0.001, enqueue_burst=3)
    admit, asked = admitting.admit, []

    def raced(asks: Any, **options: Any) -> Any:
        answers = admit(asks, **options)
        asked.append(asks)
        if len(asked) == 1:
            cast.enqueue(request_key="k", now=at(0))  # another process is first
        return answers

    monkeypatch.setattr(admitting, "admit", raced)
    (lost,) = enqueue_jobs([new_job(request_key="k")], now=at(0))
    assert isinstance(lost, Accepted)
    assert lost.replayed
    assert _put(3, now=at(0)) == {"in": 2, "rate_limited": 1}


# When to return


def _drained(count: int, **claimed: Any) -> None:
    """So many starts within the last minute, folded."""
    for lease in cast.claim(limit=count, now=at(30), **claimed):
        cast.complete(lease, now=at(31))
    upkeep.fold()


def test_a_full_depth_returns_by_the_measured_drain() -> None:
    _limit(max_depth=20, queue="default")
    cast.enqueue_many(20)
    _drained(6)
    cast.enqueue_many(6, now=at(40))
    assert _refusal(now=at(60)).retry_after == 10  # six starts in the sixty seconds since the minute began


def test_a_full_queue_returns_by_its_own_drain() -> None:
    queue = cast.queue("small", depth_limit=20)
    cast.enqueue_many(20, queue=queue)
    for lease in cast.claim(queue, limit=12, now=at(30)):
        cast.complete(lease, now=at(31))
    upkeep.fold()
    cast.enqueue_many(12, queue=queue, now=at(40))
    full = _refusal(queue=queue, now=at(60))
    assert (full.code, full.retry_after) == ("queue_full", 5)


def test_work_that_comes_back_is_no_drain() -> None:
    _limit(max_depth=10)
    cast.enqueue_many(10)
    for lease in cast.claim(limit=10, now=at(30)):
        cast.fail(lease, now=at(31))
    upkeep.fold()
    assert _refusal(now=at(60)).retry_after == 5  # nothing was measured


# Warnings


def test_four_fifths_of_a_depth_are_told(told: list[tuple[str, dict[str, Any]]]) -> None:
    _limit(max_depth=10, queue="default")
    cast.enqueue_many(7)
    assert "quota_warning" not in dict(told)
    cast.enqueue()
    assert dict(told)["quota_warning"] == {
        "tenant_id": acme().pk,
        "queue": "default",
        "band": -1,
        "max_depth": 10,
    }
    told.clear()
    assert _put(3) == {"in": 2, "quota_exceeded": 1}
    assert [name for name, _ in told] == ["refused"]
    assert told[0][1] == {"queue": "default", "outcome": "quota_exceeded", "count": 1}


# Deadlines


def _backlog(queue: Any, waiting: int, started: int) -> None:
    """A backlog that has waited for a minute, of which some have started since."""
    cast.enqueue_many(waiting + started, queue=queue, now=at(0))
    for lease in cast.claim(queue, limit=started, now=at(30)):
        cast.complete(lease, now=at(31))
    upkeep.fold()


def test_a_deadline_that_the_drain_cannot_meet_is_refused() -> None:
    queue = cast.queue("careful", refuse_infeasible=True)
    _backlog(queue, waiting=60, started=30)  # half a job a second: a new one starts in two minutes
    late = _refusal(queue=queue, expires_in_s=100, now=at(60))
    assert (late.status, late.code) == (422, "deadline_infeasible")
    assert _put(queue=queue, expires_in_s=150, now=at(60)) == {"in": 1}
    assert _put(queue=queue, now=at(60)) == {"in": 1}


def test_only_a_queue_that_asks_for_it_refuses() -> None:
    queue = cast.queue("careless")
    _backlog(queue, waiting=60, started=30)
    assert _put(queue=queue, expires_in_s=10, now=at(60)) == {"in": 1}


def test_without_a_standing_backlog_or_a_measured_drain_nothing_is_refused() -> None:
    queue = cast.queue("careful", refuse_infeasible=True)
    assert _put(queue=queue, expires_in_s=1, now=at(0)) == {"in": 1}
    cast.enqueue_many(50, queue=queue, now=at(60))
    assert _put(queue=queue, expires_in_s=1, now=at(65)) == {"in": 1}
    assert _put(queue=queue, expires_in_s=1, now=at(90)) == {"in": 1}  # nothing has started: nothing is known


def test_another_tenant_s_backlog_does_not_make_a_deadline_infeasible() -> None:
    queue = cast.queue("careful", refuse_infeasible=True)
    _backlog(queue, waiting=60, started=30)
    assert _put(queue=queue, expires_in_s=10, now=at(60), tenant_id=globex().pk) == {"in": 1}


def test_an_infeasible_job_takes_no_token_and_a_replay_is_answered() -> None:
    queue = cast.queue("careful", refuse_infeasible=True)
    first = cast.enqueue(queue=queue, request_key="k", expires_in_s=100, now=at(0))
    _backlog(queue, waiting=60, started=30)
    _limit(enqueue_rate_per_s=0.001, enqueue_burst=1)
    assert _put(3, queue=queue, expires_in_s=10, now=at(60)) == {"deadline_infeasible": 3}
    (again,) = enqueue_jobs([new_job(queue=queue, request_key="k", expires_in_s=100)], now=at(60))
    assert again == Accepted(first, replayed=True)
    assert _put(2, queue=queue, now=at(60)) == {"in": 1, "rate_limited": 1}


# On the wire


@pytest.mark.parametrize(
    ("limits", "settings", "expected"),
    [
        ({"max_depth": 1}, {}, (429, "quota_exceeded")),
        ({"enqueue_rate_per_s": 0.5, "enqueue_burst": 1}, {}, (429, "rate_limited")),
        ({}, {"depth_limit": 1}, (429, "queue_full")),
    ],
)
def test_a_refusal_on_the_wire_says_when_to_return(
    limits: dict[str, Any], settings: dict[str, Any], expected: tuple[int, str]
) -> None:
    caller = api_cast.caller("acme", "produce")
    cast.queue("wired", **settings)
    if limits:
        _limit(queue="wired", **limits)
    job = {"kind": "a", "payload": {}, "queue": "wired", "request_key": "k"}
    assert caller.post("/v1/jobs", job).status_code == 201
    refused = caller.post("/v1/jobs", job | {"request_key": "other"})
    assert api_cast.code(refused) == expected
    assert int(refused["Retry-After"]) >= 1
    assert caller.post("/v1/jobs", job).status_code == 200
    items = caller.post("/v1/jobs/batch", {"jobs": [job, job | {"request_key": "third"}]}).json()["results"]
    assert [item["status"] for item in items] == [200, 429]
    assert items[1]["problem"]["code"] == expected[1]


# The command


@pytest.mark.parametrize("name", registry.LIMITS)
def test_every_limit_of_the_contract_can_be_set(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    acme()
    call_command("setquota", "acme", f"{name}=3")
    assert f"{name}=3" in capsys.readouterr().out


def test_a_limit_without_effect_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    acme()
    call_command("setquota", "acme", "enqueue_burst=3")
    assert "has no effect" in capsys.readouterr().out


def test_a_limit_that_has_an_effect_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    acme()
    call_command("setquota", "acme", "enqueue_burst=3", "enqueue_rate_per_s=1")
    assert "no effect" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limits", "asks"),
    [
        ({"max_running": 3}, False),
        ({"weight": 3}, False),
        ({"enqueue_burst": 3}, False),
        ({"max_depth": 0}, True),
        ({"enqueue_rate_per_s": 1.0}, True),
        ({"max_payload_bytes": 9}, True),
    ],
)
def test_only_limits_on_intake_are_asked_at_enqueue(limits: dict[str, Any], asks: bool) -> None:
    _limit(**limits)
    assert TenantState.objects.using(SHARD).get(tenant_id=acme().pk).limits_intake == asks
