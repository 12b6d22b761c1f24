"""`QueueBackend`: a task's way from `enqueue` to its result."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import Error, Warning
from django.utils import timezone

from jobqueue import leases
from jobqueue.ids import parse_id
from jobqueue.tasks import TaskCancelled, TaskDead, TaskExpired, WorkerLost
from jobqueue.tasks.framework import InvalidTask, TaskResultDoesNotExist, TaskResultStatus
from jobsplatform.errors import QuotaExceeded, RequestKeyConflict, TenantSuspended
from tenants import registry as tenants
from tests import cast
from tests.tasks_cast import Site

pytestmark = pytest.mark.django_db


def job_of(result: Any) -> dict[str, Any]:
    return cast.row("queue_job", parse_id(result.id))


# Enqueue


def test_a_task_is_a_job_of_its_own_kind(site: Site) -> None:
    result = site.tasks.add.enqueue(1, right=2)
    job = job_of(result)
    assert job["kind"] == "tests.tasks_site.shop.tasks.add"
    assert json.loads(job["payload"]) == {
        "task": "tests.tasks_site.shop.tasks.add",
        "args": [1],
        "kwargs": {"right": 2},
    }
    assert (result.status, result.enqueued_at) == (TaskResultStatus.READY, job["created_at"])


def test_the_tenant_is_the_option_s_unless_the_task_names_one(site: Site) -> None:
    own, others = site.tasks.add.enqueue(1, 2), site.tasks.add.using(tenant="globex")
    globex = cast.globex()
    assert job_of(own)["tenant_id"] == cast.acme().pk
    assert job_of(others.enqueue(1, 2))["tenant_id"] == globex.pk


def test_extras_reach_the_job(site: Site) -> None:
    task = site.tasks.add.using(max_attempts=7, request_key="order-1", dependency="smtp")
    job = job_of(task.enqueue(1, 2))
    assert (job["max_attempts"], job["request_key"], job["dependency"]) == (7, "order-1", "smtp")


def test_max_attempts_are_the_option_s_or_the_queue_s(site: Site) -> None:
    assert job_of(site.tasks.add.enqueue(1, 2))["max_attempts"] == 5
    site.use(MAX_ATTEMPTS=1)
    assert job_of(site.tasks.add.enqueue(1, 2))["max_attempts"] == 1


def test_a_request_key_may_be_made_of_the_arguments(site: Site) -> None:
    task = site.tasks.add.using(request_key=lambda left, right: f"sum-{left}-{right}")
    assert job_of(task.enqueue(3, right=4))["request_key"] == "sum-3-4"


def test_the_same_key_and_arguments_are_the_same_task(site: Site) -> None:
    task = site.tasks.add.using(request_key="once")
    first = task.enqueue(1, 2)
    site.work()
    again = task.enqueue(1, 2)
    assert (again.id, again.status, again.return_value) == (first.id, TaskResultStatus.SUCCESSFUL, 3)


def test_the_same_key_with_other_arguments_is_refused(site: Site) -> None:
    task = site.tasks.add.using(request_key="once")
    task.enqueue(1, 2)
    with pytest.raises(RequestKeyConflict):
        task.enqueue(1, 3)


def test_run_after_delays(site: Site) -> None:
    later = timezone.now() + timedelta(hours=1)
    result = site.tasks.add.using(run_after=later).enqueue(1, 2)
    assert cast.place(parse_id(result.id)) == "scheduledjob"
    assert site.tasks.add.get_result(result.id).task.run_after == later


@pytest.mark.parametrize(
    ("priority", "band"),
    [(100, 0), (60, 0), (59, 1), (20, 1), (19, 2), (0, 2), (-19, 2), (-20, 3), (-59, 3), (-60, 4), (-100, 4)],
)
def test_a_priority_is_a_band_of_five(site: Site, priority: int, band: int) -> None:
    assert job_of(site.tasks.add.using(priority=priority).enqueue(1, 2))["priority"] == band


def test_the_number_of_a_priority_is_kept(site: Site) -> None:
    result = site.tasks.add.using(priority=37).enqueue(1, 2)
    assert site.tasks.add.get_result(result.id).task.priority == 37


def test_bands_may_be_named_by_the_site(site: Site) -> None:
    cast.queue("hnl", preset="hnl")
    site.use(BANDS={50: "H", -50: "N", -100: "L"})
    task = site.tasks.add.using(queue_name="hnl")
    found = [job_of(task.using(priority=p).enqueue(1, 2))["priority"] for p in (50, 49, -50, -51)]
    assert found == [0, 1, 1, 2]


def test_what_no_worker_would_find_is_refused(site: Site) -> None:
    site.use(MODULES=["tests.tasks_site"])
    with pytest.raises(InvalidTask, match="No worker would find"):
        site.tasks.add.enqueue(1, 2)


def test_modules_may_be_named(site: Site) -> None:
    site.use(MODULES=["tests.tasks_site.shop.tasks"])
    assert site.tasks.add.enqueue(1, 2).id


def test_a_request_key_is_kept_in_the_form_of_the_api(site: Site) -> None:
    """In another it would never meet the key of a request over HTTP."""
    result = site.tasks.add.using(request_key="cafe\u0301").enqueue(1, 2)
    assert job_of(result)["request_key"] == "caf\u00e9"


@pytest.mark.parametrize("key", ["", " a", "a\n", "a\0", "x" * 256, "x" * 5_000, "\ud800", 7, b"a"])
def test_a_request_key_that_is_none_is_refused(site: Site, key: Any) -> None:
    for given in (key, lambda left, right: key):
        with pytest.raises(InvalidTask, match="request_key"):
            site.tasks.add.using(request_key=given).enqueue(1, 2)


@pytest.mark.parametrize(
    "extras", [{"queue_name": "nowhere"}, {"tenant": "nobody"}], ids=lambda extras: next(iter(extras))
)
def test_what_does_not_exist_is_refused(site: Site, extras: dict[str, str]) -> None:
    with pytest.raises(InvalidTask, match="There is no"):
        site.tasks.add.using(**extras).enqueue(1, 2)


@pytest.mark.parametrize(
    "extras", [{"max_attempts": 0}, {"max_attempts": 101}, {"dependency": "No Name"}, {"backoff": 3}], ids=str
)
def test_impossible_extras_are_refused_at_once(site: Site, extras: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask):
        site.tasks.add.using(**extras)


def test_arguments_beyond_the_payload_s_size_are_refused(site: Site) -> None:
    with pytest.raises(ValueError, match="bytes"):
        site.tasks.urgent.enqueue("x" * 131_072)


def test_a_quota_refuses_as_everywhere(site: Site) -> None:
    tenants.set_quota("acme", {"max_depth": 1}, actor=cast.OPS)
    site.tasks.add.enqueue(1, 2)
    with pytest.raises(QuotaExceeded):
        site.tasks.add.enqueue(1, 2)


def test_a_suspended_tenant_enqueues_nothing(site: Site) -> None:
    tenants.suspend("acme", actor=cast.OPS)
    with pytest.raises(TenantSuspended):
        site.tasks.add.enqueue(1, 2)


# Results


def test_a_value_comes_back(site: Site) -> None:
    result = site.tasks.add.enqueue(1, 2)
    site.work()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at


def test_an_async_task_runs(site: Site) -> None:
    result = site.tasks.gently.enqueue("LOUD")
    site.work()
    assert site.tasks.gently.get_result(result.id).return_value == "loud"


def test_a_failure_is_tried_again_with_its_history(site: Site) -> None:
    result = site.tasks.third_time_lucky.enqueue("x")
    site.work()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 1)
    site.try_again()
    site.try_again()
    result.refresh()
    assert result.return_value == {"word": "x", "attempt": 3, "errors": 2}
    assert [error.exception_class for error in result.errors] == [site.tasks.OutOfStock] * 2
    assert result.errors[1].traceback.endswith("OutOfStock: attempt 2\n")


def test_attempts_used_up_are_a_failure(site: Site) -> None:
    result = site.tasks.order.using(max_attempts=2).enqueue("tea")
    site.work()
    site.try_again()
    result.refresh()
    assert (result.status, result.is_finished, len(result.errors)) == (TaskResultStatus.FAILED, True, 2)
    assert cast.row("dlq_deadletter", parse_id(result.id))["reason"] == "exhausted"
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_value_that_is_no_json_fails_for_good(site: Site) -> None:
    result = site.tasks.no_json.enqueue()
    site.work()
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, TypeError)


def test_an_exit_is_a_failure_like_any_other(site: Site) -> None:
    result = site.tasks.leave.using(max_attempts=1).enqueue()
    site.work()
    result.refresh()
    assert result.errors[0].exception_class is SystemExit


def test_a_cancelled_task_has_failed_and_says_why(site: Site) -> None:
    result = site.tasks.add.enqueue(1, 2)
    leases.cancel(parse_id(result.id), actor=cast.OPS)
    result.refresh()
    assert [error.exception_class for error in result.errors] == [TaskCancelled]
    assert result.status == TaskResultStatus.FAILED


def test_a_lost_worker_is_an_error_of_its_own(site: Site) -> None:
    from jobqueue import upkeep

    result = site.tasks.add.enqueue(1, 2)
    lease = cast.claim_one(now=None)
    upkeep.reap(now=lease.expires_at + timedelta(seconds=1))
    site.work()
    result.refresh()
    assert [error.exception_class for error in result.errors] == [WorkerLost]
    assert (result.return_value, result.attempts) == (3, 2)


def test_what_was_given_back_is_no_attempt(site: Site) -> None:
    result = site.tasks.add.enqueue(1, 2)
    cast.release(cast.claim_one(now=None))
    site.work()
    result.refresh()
    assert result.attempts == 1


def test_our_words_for_an_end_are_exceptions() -> None:
    for kind in (TaskCancelled, TaskDead, TaskExpired, WorkerLost):
        assert issubclass(kind, Exception)


@pytest.mark.parametrize("name", ["", "0-1", "123", "0-99999", "\N{DIGIT ONE}-x"])
def test_an_id_that_no_task_has_is_told(site: Site, name: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        site.backend.get_result(name)


def test_a_job_that_is_no_task_is_no_result(site: Site) -> None:
    from jobqueue.ids import format_id

    for changes in (
        {"kind": "noop"},
        {"kind": "os.getcwd", "payload": '{"task": "os.getcwd", "args": [], "kwargs": {}}'},
        {"kind": "noop", "payload": '{"task": "tests.tasks_site.shop.tasks.add", "args": [], "kwargs": {}}'},
    ):
        job_id = cast.enqueue(now=None, **changes)
        with pytest.raises(TaskResultDoesNotExist):
            site.backend.get_result(format_id(job_id))


# System checks


def test_a_site_without_a_tenant_is_told(site: Site) -> None:
    site.use(TENANT=None)
    assert [(type(m), m.id) for m in site.backend.check()] == [(Error, "queue.E010")]


def test_a_site_whose_transactions_are_elsewhere_is_told(site: Site) -> None:
    site.use(ON_COMMIT=None)
    assert [(type(m), m.id) for m in site.backend.check()] == [(Warning, "queue.W010")]


def test_a_site_whose_transactions_are_on_a_shard_needs_no_word(site: Site) -> None:
    site.use(ON_COMMIT=None, DATABASE=cast.SHARD)
    assert list(site.backend.check()) == []


def test_an_unknown_option_is_told(site: Site) -> None:
    site.use(TENNANT="acme")
    assert [m.id for m in site.backend.check()] == ["queue.E011"]


@pytest.mark.parametrize("attempts", [0, 101, "3", True])
def test_attempts_out_of_bounds_are_told(site: Site, attempts: Any) -> None:
    site.use(MAX_ATTEMPTS=attempts)
    assert [m.id for m in site.backend.check()] == ["queue.E013"]
