"""`runworker` and handlers with effects outside the database."""

from __future__ import annotations

import signal

from tests.jobqueue.worker.conftest import Platform


def test_a_worker_that_dies_after_calling_out_leaves_a_job_that_is_resolved_and_not_repeated(
    platform: Platform,
) -> None:
    """S159: the effect is made under the operation id, and the next attempt finds it."""
    [job] = platform.enqueue("test.pay-then-die")
    platform.worker()
    platform.until(lambda: platform.job(job).state == "succeeded", 60, lapse_orphans=True)
    assert platform.lines("paid") == [(platform.job_name(job), 1, 1)]
    assert platform.result(job) == {"found": True, "earlier": [1]}


def test_a_job_that_is_given_back_while_it_acts_is_resolved_too(platform: Platform) -> None:
    """A drain that cannot wait charges nothing, but what ran may have acted."""
    [job] = platform.enqueue("test.pay-slowly")
    worker = platform.worker("--grace", "0")
    platform.until(lambda: platform.lines("paid"))
    worker.send_signal(signal.SIGTERM)
    worker.wait(60)
    platform.until(lambda: platform.job(job).state == "ready")
    assert platform.job(job).attempts_used == 0
    platform.worker()
    platform.until(lambda: platform.job(job).state == "succeeded", 60)
    assert platform.lines("paid") == [(platform.job_name(job), 1, 1)]
