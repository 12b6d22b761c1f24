"""Scenarios of the dead-letter desk from outside: S111, S115, S159."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from jobqueue import upkeep
from jobqueue.worker.context import JobContext
from tests import cast
from tests.api_cast import Api, caller, code, pointers

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Api:
    return caller("acme")


def _redrive(api: Api, job_id: str, **members: Any) -> Any:
    return api.post(f"/v1/dlq/{job_id}/redrive", {"note": "again"} | members)


def _poisoned(api: Api) -> str:
    """A job whose every lease lapsed while it ran."""
    cast.queue("default", max_crashes=1, lease_s=1)
    job_id = api.enqueue(payload={"deadly": True})
    (lease,) = api.claim()
    assert lease["job_id"] == job_id
    upkeep.reap(now=cast.at(0))  # long after the lease's end
    return job_id


@pytest.mark.parametrize("reason", ["invalid", "poison"])
def test_s111_correction_first(acme: Api, reason: str) -> None:
    job_id = acme.kill(payload={"a": 1}) if reason == "invalid" else _poisoned(acme)
    assert acme.get(f"/v1/dlq/{job_id}").json()["reason"] == reason
    assert code(_redrive(acme, job_id)) == (409, "correction_required")
    url = f"/v1/dlq/{job_id}/corrections"
    assert pointers(acme.post(url, {"note": " ", "payload": 1})) == ["/note"]
    assert code(acme.post(url, b'{"note": "n", "payload": {"a": 1, "a": 2}}')) == (400, "invalid")
    assert code(caller("acme", "read").post(url, {"note": "n", "payload": 1})) == (403, "insufficient_scope")
    assert code(_redrive(caller("acme", "produce"), job_id)) == (403, "insufficient_scope")
    assert pointers(_redrive(acme, job_id, note="")) == ["/note"]
    before = acme.get(f"/v1/dlq/{job_id}").json()["payload"]["sha256"]
    made = acme.post(url, {"note": "typo", "payload": {"a": 2}})
    assert made.status_code == 201
    new = hashlib.sha256(b'{"a": 2}').hexdigest()
    assert made.json() == {"version": 1, "old_sha256": before, "new_sha256": new}
    done = _redrive(acme, job_id)
    assert (done.status_code, done.json()["redrive_generation"]) == (201, 1)
    (lease,) = acme.claim()
    assert (lease["job_id"], lease["operation_id"], lease["payload"]) == (job_id, job_id, {"a": 2})


def test_s115_a_result_that_was_committed_is_found_and_not_run_again(acme: Api) -> None:
    """The worker died after its commit and before it heard of it: the same call again tells, and nothing runs."""
    job_id = acme.enqueue()
    (lease,) = acme.claim()
    assert acme.end(lease, "complete", result=1).status_code == 200
    again = acme.end(lease, "complete", result=1)
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    upkeep.reap(now=cast.at(0))
    assert acme.claim() == []
    assert code(acme.end(lease, "fail", error_class="permanent")) == (409, "already_finished")
    assert acme.get(f"/v1/jobs/{job_id}").json()["state"] == "succeeded"
    assert code(acme.get(f"/v1/dlq/{job_id}")) == (404, "not_found")


def test_s115_an_effect_without_its_result_is_known_by_its_operation_id(acme: Api) -> None:
    """It died after its outside effect and before its commit: the next holder has the same operation id."""
    job_id = acme.enqueue()
    (first,) = acme.claim()
    upkeep.reap(now=cast.at(0))
    (second,) = acme.claim()
    assert second["operation_id"] == first["operation_id"] == job_id
    assert second["generation"] == first["generation"] + 1
    assert acme.end(second, "complete", result=1).status_code == 200
    late = code(acme.end(first, "complete", result=2))
    assert late in {(409, "result_conflict"), (409, "stale_generation"), (409, "already_finished")}
    assert acme.get(f"/v1/jobs/{job_id}/result").json()["result"] == 1


def test_s159_a_handler_cannot_say_done_before_it_returns() -> None:
    offered = {name for name in dir(JobContext) if not name.startswith("_")}
    assert offered.isdisjoint({"complete", "ack", "acknowledge", "done", "succeed", "finish", "settle"})


def test_s159_the_operation_id_is_the_same_after_a_redrive(acme: Api) -> None:
    job_id = acme.kill(request_key="k")
    acme.post(f"/v1/dlq/{job_id}/corrections", {"note": "n", "payload": 1})
    assert _redrive(acme, job_id).status_code == 201
    (lease,) = acme.claim()
    assert (lease["operation_id"], lease["request_key"], lease["redrive_generation"]) == (job_id, "k", 1)
