"""The small statements of an enqueue: what they take, what they leave to the one that judges; all store alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobqueue import enqueue, kinds, lanes, policies
from jobqueue.enqueue import Accepted, NewJob
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobsplatform import sql
from jobsplatform.errors import Invalid, JobsPlatformError, QueueFull, QuotaExceeded, RateLimited, Unavailable
from tenants import registry
from tests import cast
from tests.cast import OPS, SHARD, acme, at, globex, new_job

pytestmark = pytest.mark.django_db

ONE, PLAIN, JUDGED = "jobqueue/enqueue_one", "jobqueue/enqueue_plain", "jobqueue/enqueue"
MAIL = {"type": "object", "required": ["to"]}


@pytest.fixture(autouse=True)
def known() -> None:
    """The shard knows the tenants and the queue: work was enqueued before."""
    cast.enqueue()
    cast.enqueue(tenant_id=globex().pk)


@pytest.fixture
def statements(known: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that an enqueue runs, those about lanes aside."""
    found: list[str] = []
    rows = sql.rows

    def noted(statement: str, *args: Any, **options: Any) -> list[sql.Row]:
        if statement in (ONE, PLAIN, JUDGED):
            found.append(statement)
        return rows(statement, *args, **options)

    monkeypatch.setattr(sql, "rows", noted)
    return found


def put(*jobs: NewJob) -> list[int]:
    return [cast.accepted(outcome).job_id for outcome in enqueue_jobs(jobs, now=at(0))]


def refused(job: NewJob) -> JobsPlatformError:
    (outcome,) = enqueue_jobs([job], now=at(0))
    assert isinstance(outcome, JobsPlatformError)
    return outcome


def bar_all() -> None:
    lanes.bar([lane for (lane,) in cast.read("SELECT id FROM queue_lane")], alias=SHARD)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"payload": None, "payload_ref": "s3://x"},
        {"max_attempts": 2, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        {"dependency": "smtp"},
    ],
)
def test_all_three_statements_store_and_answer_the_same(
    changes: dict[str, Any], statements: list[str]
) -> None:
    kinds.change("noop", {"max_attempts": 7}, actor=OPS)
    cast.enqueue(**changes)
    statements.clear()
    jobs = [new_job(**changes)] * 2
    alone = [cast.accepted(one) for one in enqueue_jobs(jobs[:1], now=at(0))] * 2
    plain = [cast.accepted(one) for one in enqueue_jobs(jobs, now=at(0))]
    bar_all()
    judged = [cast.accepted(one) for one in enqueue_jobs(jobs, now=at(0))]
    assert statements == [ONE, PLAIN, JUDGED]
    assert [one.stored for one in alone] == [one.stored for one in plain] == [one.stored for one in judged]
    for table, key in (("queue_job", "id"), ("queue_readyjob", "job_id")):
        rows = [
            {name: value for name, value in cast.row(table, one.job_id).items() if name != key}
            for one in alone + plain + judged
        ]
        assert rows == rows[:1] * 6


@pytest.mark.parametrize(
    "changes",
    [
        {"request_key": "k"},
        {"delay_s": 0},
        {"delay_s": 60},
        {"not_before": at(60)},
        {"deadline": at(60)},
        {"expires_in_s": 60},
    ],
)
def test_a_key_and_a_time_are_for_the_statement_that_judges(
    changes: dict[str, Any], statements: list[str]
) -> None:
    put(new_job(**changes))
    assert statements == [JUDGED]


def set_depth() -> None:
    registry.set_quota("acme", {"max_depth": 1}, actor=OPS)


def set_rate() -> None:
    registry.set_quota("acme", {"enqueue_rate_per_s": 0.001, "enqueue_burst": 1}, actor=OPS)
    cast.accepted(enqueue_jobs([new_job()], now=at(0))[0])  # spends it


def set_queue_s_depth() -> None:
    policies.change_queue("default", {"depth_limit": 1}, actor=OPS)


