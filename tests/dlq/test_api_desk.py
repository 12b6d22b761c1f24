"""The dead-letter desk's calls, as a client meets them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue import policies
from jobsplatform.instants import format_instant
from tenants.models import AuditEntry
from tests.api_cast import Api, caller, code, pointers

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Api:
    return caller("acme")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def correct(api: Api, job_id: str, **headers: str) -> Any:
    return api.post(f"/v1/dlq/{job_id}/corrections", {"note": "mended", "payload": {"fixed": 1}}, **headers)


def redrive(api: Api, job_id: str, **members: Any) -> Any:
    return api.post(f"/v1/dlq/{job_id}/redrive", {"note": "try again"} | members)


# Looking


def test_a_dead_letter_says_why_and_shows_no_payload(acme: Api) -> None:
    job_id = acme.kill(kind="email.send", payload={"secret": 1}, priority=1)
    letter = acme.get(f"/v1/dlq/{job_id}").json()
    assert (
        letter
        | {
            "job_id": job_id,
            "tenant": "acme",
            "queue": "default",
            "kind": "email.send",
            "priority": 1,
            "reason": "invalid",
            "attempts_used": 1,
            "crashes": 0,
            "generation": 1,
            "redrive_generation": 0,
            "correction_required": True,
            "corrections": [],
            "payload": {"bytes": 13, "sha256": sha256('{"secret": 1}'), "ref": None},
        }
        == letter
    )
    assert letter["error"] | {"error_class": "permanent", "message": "boom"} == letter["error"]
    assert len(letter["error"]["fingerprint"]) == 16


def test_a_payload_is_shown_to_redrive_alone(acme: Api) -> None:
    job_id = acme.kill(payload={"n": 1})
    url = f"/v1/dlq/{job_id}?include=payload"
    assert code(caller("acme", "read", "produce").get(url)) == (403, "insufficient_scope")
    assert b'"value":{"n": 1}' in caller("acme", "redrive").get(url).content
    correct(acme, job_id)
    assert acme.get(url).json()["payload"]["value"] == {"fixed": 1}


def test_a_job_that_lives_is_no_dead_letter(acme: Api) -> None:
    assert code(acme.get(f"/v1/dlq/{acme.enqueue()}")) == (404, "not_found")


def test_the_list_pages_and_filters(acme: Api) -> None:
    policies.create_queue("other", actor="test")
    one, two, three = acme.kill(kind="x"), acme.kill(queue="other"), acme.kill()
    first = acme.get("/v1/dlq?limit=2").json()
    second = acme.get(f"/v1/dlq?limit=2&cursor={first['next']}").json()
    assert [letter["job_id"] for letter in first["items"] + second["items"]] == [three, two, one]
    assert second["next"] is None
    fingerprint = first["items"][0]["error"]["fingerprint"]
    cases = {
        "queue=other": [two],
        "kind=x": [one],
        "reason=poison": [],
        f"fingerprint={fingerprint}": [three, two, one],
    }
    for query, expected in cases.items():
        assert [letter["job_id"] for letter in acme.get(f"/v1/dlq?{query}").json()["items"]] == expected, (
            query
        )
    assert pointers(acme.get(f"/v1/dlq?kind=x&cursor={first['next']}")) == ["/cursor"]
    for bad in ("queue=absent", "reason=gone", "kind=A", "limit=0", "fingerprint=", "state=dead"):
        assert pointers(acme.get(f"/v1/dlq?{bad}")) == [f"/{bad.partition('=')[0]}"]


# Correcting


def test_a_correction_keeps_both_hashes(acme: Api) -> None:
    job_id = acme.kill(payload={"n": 1})
    response = correct(acme, job_id)
    assert (response.status_code, response.json()) == (
        201,
        {"version": 1, "old_sha256": sha256('{"n": 1}'), "new_sha256": sha256('{"fixed": 1}')},
    )
    letter = acme.get(f"/v1/dlq/{job_id}").json()
    assert letter["correction_required"] is False
    (version,) = letter["corrections"]
    assert (version["version"], version["note"]) == (1, "mended")
    assert version["author"].startswith("token:")
    reference = acme.post(f"/v1/dlq/{job_id}/corrections", {"note": "moved", "payload_ref": "s3://b/k"})
    assert reference.json() == {"version": 2, "old_sha256": sha256('{"fixed": 1}'), "new_sha256": None}


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"note": "n"}, "/payload"),
        ({"note": "n", "payload": 1, "payload_ref": "x"}, "/payload_ref"),
        ({"payload": 1}, "/note"),
        ({"note": "", "payload": 1}, "/note"),
        ({"note": " \t", "payload": 1}, "/note"),
        ({"note": None, "payload": 1}, "/note"),
        ({"note": "n", "payload": "\0"}, "/payload"),
        ({"note": "n", "payload_ref": ""}, "/payload_ref"),
    ],
)
def test_a_correction_needs_a_note_and_one_payload(acme: Api, members: dict[str, Any], pointer: str) -> None:
    assert pointers(acme.post(f"/v1/dlq/{acme.kill()}/corrections", members)) == [pointer]


def test_a_correction_is_made_once_a_key(acme: Api) -> None:
    job_id = acme.kill()
    first = correct(acme, job_id, idempotency_key="K")
    again = correct(acme, job_id, idempotency_key="K")
    assert (again.status_code, again.json()) == (201, first.json())
    other = {"note": "other", "payload": 2}
    assert code(acme.post(f"/v1/dlq/{job_id}/corrections", other, idempotency_key="K")) == (
        409,
        "key_conflict",
    )
    assert len(acme.get(f"/v1/dlq/{job_id}").json()["corrections"]) == 1


def test_only_a_dead_letter_is_corrected(acme: Api) -> None:
    assert code(correct(acme, acme.enqueue())) == (409, "not_dead")
    assert code(correct(acme, "0-999999")) == (404, "not_found")


def test_a_correction_may_be_as_large_as_a_payload(acme: Api) -> None:
    job_id = acme.kill()

    def post(size: int) -> Any:
        return acme.post(f"/v1/dlq/{job_id}/corrections", {"note": "n", "payload": "x" * (size - 2)})

    assert post(131_072).status_code == 201
    assert code(post(131_073)) == (413, "too_large")


# Redriving


def test_an_invalid_job_goes_back_only_when_it_is_corrected(acme: Api) -> None:
    job_id = acme.kill()
    assert code(redrive(acme, job_id)) == (409, "correction_required")
    correct(acme, job_id)
    response = redrive(acme, job_id)
    assert response.status_code == 201
    body = response.json()
    assert body | {"job_id": job_id, "redrive_generation": 1, "state": "ready", "replayed": False} == body
    (lease,) = acme.claim()
    assert (lease["payload"], lease["generation"], lease["attempt"]) == ({"fixed": 1}, 2, 1)
    assert (lease["operation_id"], lease["redrive_generation"]) == (job_id, 1)
    assert code(redrive(acme, job_id)) == (409, "already_redriven")


def test_a_redrive_key_is_answered_once_for_all(acme: Api) -> None:
    job_id = acme.kill()
    correct(acme, job_id)
    first = redrive(acme, job_id, redrive_key="R")
    again = redrive(acme, job_id, redrive_key="R")
    assert (again.status_code, again.json()) == (200, first.json() | {"replayed": True})
    assert code(redrive(acme, job_id, redrive_key="R", note="else")) == (409, "key_conflict")
    by_header = acme.post(f"/v1/dlq/{job_id}/redrive", {"note": "try again"}, idempotency_key="R")
    assert by_header.json()["replayed"] is True
    both = {"note": "try again", "redrive_key": "S"}
    assert pointers(acme.post(f"/v1/dlq/{job_id}/redrive", both, idempotency_key="R")) == ["/redrive_key"]


def test_a_redrive_may_wait_and_be_bounded_anew(acme: Api) -> None:
    job_id = acme.kill()
    correct(acme, job_id)
    due, ends = (format_instant(datetime.now(UTC) + timedelta(hours=hours)) for hours in (1, 2))
    response = redrive(acme, job_id, not_before=due, deadline=ends, max_attempts=2)
    assert response.json()["state"] == "scheduled"
    job = acme.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["deadline"], job["max_attempts"], job["due_at"]) == ("scheduled", ends, 2, due)


def test_a_deadline_in_the_past_is_refused(acme: Api) -> None:
    job_id = acme.kill()
    correct(acme, job_id)
    assert code(redrive(acme, job_id, deadline="2020-01-01T00:00:00Z")) == (400, "deadline_in_past")
    assert pointers(redrive(acme, job_id, deadline="9999-01-01T00:00:00Z")) == ["/deadline"]


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"note": ""}, "/note"),
        ({"note": None}, "/note"),
        ({"note": "x" * 2_001}, "/note"),
        ({"redrive_key": ""}, "/redrive_key"),
        ({"max_attempts": 0}, "/max_attempts"),
        ({"not_before": "soon"}, "/not_before"),
        ({"payload": 1}, "/payload"),
    ],
)
def test_a_bad_redrive_is_400_at_its_fault(acme: Api, members: dict[str, Any], pointer: str) -> None:
    assert pointers(redrive(acme, acme.kill(), **members)) == [pointer]


def test_only_a_dead_letter_is_redriven(acme: Api) -> None:
    assert code(redrive(acme, acme.enqueue())) == (409, "not_dead")
    assert code(redrive(acme, "0-999999")) == (404, "not_found")
    assert code(redrive(caller("acme", "read", "work"), acme.kill())) == (403, "insufficient_scope")


def test_the_audit_names_the_request_that_did_it(acme: Api) -> None:
    job_id = acme.kill()
    acme.headers["HTTP_X_REQUEST_ID"] = "req-77"
    correct(acme, job_id)
    audit_id = redrive(acme, job_id).json()["audit_id"]
    entry = AuditEntry.objects.using("shard0").get(pk=audit_id.rpartition("-")[2])
    assert (entry.action, entry.target, entry.request_id) == ("job.redrive", f"job:{job_id}", "req-77")
