"""One payload kills every worker that touches it: counted, quarantined, corrected, redriven, done."""

from __future__ import annotations

import json

import pytest

from dlq import corrections, redrive
from jobqueue.enqueue import Accepted, NewJob, enqueue
from jobqueue.types import FLEET
from jobsplatform.errors import CorrectionRequired
from tests.jobqueue.worker.conftest import Platform

OPS = "user:ops"


def test_a_payload_that_kills_its_workers_comes_back_corrected(platform: Platform) -> None:
    """Exactly `max_crashes` starts, `poison`; no way back without a correction; with one the same job succeeds."""
    platform.set(max_crashes=3, max_attempts=10)
    payload = {"log": str(platform.log), "deadly": True}
    new = NewJob(
        tenant_id=platform.tenant.pk,
        queue=platform.queue,
        kind="test.crash-by-payload",
        priority=2,
        payload=json.dumps(payload),
        request_key="order-331",
    )
    (accepted,) = enqueue([new])
    assert isinstance(accepted, Accepted)
    job_id = accepted.job_id
    platform.worker("--concurrency", "2")
    platform.until(lambda: platform.job(job_id).state == "dead", 90, lapse_orphans=True)
    name = platform.job_name(job_id)
    assert platform.lines("start") == [(name, n, n) for n in (1, 2, 3)]
    assert platform.job(job_id).dead_reason == "poison"

    back = redrive.NewRedrive(note="again", actor=OPS)
    with pytest.raises(CorrectionRequired):
        redrive.redrive(job_id, back, scope=FLEET)
    mended = corrections.NewCorrection(
        note="the flag was wrong", actor=OPS, payload=json.dumps(payload | {"deadly": False})
    )
    corrections.correct(job_id, mended, scope=FLEET)
    done = redrive.redrive(job_id, back, scope=FLEET)
    assert (done.job_id, done.redrive_generation) == (job_id, 1)
    platform.until(lambda: platform.job(job_id).state == "succeeded", 90)
    view = platform.job(job_id)
    assert (view.request_key, view.redrive_generation, view.generation) == ("order-331", 1, 4)
    assert platform.result(job_id) == "lived under redrive 1"
    assert platform.lines("start") == [(name, 1, 1), (name, 2, 2), (name, 3, 3), (name, 4, 1)]