def pause_intake() -> None:
    policies.pause("default", intake=True, actor=OPS)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (set_depth, QuotaExceeded),
        (set_rate, RateLimited),
        (set_queue_s_depth, QueueFull),
        (pause_intake, Unavailable),
    ],
)
def test_what_is_set_just_before_the_statement_bars_it(
    change: Callable[[], None], error: type[JobsPlatformError], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that the process had looked at knows of it."""
    job, rows = new_job(), sql.rows

    def late(statement: str, *args: Any, **options: Any) -> list[sql.Row]:
        if statement in (ONE, PLAIN):
            monkeypatch.undo()
            change()
        return rows(statement, *args, **options)

    monkeypatch.setattr(sql, "rows", late)
    outcomes = enqueue_jobs([job] * count, now=at(0))
    assert [type(one) for one in outcomes] == [error] * count


def test_a_kind_that_gets_a_schema_meanwhile_is_checked(statements: list[str]) -> None:
    put(new_job(kind="mail", payload="{}"))
    kinds.change("mail", {"payload_schema": MAIL}, actor=OPS)
    assert isinstance(refused(new_job(kind="mail", payload="{}")), Invalid)
    statements.clear()
    lanes.forget()
    put(new_job(kind="mail", payload='{"to": 1}'))
    assert statements == [PLAIN]  # checked by the version that the shard has
    statements.clear()
    held = dict(kinds._known)
    kinds.change("mail", {"payload_schema": {"type": "array"}}, actor=OPS)
    kinds._known.update(held)  # as another process has it
    assert isinstance(refused(new_job(kind="mail", payload='{"to": 1}')), Invalid)
    assert statements[0] == PLAIN


def test_a_payload_that_fails_goes_not_along_with_those_that_pass() -> None:
    kinds.change("mail", {"payload_schema": MAIL}, actor=OPS)
    put(new_job(kind="mail", payload='{"to": 1}'))
    good, bad = new_job(kind="mail", payload='{"to": 1}'), new_job(kind="mail", payload="{}")
    outcomes = enqueue_jobs([good, bad, good], now=at(0))
    assert [type(one) for one in outcomes] == [Accepted, Invalid, Accepted]
    assert cast.read("SELECT count(*) FROM queue_job WHERE payload = '{}'") == [(0,)]


def test_a_lane_that_sleeps_is_woken(statements: list[str]) -> None:
    put(new_job())
    cast.read("UPDATE queue_lane SET is_active = false RETURNING 1")
    statements.clear()
    put(new_job())
    assert statements == [ONE, JUDGED]
    assert cast.read("SELECT is_active FROM queue_lane WHERE is_active") == [(True,)]


def test_a_lane_that_is_gone_is_made_anew() -> None:
    [first] = put(new_job())
    cast.read("DELETE FROM queue_readyjob RETURNING 1")
    cast.read("DELETE FROM queue_lane RETURNING 1")
    [second] = put(new_job())
    assert second > first
    assert cast.place(second) == "readyjob"


def test_what_was_left_once_is_judged_at_once_for_a_while(statements: list[str]) -> None:
    registry.set_quota("acme", {"max_depth": 1_000}, actor=OPS)
    put(new_job())
    first = list(statements)
    statements.clear()
    put(new_job())
    assert first[0] == ONE
    assert ONE not in statements


def test_one_call_may_need_both_and_answers_in_its_order(statements: list[str]) -> None:
    registry.set_quota(globex().slug, {"max_depth": 1}, actor=OPS)
    jobs = [
        new_job(payload="0"),
        new_job(payload="1", request_key="k"),
        new_job(payload="2", tenant_id=globex().pk),
        new_job(payload="3", delay_s=60),
        new_job(payload="4", kind="other"),
        new_job(payload="5", request_key="k"),
    ]
    outcomes = enqueue_jobs(jobs, now=at(0))
    words = ["in" if isinstance(one, Accepted) else one.code for one in outcomes]
    assert words == ["in", "in", "quota_exceeded", "in", "in", "request_key_conflict"]
    stored = dict(cast.read("SELECT id, payload FROM queue_job"))
    assert [stored[one.job_id] for one in outcomes if isinstance(one, Accepted)] == ["0", "1", "3", "4"]


def test_ids_rise_in_the_order_of_the_call_over_all_its_lanes(statements: list[str]) -> None:
    jobs = [new_job(kind=f"k{number % 5}", payload=str(number)) for number in range(40)]
    ids = put(*jobs)
    assert ids == sorted(ids)
    assert statements == [PLAIN]
    found = cast.read("SELECT payload FROM queue_job WHERE id >= %s ORDER BY id", ids[:1])
    assert [int(payload) for (payload,) in found] == list(range(40))


def test_many_lanes_are_for_the_statement_that_judges(statements: list[str]) -> None:
    assert len(put(*(new_job(kind=f"k{number:03}") for number in range(enqueue.PLAIN_LANES_MAX + 1)))) == 33
    assert statements == [JUDGED]


def test_it_takes_work_of_several_tenants_and_queues_in_one_statement(statements: list[str]) -> None:
    other = cast.queue("other")
    put(new_job(queue=other))
    statements.clear()
    put(
        new_job(),
        new_job(tenant_id=globex().pk),
        new_job(queue=other),
        new_job(tenant_id=acme().pk, priority=0),
    )
    assert statements == [PLAIN]
    assert cast.read("SELECT count(DISTINCT lane_id) FROM queue_readyjob") == [(4,)]
