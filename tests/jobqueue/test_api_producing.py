"""The producers' calls, as a client meets them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections

from jobqueue import policies
from jobqueue.ids import parse_id
from jobqueue.limits import PAYLOAD_BYTES_MAX
from jobsplatform.instants import format_instant
from tests.api_cast import Api, caller, code, pointers

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Api:
    return caller("acme")


@pytest.fixture
def globex() -> Api:
    return caller("globex")


def ahead(**distance: float) -> str:
    return format_instant(datetime.now(UTC) + timedelta(**distance))


# Accepting


def test_a_new_job_is_201_with_all_its_members(acme: Api) -> None:
    response = acme.post(
        "/v1/jobs", {"kind": "email.send", "payload": {"to": "a@example.org"}, "request_key": "k"}
    )
    assert response.status_code == 201
    job = response.json()
    assert response["Location"] == f"/v1/jobs/{job['job_id']}"
    assert (
        job
        | {
            "tenant": "acme",
            "queue": "default",
            "priority": 2,
            "effective_priority": 2,
            "state": "ready",
            "request_key": "k",
            "operation_id": job["job_id"],
            "payload_bytes": 23,
            "payload_ref": None,
            "attempts_used": 0,
            "max_attempts": 5,
            "generation": 0,
            "cancel_requested": False,
            "last_error": None,
            "dead_reason": None,
            "replayed": False,
        }
        == job
    )
    assert "payload" not in job


def test_a_payload_comes_back_digit_for_digit(acme: Api) -> None:
    text = '{"big": 9223372036854775808, "one": 1.0, "e":1e2 ,"é":"\\ud83d\\ude00", "z":' + "9" * 308 + "}"
    response = acme.post("/v1/jobs", b'{"kind":"a","payload":' + text.encode() + b"}")
    shown = acme.get(f"/v1/jobs/{response.json()['job_id']}?include=payload")
    assert f'"payload":{text}'.encode() in shown.content
    assert f'"payload":{text}'.encode() in acme.post("/v1/leases/claim").content


def test_a_payload_of_null_and_a_reference_differ(acme: Api) -> None:
    null = acme.enqueue(payload=None)
    by_reference = acme.post("/v1/jobs", {"kind": "a", "payload_ref": "s3://bucket/key"}).json()
    assert acme.get(f"/v1/jobs/{null}?include=payload").json()["payload"] is None
    assert by_reference["payload_ref"] == "s3://bucket/key"
    assert by_reference["payload_sha256"] is None
    shown = acme.get(f"/v1/jobs/{by_reference['job_id']}?include=payload").json()
    assert (shown["payload"], shown["payload_ref"]) == (None, "s3://bucket/key")


def test_the_128_kb_edge_counts_bytes(acme: Api) -> None:
    def post(payload: str) -> Any:
        return acme.post("/v1/jobs", f'{{"kind":"a","payload":{payload}}}'.encode())

    def text(count: int) -> str:
        return '"' + "x" * (count - 2) + '"'

    assert post(text(PAYLOAD_BYTES_MAX)).status_code == 201
    assert code(post(text(PAYLOAD_BYTES_MAX + 1))) == (413, "too_large")
    assert code(post(text(PAYLOAD_BYTES_MAX - 1)[:-1] + 'é"')) == (413, "too_large")
    assert code(post('"' + "x" * 300_000 + '"')) == (413, "too_large")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"kind":"a","payload":NaN}', "/payload"),
        (b'{"kind":"a","payload":Infinity}', "/payload"),
        (b'{"kind":"a","payload":1e999}', "/payload"),
        (b'{"kind":"a","payload":{"a":1,"a":2}}', "/payload"),
        (b'{"kind":"a","payload":"\\u0000"}', "/payload"),
        (b'{"kind":"a","payload":{"\\u0000":1}}', "/payload"),
        (b'{"kind":"a","payload":[[["\\ud83d"]]]}', "/payload"),
        (b'{"kind":"a","payload":' + b"[" * 65 + b"]" * 65 + b"}", "/payload"),
        (b'{"kind":"a","payload":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "/payload"),
        (b'{"kind":"a","payload":1,"request_key":"\\ud83d"}', "/request_key"),
        (b'{"kind":"a","payload":1,"queue":"\\ud83d"}', "/queue"),
        (b'{"kind":"a","payload":1,"queue":"\\u0000"}', "/queue"),
        (b'{"kind":"a","payload":1,"queue":"absent"}', "/queue"),
        (b'{"kind":"a","payload":1,"state":"dead"}', "/state"),
        (b'{"kind":"a","payload":1,"tenant":"globex"}', "/tenant"),
        (b'{"kind":"a"}', "/payload"),
        (b'{"kind":"a","payload":1,"payload_ref":"x"}', "/payload_ref"),
        (b'{"kind":"a","payload":1,"delay_s":1,"not_before":"2030-01-01T00:00:00Z"}', "/delay_s"),
        (b'{"kind":"a","payload":1,"expires_in_s":1,"deadline":"2030-01-01T00:00:00Z"}', "/expires_in_s"),
        (b'{"kind":"a","payload":1,"not_before":"2026-01-01T00:00:00"}', "/not_before"),
        (b'{"kind":"a","payload":1,"not_before":"2026-01-01T00:00:00.1234567Z"}', "/not_before"),
        (b'{"kind":"a","payload":1,"not_before":"9999-12-31T00:00:00Z"}', "/not_before"),
        (b'{"kind":"a","payload":1,"deadline":"9999-12-31T00:00:00Z"}', "/deadline"),
        (b'{"kind":"a","payload":1,"delay_s":9223372036854775808}', "/delay_s"),
        (b'{"kind":"a","payload":1,"max_attempts":101}', "/max_attempts"),
        (b"\xef\xbb\xbf{}", ""),
        (b'{"kind":"\xff"}', ""),
        (b"[]", ""),
    ],
)
def test_a_bad_body_is_400_at_its_fault(acme: Api, body: bytes, pointer: str) -> None:
    assert pointer in pointers(acme.post("/v1/jobs", body))
    assert acme.get("/v1/jobs").json()["items"] == []


@pytest.mark.parametrize("priority", [-1, 5, True, "0", None, 1.0, "high", "p0"])
def test_a_priority_is_a_band_of_the_queue(acme: Api, priority: object) -> None:
    assert pointers(acme.post("/v1/jobs", {"kind": "a", "payload": 1, "priority": priority})) == ["/priority"]


def test_a_band_may_be_named(acme: Api) -> None:
    policies.create_queue("letters", preset="hnl", actor="test")
    job_id = acme.enqueue(queue="letters", priority="H")
    assert acme.get(f"/v1/jobs/{job_id}").json()["priority"] == 0
    assert acme.get(f"/v1/jobs/{acme.enqueue(queue='letters')}").json()["priority"] == 1


def test_a_queue_made_a_moment_ago_works_in_the_next_request(acme: Api) -> None:
    assert pointers(acme.post("/v1/jobs", {"kind": "a", "payload": 1, "queue": "fresh"})) == ["/queue"]
    policies.create_queue("fresh", actor="test")
    acme.enqueue(queue="fresh")


def test_a_deadline_that_has_passed_has_its_own_code(acme: Api) -> None:
    body = {"kind": "a", "payload": 1, "deadline": ahead(seconds=-1)}
    assert code(acme.post("/v1/jobs", body)) == (400, "deadline_in_past")
    late = {"kind": "a", "payload": 1, "deadline": ahead(seconds=5), "delay_s": 10}
    assert pointers(acme.post("/v1/jobs", late)) == ["/deadline"]


def test_a_delayed_job_is_scheduled(acme: Api) -> None:
    job = acme.get(f"/v1/jobs/{acme.enqueue(delay_s=60)}").json()
    assert job["state"] == "scheduled"
    assert job["due_at"] == job["not_before"]


@pytest.mark.parametrize("not_before", ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00+14:00"])
def test_a_start_in_the_past_is_now(acme: Api, not_before: str) -> None:
    assert acme.get(f"/v1/jobs/{acme.enqueue(not_before=not_before)}").json()["state"] == "ready"


# Identity


def test_one_key_names_one_job_and_other_content_conflicts(acme: Api) -> None:
    def post(**members: Any) -> Any:
        return acme.post("/v1/jobs", {"kind": "a", "request_key": "K", "payload": {"x": 1, "y": 2}} | members)

    first = post()
    conflict = post(payload={"x": 2})
    assert code(conflict) == (409, "request_key_conflict")
    assert conflict.json()["job_id"] == first.json()["job_id"]
    assert code(post(priority=1)) == (409, "request_key_conflict")
    again = post(payload={"y": 2, "x": 1})
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    assert again.json()["job_id"] == first.json()["job_id"]


def test_a_key_typed_in_two_ways_is_one_key(acme: Api) -> None:
    def post(key: str) -> Any:
        return acme.post("/v1/jobs", {"kind": "a", "payload": 1, "request_key": key})

    first = post("café")
    assert first.json()["request_key"] == "café"
    assert (post("cafe\u0301").status_code, post("CAFÉ").status_code) == (200, 201)


@pytest.mark.parametrize(
    ("key", "status"),
    [("a" * 255, 201), ("a" * 256, 400), ("😀" * 255, 201), ("f00d" * 800, 400), ("a" * 100_000, 400)],
)
def test_keys_have_a_length(acme: Api, key: str, status: int) -> None:
    assert acme.post("/v1/jobs", {"kind": "a", "payload": 1, "request_key": key}).status_code == status


def test_two_tenants_may_use_one_key(acme: Api, globex: Api) -> None:
    body = {"kind": "a", "payload": 1, "request_key": "K"}
    ours, theirs = acme.post("/v1/jobs", body), globex.post("/v1/jobs", body)
    assert (ours.status_code, theirs.status_code) == (201, 201)
    assert globex.post("/v1/jobs", body).json()["job_id"] == theirs.json()["job_id"] != ours.json()["job_id"]


def test_an_idempotency_key_is_a_request_key(acme: Api) -> None:
    body = {"kind": "a", "payload": 1}
    first = acme.post("/v1/jobs", body, idempotency_key="K")
    assert first.json()["request_key"] == "K"
    assert acme.post("/v1/jobs", body | {"request_key": "K"}).status_code == 200
    assert acme.post("/v1/jobs", body | {"request_key": "K"}, idempotency_key="K").status_code == 200
    assert pointers(acme.post("/v1/jobs", body | {"request_key": "L"}, idempotency_key="K")) == [
        "/request_key"
    ]


def test_a_replay_tells_the_present_state(acme: Api) -> None:
    body = {"kind": "a", "payload": 1, "request_key": "K"}
    acme.post("/v1/jobs", body)
    (lease,) = acme.claim()
    assert acme.post("/v1/jobs", body).json()["state"] == "running"
    acme.end(lease, "complete")
    assert acme.post("/v1/jobs", body).json()["state"] == "succeeded"


def test_a_key_outlives_its_purged_job(acme: Api) -> None:
    body = {"kind": "a", "payload": 1, "request_key": "K"}
    job_id = acme.post("/v1/jobs", body).json()["job_id"]
    acme.post(f"/v1/jobs/{job_id}/cancel")
    with connections["shard0"].cursor() as cursor:
        for table, column in (("queue_result", "job_id"), ("queue_job", "id")):
            cursor.execute(f"DELETE FROM {table} WHERE {column} = %s", [parse_id(job_id)])
    again = acme.post("/v1/jobs", body)
    assert again.status_code == 200
    assert again.json() | {"job_id": job_id, "state": "purged", "replayed": True} == again.json()


# Batches


def test_each_item_of_a_batch_stands_alone(acme: Api) -> None:
    stored = acme.enqueue(request_key="stored", payload=0)
    jobs: list[Any] = [{"kind": "a", "payload": n, "request_key": f"k{n}"} for n in range(100)]
    jobs[37] = {"kind": "a", "payload": 0, "request_key": "stored"}
    jobs[51] = jobs[50]
    jobs[60] = {"kind": "A", "payload": 1}
    jobs[61] = {"kind": "a", "payload": 1, "queue": "absent"}
    jobs[62] = {"kind": "a", "payload": 1, "request_key": "stored"}
    jobs[63] = 7
    jobs[64] = {"kind": "a", "payload": "x" * PAYLOAD_BYTES_MAX}
    jobs[65] = {"kind": "a", "payload": 1, "deadline": ahead(seconds=-1)}
    results = acme.post("/v1/jobs/batch", {"jobs": jobs}).json()["results"]
    statuses = [result["status"] for result in results]
    assert statuses[60:66] == [400, 400, 409, 400, 413, 400]
    assert (statuses[37], statuses[51]) == (200, 200)
    assert statuses.count(201) == 100 - 8
    assert (results[37]["job_id"], results[51]["job_id"]) == (stored, results[50]["job_id"])
    problems = [results[n]["problem"] for n in range(60, 66)]
    assert [problem["code"] for problem in problems] == [
        "invalid",
        "invalid",
        "request_key_conflict",
        "invalid",
        "too_large",
        "deadline_in_past",
    ]
    assert [error["pointer"] for error in problems[1]["errors"]] == ["/jobs/61/queue"]


@pytest.mark.parametrize("jobs", [[], [{}] * 1_001, {}, None])
def test_a_batch_has_one_to_a_thousand_jobs(acme: Api, jobs: object) -> None:
    assert pointers(acme.post("/v1/jobs/batch", {"jobs": jobs})) == ["/jobs"]


def test_a_batch_has_no_key_of_its_own(acme: Api) -> None:
    response = acme.post("/v1/jobs/batch", {"jobs": [{"kind": "a", "payload": 1}]}, idempotency_key="K")
    assert code(response) == (400, "invalid")


# Looking


def test_a_list_pages_newest_first(acme: Api) -> None:
    ids = [acme.enqueue() for _ in range(5)][::-1]
    first = acme.get("/v1/jobs?limit=2").json()
    second = acme.get(f"/v1/jobs?limit=2&cursor={first['next']}").json()
    third = acme.get(f"/v1/jobs?limit=2&cursor={second['next']}").json()
    assert [job["job_id"] for page in (first, second, third) for job in page["items"]] == ids
    assert third["next"] is None


def test_a_cursor_is_of_one_caller_and_filter(acme: Api, globex: Api) -> None:
    for _ in range(2):
        acme.enqueue()
    cursor = acme.get("/v1/jobs?limit=1").json()["next"]
    assert acme.get(f"/v1/jobs?limit=2&cursor={cursor}").status_code == 200
    assert pointers(acme.get(f"/v1/jobs?kind=a&cursor={cursor}")) == ["/cursor"]
    assert pointers(globex.get(f"/v1/jobs?cursor={cursor}")) == ["/cursor"]
    assert pointers(caller("acme").get(f"/v1/jobs?cursor={cursor}")) == ["/cursor"]
    altered = ("B" if cursor[0] == "A" else "A") + cursor[1:]
    for broken in ("x", "!!", cursor[:-1], cursor[:-4], altered, "%00", "%ff"):
        assert pointers(acme.get(f"/v1/jobs?cursor={broken}")) == ["/cursor"]


def test_a_list_filters(acme: Api) -> None:
    policies.create_queue("other", actor="test")
    one = acme.enqueue(kind="one", priority=0, request_key="K1")
    two = acme.enqueue(kind="two", queue="other", delay_s=60)
    cases = {
        "queue=other": [two],
        "state=ready": [one],
        "state=scheduled": [two],
        "kind=one": [one],
        "priority=0": [one],
        "queue=default&priority=P0": [one],
        "request_key=K1": [one],
        f"created_after={ahead(hours=1).replace('+', '%2B')}": [],
        f"created_before={ahead(hours=1)}": [two, one],
    }
    for query, expected in cases.items():
        assert [job["job_id"] for job in acme.get(f"/v1/jobs?{query}").json()["items"]] == expected, query


@pytest.mark.parametrize(
    "query",
    [
        *(
            "limit=0",
            "limit=201",
            "limit=-1",
            "limit=1.0",
            "limit=",
            "state=gone",
            "priority=P0",
            "priority=100",
        ),
        *(
            "queue=absent",
            "queue=%00",
            "kind=A",
            "created_after=now",
            "request_key=%00",
            "offset=1",
            "priority=x",
        ),
    ],
)
def test_a_bad_filter_is_400_at_its_name(acme: Api, query: str) -> None:
    assert pointers(acme.get(f"/v1/jobs?{query}")) == [f"/{query.partition('=')[0]}"]


def test_attempts_and_result_follow_the_job(acme: Api) -> None:
    job_id = acme.enqueue(max_attempts=3)
    assert code(acme.get(f"/v1/jobs/{job_id}/result")) == (404, "not_found")
    (lease,) = acme.claim(worker="w-1")
    acme.end(lease, "release")
    (lease,) = acme.claim(worker="w-2")
    receipt = f'"generation":{lease["generation"]},"lease_token":"{lease["lease_token"]}"'
    done = acme.post(f"/v1/jobs/{job_id}/complete", f'{{{receipt},"result":{{"n": 1.0}}}}'.encode())
    assert done.status_code == 200
    items = acme.get(f"/v1/jobs/{job_id}/attempts").json()["items"]
    assert [(item["generation"], item["worker"], item["outcome"]) for item in items] == [
        (2, "w-2", "succeeded"),
        (1, "w-1", "released"),
    ]
    response = acme.get(f"/v1/jobs/{job_id}/result")
    assert b'"result":{"n": 1.0}' in response.content
    assert (response.json()["outcome"], response.json()["generation"]) == ("succeeded", 2)
    page = acme.get(f"/v1/jobs/{job_id}/attempts?limit=1").json()
    following = acme.get(f"/v1/jobs/{job_id}/attempts?limit=1&cursor={page['next']}").json()
    assert [item["generation"] for item in page["items"] + following["items"]] == [2, 1]


def test_the_payload_needs_produce_or_redrive() -> None:
    job_id = caller("acme").enqueue()
    url = f"/v1/jobs/{job_id}?include=payload"
    assert code(caller("acme", "read").get(url)) == (403, "insufficient_scope")
    assert caller("acme", "redrive").get(url).status_code == 200
    assert caller("acme", "produce").get(url).status_code == 200


# Cancelling


def test_a_waiting_job_is_cancelled_at_once(acme: Api) -> None:
    job_id = acme.enqueue()
    response = acme.post(f"/v1/jobs/{job_id}/cancel", {"reason": None})
    assert (response.status_code, response.json()) == (200, {"state": "cancelled"})
    assert code(acme.post(f"/v1/jobs/{job_id}/cancel")) == (409, "already_finished")
    assert acme.get(f"/v1/jobs/{job_id}/result").json()["outcome"] == "cancelled"


def test_a_running_job_is_asked_to_stop(acme: Api) -> None:
    job_id = acme.enqueue()
    (lease,) = acme.claim()
    response = acme.post(f"/v1/jobs/{job_id}/cancel", {"reason": "no longer wanted"})
    assert (response.status_code, response.json()) == (202, {"state": "running", "cancel_requested": True})
    assert acme.end(lease, "renew").json()["cancel_requested"] is True


def test_a_dead_job_counts_as_finished(acme: Api) -> None:
    assert code(acme.post(f"/v1/jobs/{acme.kill()}/cancel")) == (409, "already_finished")


# Who


def test_a_fleet_token_produces_for_the_tenant_that_it_names(acme: Api) -> None:
    fleet = caller(None)
    assert code(fleet.post("/v1/jobs", {"kind": "a", "payload": 1})) == (400, "tenant_required")
    response = fleet.post("/v1/jobs", {"kind": "a", "payload": 1}, jobsplatform_tenant="acme")
    assert response.json()["tenant"] == "acme"
    assert acme.get(f"/v1/jobs/{response.json()['job_id']}").status_code == 200


def test_a_fleet_token_sees_every_tenants_jobs_or_one_tenants(acme: Api, globex: Api) -> None:
    ours, theirs = acme.enqueue(), globex.enqueue()
    fleet = caller(None)
    assert [job["job_id"] for job in fleet.get("/v1/jobs").json()["items"]] == [theirs, ours]
    named = fleet.get("/v1/jobs", jobsplatform_tenant="acme").json()["items"]
    assert [job["job_id"] for job in named] == [ours]


def test_a_token_of_some_queues_meets_no_other(acme: Api) -> None:
    policies.create_queue("narrow", actor="test")
    other, job_id = acme.enqueue(), acme.enqueue(queue="narrow")
    narrow = caller("acme", queues=["narrow"])
    assert code(narrow.post("/v1/jobs", {"kind": "a", "payload": 1})) == (403, "insufficient_scope")
    assert code(narrow.get(f"/v1/jobs/{other}")) == (404, "not_found")
    assert [job["job_id"] for job in narrow.get("/v1/jobs").json()["items"]] == [job_id]
    batch = {"jobs": [{"kind": "a", "payload": 1}, {"kind": "a", "payload": 1, "queue": "narrow"}]}
    results = narrow.post("/v1/jobs/batch", batch).json()["results"]
    assert [result["status"] for result in results] == [403, 201]


def test_a_batch_body_may_be_large_and_a_jobs_may_not(acme: Api) -> None:
    jobs = [{"kind": "a", "payload": "x" * 100_000} for _ in range(5)]
    assert acme.post("/v1/jobs/batch", {"jobs": jobs}).status_code == 200
    assert code(acme.post("/v1/jobs/batch", b" " * (16 * 1024 * 1024 + 1))) == (413, "too_large")


def test_bytes_of_the_whole_request_come_in_as_sent(acme: Api) -> None:
    body = json.dumps({"kind": "a", "payload": "😀", "request_key": "ключ"}, ensure_ascii=False).encode()
    assert acme.post("/v1/jobs", body).json()["payload_bytes"] == 6
