"""The workers' calls, as a client meets them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections

from jobqueue import hub, policies
from jobqueue.hub.waiters import Waiter
from jobsplatform import http
from jobsplatform.errors import Unauthenticated
from tenants import access, registry
from tests.api_cast import Api, caller, code, pointers
from tests.cast import wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Api:
    return caller("acme")


# Claiming


def test_a_lease_has_all_that_a_handler_needs(acme: Api) -> None:
    job_id = acme.enqueue(kind="email.send", payload={"n": 1}, request_key="K", priority=1)
    (lease,) = acme.claim(worker="w-1")
    assert (
        lease
        | {
            "job_id": job_id,
            "operation_id": job_id,
            "generation": 1,
            "attempt": 1,
            "queue": "default",
            "kind": "email.send",
            "tenant": "acme",
            "priority": 1,
            "payload": {"n": 1},
            "payload_ref": None,
            "request_key": "K",
            "deadline": None,
            "reconcile": False,
            "earlier_generations": [],
            "checkpoint": None,
            "redrive_generation": 0,
            "traceparent": None,
        }
        == lease
    )


def test_nothing_to_do_is_an_empty_list(acme: Api) -> None:
    response = acme.post("/v1/leases/claim")
    assert (response.status_code, response.json()["leases"]) == (200, [])
    assert response.json()["server_time"].endswith("Z")


BAD_CLAIMS: dict[str, list[Any]] = {
    "limit": [0, -1, 101, "10", 1.5, True, None, 2**63],
    "lease_s": [0, -5, 43_201, None],
    "wait_s": [-1, 21, 0.5],
    "queue": ["absent", "", "x" * 65, 1, None],
    "capabilities": [[], "a", None],
    "max_priority": [-1, 100, "P0"],
    "worker": ["w" * 101],
    "claim_key": ["", "k" * 101],
    "prefetch": [1],
    "unknown": [1],
}


@pytest.mark.parametrize(
    "members", [{name: value} for name, values in BAD_CLAIMS.items() for value in values]
)
def test_a_bad_claim_is_refused_and_touches_nothing(acme: Api, members: dict[str, Any]) -> None:
    job_id = acme.enqueue()
    assert pointers(acme.post("/v1/leases/claim", members)) == [f"/{next(iter(members))}"]
    assert acme.get(f"/v1/jobs/{job_id}").json()["generation"] == 0


def test_a_claim_names_one_queue_or_several(acme: Api) -> None:
    for name in ("one", "two", "three"):
        policies.create_queue(name, actor="test")
        acme.enqueue(queue=name)
    assert pointers(acme.post("/v1/leases/claim", {"queue": "one", "queues": ["two"]})) == ["/queues"]
    assert pointers(acme.post("/v1/leases/claim", {"queues": ["one", "absent"]})) == ["/queues/1"]
    assert [lease["queue"] for lease in acme.claim(queue="one", limit=9)] == ["one"]
    assert sorted(lease["queue"] for lease in acme.claim(limit=9)) == ["three", "two"]


def test_a_claim_takes_only_what_it_can_do(acme: Api) -> None:
    acme.enqueue(kind="a")
    b = acme.enqueue(kind="b", priority=4)
    assert [lease["job_id"] for lease in acme.claim(capabilities=["b", "c"], limit=9)] == [b]
    assert acme.claim(max_priority=1) == []


def test_a_claim_key_gives_the_same_leases_again(acme: Api) -> None:
    acme.enqueue()
    first = acme.claim(claim_key="c-1")
    assert acme.claim(claim_key="c-1") == first
    other = acme.post("/v1/leases/claim", {"claim_key": "c-1", "limit": 2})
    assert code(other) == (409, "key_conflict")


def test_a_token_works_only_its_queues(acme: Api) -> None:
    policies.create_queue("narrow", actor="test")
    acme.enqueue()
    narrow = caller("acme", queues=["narrow"])
    assert code(narrow.post("/v1/leases/claim", {"queue": "default"})) == (403, "insufficient_scope")
    assert narrow.claim() == []
    job_id = acme.enqueue(queue="narrow")
    assert [lease["job_id"] for lease in narrow.claim(limit=9)] == [job_id]


def test_a_tenant_claims_only_its_own_work(acme: Api) -> None:
    caller("globex").enqueue()
    assert acme.claim(limit=9) == []
    assert [lease["tenant"] for lease in caller(None).claim(limit=9)] == ["globex"]


def test_a_suspended_tenant_neither_produces_nor_works(acme: Api) -> None:
    registry.suspend("acme", actor="test")
    access.forget()
    assert code(acme.post("/v1/leases/claim")) == (403, "tenant_suspended")
    assert code(acme.post("/v1/jobs", {"kind": "a", "payload": 1})) == (403, "tenant_suspended")
    assert acme.get("/v1/jobs").status_code == 200


# Waiting


@pytest.mark.django_db(transaction=True)
def test_a_parked_claim_gets_what_comes_and_holds_no_connection_meanwhile(
    acme: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    sleep = Waiter.wait

    def wait(waiter: Waiter) -> None:
        held.append(any(c.connection is not None for c in connections.all(initialized_only=True)))
        sleep(waiter)

    monkeypatch.setattr(Waiter, "wait", wait)
    with parked(acme, wait_s=20) as leases:
        job_id = caller("acme").enqueue()
    assert [lease["job_id"] for lease in leases] == [job_id]
    assert held == [False]


@contextmanager
def parked(api: Api, **members: Any) -> Iterator[list[Any]]:
    """A claim that waits in a thread of its own; its leases are there at the end."""
    leases: list[Any] = []

    def work() -> None:
        try:
            leases.extend(api.claim(**members))
        finally:
            connections.close_all()

    worker = threading.Thread(target=work)
    worker.start()
    wait_until(lambda: hub.current().parked == 1)
    yield leases
    worker.join(30)
    assert not worker.is_alive()


def test_a_claim_waits_as_long_as_asked(acme: Api) -> None:
    began = time.monotonic()
    assert acme.claim(wait_s=1) == []
    assert time.monotonic() - began > 0.9


def test_a_parked_claim_ends_when_the_process_stops(acme: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    monkeypatch.setattr(hub, "stopping", stopping)
    monkeypatch.setattr("jobqueue.hub.waiters.Waiter.wait", lambda waiter: _stop_and_wait(stopping, waiter))
    assert acme.claim(wait_s=20) == []


def _stop_and_wait(stopping: threading.Event, waiter: Waiter) -> None:
    ends_at = waiter.ends_at
    stopping.set()
    done = threading.Event()
    waiter.on_settled(done.set)
    assert done.wait(15)
    assert time.monotonic() < ends_at


def test_a_token_revoked_while_it_waits_gets_nothing(acme: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def revoked(header: str | None) -> None:
        raise Unauthenticated

    monkeypatch.setattr(Waiter, "wait", lambda waiter: _refuse_from_now_on(monkeypatch, waiter, revoked))
    assert code(acme.post("/v1/leases/claim", {"wait_s": 20})) == (401, "unauthenticated")


def _refuse_from_now_on(monkeypatch: pytest.MonkeyPatch, waiter: Waiter, refuse: Any) -> None:
    monkeypatch.setattr(http.callers(), "authenticate", refuse)
    done = threading.Event()
    waiter.on_settled(done.set)
    assert done.wait(10)


def test_more_polls_than_a_process_takes_are_answered_empty_with_a_time_to_come_again(
    acme: Api, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.JOBS_PARKED_MAX = 0
    response = acme.post("/v1/leases/claim", {"wait_s": 20})
    assert (response.status_code, response.json()["leases"], response["Retry-After"]) == (200, [], "1")


# Ending


def test_a_completed_job_is_committed_once(acme: Api) -> None:
    acme.enqueue()
    (lease,) = acme.claim()
    first = acme.end(lease, "complete", result={"ok": True})
    assert first.status_code == 200
    assert first.json() | {"state": "succeeded", "replayed": False, "late": False} == first.json()
    again = acme.end(lease, "complete", result={"ok": True})
    assert (again.json()["replayed"], again.json()["completed_at"]) == (True, first.json()["completed_at"])
    assert code(acme.end(lease, "complete", result={"ok": False})) == (409, "result_conflict")
    assert code(acme.end(lease, "fail", error_class="transient")) == (409, "already_finished")
    assert code(acme.end(lease, "renew")) == (409, "already_finished")


def test_a_result_has_a_size_and_is_plain_json(acme: Api) -> None:
    acme.enqueue()
    (lease,) = acme.claim()
    assert code(acme.end(lease, "complete", result="x" * 131_072)) == (413, "too_large")
    assert pointers(acme.end(lease, "complete", result="\0")) == ["/result"]
    assert acme.end(lease, "complete", result="x" * 131_070).status_code == 200


def test_a_transient_failure_is_tried_again_and_a_permanent_one_is_not(acme: Api) -> None:
    acme.enqueue()
    acme.enqueue()
    one, two = acme.claim(limit=2)
    retried = acme.end(one, "fail", error_class="transient", message="try\0again", retry_after_s=7).json()
    assert (retried["state"], retried["reason"], retried["replayed"]) == ("scheduled", None, False)
    assert retried["next_attempt_at"] > acme.get(f"/v1/jobs/{one['job_id']}").json()["created_at"]
    dead = acme.end(two, "fail", error_class="permanent", message="bad").json()
    assert (dead["state"], dead["reason"], dead["next_attempt_at"]) == ("dead", "invalid", None)
    assert acme.get(f"/v1/jobs/{one['job_id']}").json()["last_error"]["message"] == "try\ufffdagain"
    assert acme.end(two, "fail", error_class="permanent", message="bad").json()["replayed"] is True


def test_an_unknown_error_class_has_its_own_code(acme: Api) -> None:
    acme.enqueue()
    (lease,) = acme.claim()
    assert code(acme.end(lease, "fail", error_class="zzz")) == (400, "unknown_error_class")
    assert pointers(acme.end(lease, "fail")) == ["/error_class"]


def test_a_long_message_is_cut(acme: Api) -> None:
    acme.enqueue()
    (lease,) = acme.claim()
    assert acme.end(lease, "fail", error_class="transient", message="é" * 8_000).status_code == 200
    assert acme.get(f"/v1/jobs/{lease['job_id']}").json()["last_error"]["message"] == "é" * 4_096


def test_a_released_job_is_not_charged(acme: Api) -> None:
    job_id = acme.enqueue()
    (lease,) = acme.claim()
    assert acme.end(lease, "release").json() == {"state": "ready", "replayed": False}
    assert acme.end(lease, "release").json() == {"state": "ready", "replayed": True}
    (lease,) = acme.claim()
    assert (lease["generation"], lease["attempt"]) == (2, 1)
    assert acme.end(lease, "release", delay_s=60).json()["state"] == "scheduled"
    assert acme.get(f"/v1/jobs/{job_id}").json()["attempts_used"] == 0


def test_a_checkpoint_is_kept_as_it_was_written(acme: Api) -> None:
    acme.enqueue()
    (lease,) = acme.claim()
    receipt = f'"generation":1,"lease_token":"{lease["lease_token"]}"'
    renewed = acme.post(
        f"/v1/jobs/{lease['job_id']}/renew", f'{{{receipt},"checkpoint":{{"at": 1.0}}}}'.encode()
    )
    assert renewed.json()["give_back"] is False
    acme.end(lease, "release")
    assert b'"checkpoint":{"at": 1.0}' in acme.post("/v1/leases/claim").content
    assert code(acme.end(lease, "renew", checkpoint="x" * 16_384)) == (413, "too_large")


def test_another_token_is_a_stale_generation(acme: Api) -> None:
    acme.enqueue()
    (lease,) = acme.claim()
    for change in ({"lease_token": "AAAAAAAAAAAAAAAAAAAAAA"}, {"lease_token": "no token"}, {"generation": 2}):
        for verb, members in (
            ("renew", {}),
            ("complete", {}),
            ("fail", {"error_class": "transient"}),
            ("release", {}),
        ):
            assert code(acme.end(lease | change, verb, **members)) == (409, "stale_generation")
    assert acme.end(lease, "renew").status_code == 200


@pytest.mark.parametrize("verb", ["renew", "complete", "fail", "release"])
@pytest.mark.parametrize(
    "receipt", [{}, {"generation": 1}, {"lease_token": "x"}, {"generation": "1", "lease_token": "x"}]
)
def test_a_call_without_its_receipt_is_invalid(acme: Api, verb: str, receipt: dict[str, Any]) -> None:
    members = {"error_class": "transient"} if verb == "fail" else {}
    response = acme.post(f"/v1/jobs/{acme.enqueue()}/{verb}", receipt | members)
    assert set(pointers(response)) <= {"/generation", "/lease_token"}


# Settling


def test_settling_answers_complete_then_fail_then_release_then_renew(acme: Api) -> None:
    for _ in range(5):
        acme.enqueue()
    leases = acme.claim(limit=5)

    def item(lease: dict[str, Any], **members: Any) -> dict[str, Any]:
        return {name: lease[name] for name in ("job_id", "generation", "lease_token")} | members

    body = {
        "renew": [item(leases[0])],
        "release": [item(leases[1])],
        "fail": [
            item(leases[2], error_class="permanent"),
            item(leases[2], error_class="zzz"),
            {"job_id": "0-1"},
        ],
        "complete": [
            item(leases[3], result={"n": 1}),
            item(leases[4], job_id="0-999999"),
            7,
            item(leases[3]),
        ],
    }
    results = acme.post("/v1/leases/settle", body).json()["results"]
    assert [result["status"] for result in results] == [200, 404, 400, 409, 200, 400, 400, 200, 200]
    assert results[0] | {"job_id": leases[3]["job_id"], "state": "succeeded", "replayed": False} == results[0]
    assert [r["problem"]["code"] for r in results if "problem" in r] == [
        "not_found",
        "invalid",
        "result_conflict",
        "unknown_error_class",
        "invalid",
    ]
    assert results[4]["state"] == "dead"
    assert results[7] == {"status": 200, "job_id": leases[1]["job_id"], "state": "ready", "replayed": False}
    assert "expires_at" in results[8]


def test_settling_nothing_is_fine_and_too_much_is_not(acme: Api) -> None:
    assert acme.post("/v1/leases/settle").json() == {"results": []}
    assert pointers(acme.post("/v1/leases/settle", {"complete": [{}] * 1_001})) == ["/complete"]
    split: dict[str, Any] = {"complete": [{}] * 600, "renew": [{}] * 600}
    assert code(acme.post("/v1/leases/settle", split)) == (400, "invalid")


def test_a_bad_job_id_in_a_settlement_is_not_found_and_harmless(acme: Api) -> None:
    receipt = '"generation":1,"lease_token":"x"'
    ids = ("\\ud83d", "x", "\\u0000")
    items = ",".join(f'{{"job_id":"{job_id}",{receipt}}}' for job_id in ids)
    body = f'{{"renew":[{items}]}}'
    results = acme.post("/v1/leases/settle", body.encode()).json()["results"]
    assert [result["status"] for result in results] == [400, 404, 400]
