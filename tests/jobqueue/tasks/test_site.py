"""The sample site with a real worker: its tasks run unchanged, and an operator sees how they went."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from jobqueue import policies, upkeep
from jobqueue.tasks.framework import TaskResultStatus
from tests import admin_cast, cast
from tests.tasks_cast import Site

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def worker(process_environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = process_environment | {"DJANGO_SETTINGS_MODULE": "tests.tasks_site.settings"}
    command = [sys.executable, str(ROOT / "manage.py"), "runworker", "--concurrency", "4"]
    worker = subprocess.Popen(command, env=environment, cwd=ROOT)
    yield worker
    worker.terminate()
    worker.wait(60)


def until(condition: Callable[[], object]) -> None:
    """Wait, doing the dispatcher's work meanwhile."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        upkeep.promote()
        time.sleep(0.05)


def finished(*results: Any) -> bool:
    for result in results:
        result.refresh()
    return all(result.is_finished for result in results)


def test_the_site_runs_and_its_operator_sees_results_errors_and_retries(
    site: Site, worker: subprocess.Popen[bytes]
) -> None:
    policies.change_queue("default", {"backoff_base_s": 0.1}, actor=cast.OPS)
    tasks = site.tasks
    added, quiet, lucky = (
        tasks.add.enqueue(2, 3),
        tasks.gently.enqueue("HUSH"),
        tasks.third_time_lucky.enqueue("x"),
    )
    failed, left = (
        tasks.order.using(max_attempts=2).enqueue("tea"),
        tasks.leave.using(max_attempts=1).enqueue(),
    )
    until(lambda: finished(added, quiet, lucky, failed, left))
    assert (added.return_value, quiet.return_value) == (5, "hush")
    assert lucky.return_value == {"word": "x", "attempt": 3, "errors": 2}
    assert (failed.status, len(failed.errors)) == (TaskResultStatus.FAILED, 2)
    assert failed.errors[0].exception_class is tasks.OutOfStock
    assert left.errors[0].exception_class is SystemExit
    assert all("/0." in name for name in lucky.worker_ids), "executors of the worker"

    client = admin_cast.operator()
    page = admin_cast.page(client, reverse("admin:queue_job_change", args=[lucky.id]))
    assert "tests.tasks_site.shop.tasks.third_time_lucky" in page
    assert page.count("OutOfStock: attempt") >= 2
    assert "succeeded" in page
    dead = admin_cast.page(client, reverse("admin:dlq_deadletter_change", args=[failed.id]))
    assert "OutOfStock: no tea left" in dead
    assert worker.poll() is None


def test_a_worker_is_named_in_the_context_as_in_the_attempt(
    site: Site, worker: subprocess.Popen[bytes]
) -> None:
    result = site.tasks.who.enqueue()
    until(lambda: finished(result))
    assert result.return_value == result.worker_ids
