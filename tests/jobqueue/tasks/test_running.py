"""How a task runs in a worker: signals, outcomes, retries, and what it can reach of its job."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobqueue import Overload, Permanent, Release, Uncertain, reads
from jobqueue.ids import format_id, parse_id
from jobqueue.tasks.framework import (
    Task,
    TaskResult,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from jobqueue.worker import registry
from jobqueue.worker.context import JobContext
from jobsplatform.errors import Unavailable
from tests import cast
from tests.tasks_cast import Alone, Site

pytestmark = pytest.mark.django_db

PATH = "tests.jobqueue.tasks.test_running"
behaviour: Callable[[Any], Any] = lambda context: None  # noqa: E731  what `act` does in the present test


def act(context: Any) -> Any:
    return behaviour(context)


@pytest.fixture
def acting(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TaskResult[Any]]:
    """`acting(do, **extras)` enqueues and runs a task that does `do(context)`."""
    import sys

    site.use(MODULES=[__name__])
    module = sys.modules[__name__]

    def run(do: Callable[[Any], Any], **extras: Any) -> TaskResult[Any]:
        monkeypatch.setattr(module, "behaviour", do)
        task = site.backend.task_class(
            func=act,
            takes_context=True,
            priority=0,
            backend="default",
            queue_name="default",
            run_after=None,
            **extras,
        )
        monkeypatch.setattr(module, "held", task, raising=False)
        result: TaskResult[Any] = task.enqueue()
        site.work()
        result.refresh()
        return result

    return run


@pytest.fixture
def signals() -> Iterator[list[tuple[str, str]]]:
    seen: list[tuple[str, str]] = []
    named = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = []
    for name, signal in named.items():

        def receive(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
            seen.append((name, str(task_result.status)))

        signal.connect(receive)
        receivers.append((signal, receive))
    yield seen
    for signal, receive in receivers:
        signal.disconnect(receive)


def raiser(error: BaseException) -> Callable[[Any], Any]:
    def raises(context: Any) -> None:
        raise error

    return raises


# Signals


def test_a_success_is_enqueued_started_finished(acting: Any, signals: list[tuple[str, str]]) -> None:
    acting(lambda context: 1)
    assert signals == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]


def test_a_failure_that_is_tried_again_has_not_finished(acting: Any, signals: list[tuple[str, str]]) -> None:
    acting(raiser(KeyError("x")))
    assert [name for name, _ in signals] == ["enqueued", "started"]


def test_the_last_failure_has_finished(acting: Any, signals: list[tuple[str, str]]) -> None:
    acting(raiser(KeyError("x")), max_attempts=1)
    assert signals[-1] == ("finished", "FAILED")


def test_a_receiver_that_fails_costs_nothing(acting: Any, caplog: pytest.LogCaptureFixture) -> None:
    def receive(**told: Any) -> None:
        raise RuntimeError("a receiver's")

    for signal in (task_enqueued, task_started, task_finished):
        signal.connect(receive)
    try:
        with caplog.at_level(logging.CRITICAL, "django.dispatch"):
            assert acting(lambda context: 1).return_value == 1
    finally:
        for signal in (task_enqueued, task_started, task_finished):
            signal.disconnect(receive)


def test_a_failure_is_logged_with_its_traceback(acting: Any, caplog: pytest.LogCaptureFixture) -> None:
    acting(raiser(KeyError("x")), max_attempts=1)
    [record] = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert record.exc_info
    assert record.exc_info[0] is KeyError


# Outcomes


@pytest.mark.parametrize(
    ("error", "stored", "state"),
    [
        (KeyError("x"), "transient", TaskResultStatus.READY),
        (Overload("busy"), "overload", TaskResultStatus.READY),
        (Uncertain("sent?"), "uncertain", TaskResultStatus.READY),
        (Permanent("never"), "permanent", TaskResultStatus.FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_a_task_raises_is_the_job_s_outcome(
    acting: Any, error: Exception, stored: str, state: TaskResultStatus
) -> None:
    result = acting(raiser(error))
    [attempt] = cast.rows("queue_attempt", parse_id(result.id))
    assert (attempt["error_class"], result.status) == (stored, state)
    assert result.errors[0].exception_class is type(error)


def test_a_release_is_no_failure(acting: Any) -> None:
    result = acting(raiser(Release()))
    assert (result.status, result.errors, result.attempts) == (TaskResultStatus.READY, [], 0)


def test_a_type_error_of_the_task_s_own_is_tried_again(acting: Any) -> None:
    assert acting(raiser(TypeError("inside"))).status == TaskResultStatus.READY


# Backoff


def wait_of(result: TaskResult[Any]) -> float:
    row = cast.row("queue_scheduledjob", parse_id(result.id))
    [attempt] = cast.rows("queue_attempt", parse_id(result.id))
    return float((row["due_at"] - attempt["ended_at"]).total_seconds())


def test_a_backoff_says_how_long_to_wait(acting: Any) -> None:
    asked: list[Any] = []

    def backoff(error: BaseException, result: TaskResult[Any]) -> float:
        asked.append((type(error), result.attempts))
        return 600

    assert wait_of(acting(raiser(KeyError("x")), backoff=backoff)) == 600
    assert asked == [(KeyError, 1)]


def test_a_backoff_of_none_ends_the_tries(acting: Any) -> None:
    result = acting(raiser(KeyError("x")), backoff=lambda error, result: None)
    assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, KeyError)


def test_a_backoff_that_fails_leaves_the_queue_s(acting: Any) -> None:
    def backoff(error: BaseException, result: TaskResult[Any]) -> float:
        raise ZeroDivisionError

    assert 0 < wait_of(acting(raiser(KeyError("x")), backoff=backoff)) <= 2


# What a task can reach


def test_a_task_knows_its_result_so_far(acting: Any) -> None:
    result = acting(lambda context: [context.task_result.id, context.task_result.status, context.attempt])
    assert result.return_value == [result.id, "RUNNING", 1]


def test_a_task_knows_when_it_was_enqueued(acting: Any) -> None:
    result = acting(lambda context: context.task_result.enqueued_at.isoformat())
    assert result.return_value == result.enqueued_at.isoformat()


def test_a_task_whose_history_cannot_be_read_is_given_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = parse_id(site.tasks.add.enqueue(1, 2).id)
    cast.release(cast.claim_one(now=None))

    def away(*_: Any, **__: Any) -> None:
        raise Unavailable

    monkeypatch.setattr(reads, "attempts", away)
    site.work()
    assert [row["outcome"] for row in cast.rows("queue_attempt", job_id)] == ["released", "released"]
    assert cast.place(job_id) == "readyjob"


def test_a_task_can_reach_its_job(acting: Any) -> None:
    result = acting(lambda context: context.job.operation_id)
    assert result.return_value == result.id


@pytest.mark.django_db(transaction=True)
def test_a_task_can_finish_in_its_own_transaction(acting: Any) -> None:
    def do(context: Any) -> str:
        with context.job.transaction() as ending:
            ending.result = "in the transaction"
        return "dropped"

    assert acting(do).return_value == "in the transaction"


# What a payload may name


@pytest.mark.parametrize(
    "payload",
    [
        "null",
        "[]",
        '{"args": [], "kwargs": {}}',
        '{"task": "os.getcwd", "args": [], "kwargs": {}}',
        '{"task": "tests.tasks_site.shop.tasks.add", "args": {}, "kwargs": {}}',
        '{"task": "tests.tasks_site.shop.tasks.OutOfStock", "args": [], "kwargs": {}}',
    ],
)
def test_a_payload_that_does_not_call_the_kind_s_task_is_a_dead_letter(site: Site, payload: str) -> None:
    job_id = cast.enqueue(now=None, kind="tests.tasks_site.shop.tasks.add", payload=payload)
    site.work()
    assert cast.row("dlq_deadletter", job_id)["reason"] == "invalid"


def test_only_tasks_have_a_handler(site: Site) -> None:
    kinds = {kind for kind in registry.discover() if kind.startswith("tests.tasks_site")}
    assert "tests.tasks_site.shop.tasks.add" in kinds
    assert all(
        isinstance(getattr(site.tasks, kind.rsplit(".", 1)[1]), Task) for kind in kinds if "-" not in kind
    )


def test_discovering_twice_is_no_conflict(site: Site) -> None:
    assert dict(registry.discover()).keys() == dict(registry.discover()).keys()


def test_a_kind_with_a_handler_of_its_own_is_an_error_at_start(site: Site) -> None:
    registry.handler("tests.tasks_site.shop.tasks.add")(lambda job: None)
    with pytest.raises(ValueError, match="two handlers"):
        registry.discover()


def test_without_tasks_a_worker_imports_no_framework(settings: Any) -> None:
    """In an interpreter of its own: this one has imported everything."""
    import subprocess
    import sys

    code = (
        "import sys, django; django.setup();"
        "from jobqueue.worker import registry; import jobqueue.tasks; registry.discover();"
        "print([m for m in sys.modules if m.startswith(('django_tasks', 'jobqueue.tasks.framework'))])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_a_task_that_was_put_into_a_queue_beyond_the_sites_runs_and_is_found(site: Site) -> None:
    """By a schedule, or over HTTP: QUEUES bounds what the site itself enqueues."""
    site.use(queues=["default"])
    other, path = cast.queue("other"), site.tasks.add.module_path
    payload = json.dumps({"task": path, "args": [1, 2], "kwargs": {}})
    job_id = cast.enqueue(now=None, kind=path, queue=other, payload=payload)
    lease = cast.claim_one(other, now=None, kinds=(path,))
    assert registry.discover()[path](JobContext(lease, 0, time.monotonic(), Alone())) == 3
    assert site.backend.get_result(format_id(job_id)).status == TaskResultStatus.RUNNING
