"""The desk's calls about many: groups, campaigns, fork; by the wire."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dlq import pacing
from dlq.models import Campaign
from tests import cast
from tests.api_cast import Api, caller, code, pointers
from tests.cast import SHARD

pytestmark = pytest.mark.django_db

CAMPAIGNS = "/v1/dlq/campaigns"
PLAN = {"filter": {"reason": "invalid"}, "note": "the receiver is back"}


@pytest.fixture
def acme() -> Api:
    return caller("acme")


def _start(api: Api, **members: Any) -> dict[str, Any]:
    response = api.post(CAMPAIGNS, PLAN | members)
    assert response.status_code == 201, response.content
    made: dict[str, Any] = response.json()
    return made


def _correct(api: Api, job_id: str) -> None:
    assert api.post(f"/v1/dlq/{job_id}/corrections", {"note": "n", "payload": 1}).status_code == 201


# Groups


def test_groups_gather_like_errors(acme: Api) -> None:
    for kind, message in (("a", "user 17 is gone"), ("b", "user 18 is gone"), ("a", "no route")):
        acme.enqueue(kind=kind)
        (lease,) = acme.claim()
        acme.end(lease, "fail", error_class="permanent", message=message)
    latest, first = acme.get("/v1/dlq/groups").json()["items"]
    assert (latest["sample"], latest["count"], latest["capped"]) == ("no route", 1, False)
    assert (first["error_class"], first["count"], first["kinds"]) == ("permanent", 2, ["a", "b"])
    assert first["first_seen"] <= first["last_seen"] <= latest["last_seen"]
    assert "tenants" not in first
    listed = acme.get(f"/v1/dlq?fingerprint={first['fingerprint']}").json()["items"]
    assert len(listed) == 2


def test_only_the_fleet_hears_whose_they_are(acme: Api) -> None:
    acme.kill()
    caller("globex").kill()
    (group,) = caller(None).get("/v1/dlq/groups").json()["items"]
    assert (group["tenants"], group["count"]) == (["acme", "globex"], 2)
    (own,) = acme.get("/v1/dlq/groups").json()["items"]
    assert own["count"] == 1


def test_groups_are_paged(acme: Api) -> None:
    for word in ("one", "two", "three"):
        acme.enqueue()
        (lease,) = acme.claim()
        acme.end(lease, "fail", error_class="permanent", message=word)
    seen, cursor = [], ""
    while True:
        page = acme.get(f"/v1/dlq/groups?limit=1{cursor}").json()
        seen += [group["sample"] for group in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == ["three", "two", "one"]


# Campaigns


def test_a_campaign_goes_its_way(acme: Api) -> None:
    jobs = [acme.kill() for _ in range(3)]
    _correct(acme, jobs[0])
    made = _start(acme, rate_per_s=100, canary=0)
    assert (made["state"], made["matches"], made["filter"]) == ("running", 3, {"reason": "invalid"})
    at = Campaign.objects.get().frozen_at
    pacing.advance(now=at + timedelta(seconds=2))
    shown = acme.get(f"{CAMPAIGNS}/{made['id']}").json()
    assert (shown["state"], shown["redriven"], shown["eta_s"]) == ("done", 1, 0)
    assert shown["skipped"] == {"correction_required": 2}
    assert acme.get(f"/v1/jobs/{jobs[0]}").json()["state"] == "ready"


def test_a_dry_run_tells_and_does_nothing(acme: Api) -> None:
    jobs = [acme.kill(payload={"secret": n}) for n in range(7)]
    _correct(acme, jobs[0])
    response = acme.post(CAMPAIGNS, PLAN | {"dry_run": True})
    assert response.status_code == 200
    told = response.json()
    assert (told["matches"], told["would_skip"]) == (7, {"correction_required": 6})
    assert [sample["job_id"] for sample in told["samples"]] == jobs[:1:-1]
    assert b"secret" not in response.content
    assert not Campaign.objects.exists()


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"filter": {}}, "/filter/queue"),
        ({"filter": {"reason": None}}, "/filter/queue"),
        ({"filter": {"reason": "bored"}}, "/filter/reason"),
        ({"filter": {"queue": "nowhere"}}, "/filter/queue"),
        ({"filter": {"reason": "invalid", "tenant": "x"}}, "/filter/tenant"),
        ({"filter": []}, "/filter"),
        ({"filter": {"failed_before": "yesterday"}}, "/filter/failed_before"),
        ({"note": " "}, "/note"),
        ({"rate_per_s": 0}, "/rate_per_s"),
        ({"rate_per_s": 201}, "/rate_per_s"),
        ({"canary": 101}, "/canary"),
        ({"canary": True}, "/canary"),
        ({"stop_at_failure_share": 0}, "/stop_at_failure_share"),
        ({"stop_at_failure_share": 1.1}, "/stop_at_failure_share"),
        ({"dry_run": "yes"}, "/dry_run"),
    ],
)
def test_a_wrong_plan_is_refused(acme: Api, members: dict[str, Any], pointer: str) -> None:
    assert pointers(acme.post(CAMPAIGNS, PLAN | members)) == [pointer]
    assert not Campaign.objects.exists()


@pytest.mark.parametrize("missing", ["filter", "note"])
def test_filter_and_note_must_be_given(acme: Api, missing: str) -> None:
    body = {name: value for name, value in PLAN.items() if name != missing}
    assert pointers(acme.post(CAMPAIGNS, body)) == [f"/{missing}"]


def test_a_member_that_occurs_twice_in_the_filter_is_refused(acme: Api) -> None:
    body = b'{"filter": {"reason": "invalid", "reason": "poison"}, "note": "n"}'
    assert code(acme.post(CAMPAIGNS, body)) == (400, "invalid")


def test_a_repeat_with_the_key_gets_the_first_answer(acme: Api) -> None:
    acme.kill()
    keyed = {"Idempotency_Key": "k"}
    first = acme.post(CAMPAIGNS, PLAN, **keyed)
    acme.kill()
    again = acme.post(CAMPAIGNS, PLAN, **keyed)
    assert (again.status_code, again.json()) == (201, first.json())
    assert code(acme.post(CAMPAIGNS, PLAN | {"note": "other"}, **keyed)) == (409, "key_conflict")


def test_pause_resume_and_abort_answer_the_campaign(acme: Api) -> None:
    acme.kill()
    url = f"{CAMPAIGNS}/{_start(acme)['id']}"
    assert acme.post(f"{url}/pause").json()["state"] == "paused"
    assert acme.post(f"{url}/resume", {}).json()["state"] == "running"
    assert acme.post(f"{url}/abort").json()["state"] == "aborted"
    for verb in ("pause", "resume", "abort"):
        assert code(acme.post(f"{url}/{verb}")) == (409, "already_finished")


@pytest.mark.parametrize("wanted", ["0", "01", "x", "-1", "99999999999999999999", "7"])
def test_a_campaign_that_there_is_not_is_not_found(acme: Api, wanted: str) -> None:
    assert code(acme.get(f"{CAMPAIGNS}/{wanted}")) == (404, "not_found")


def test_a_queue_that_the_token_excludes_is_refused() -> None:
    cast.queue("other")
    narrow = caller("acme", queues=["other"])
    body = PLAN | {"filter": {"queue": "default"}}
    assert code(narrow.post(CAMPAIGNS, body)) == (403, "insufficient_scope")


# Fork


def _fork(api: Api, job_id: str, **members: Any) -> Any:
    return api.post(f"/v1/dlq/{job_id}/fork", {"note": "a new order", "request_key": "new"} | members)


def test_a_fork_is_a_new_operation_that_names_its_origin(acme: Api) -> None:
    origin = acme.kill(request_key="old", payload={"n": 1}, priority=1, dependency="smtp")
    _correct(acme, origin)
    response = _fork(acme, origin)
    made = response.json()
    assert (response.status_code, made["origin_job_id"], made["replayed"]) == (201, origin, False)
    assert response["Location"] == f"/v1/jobs/{made['job_id']}"
    assert made["operation_id"] == made["job_id"] != origin
    assert (made["request_key"], made["priority"], made["dependency"]) == ("new", 1, "smtp")
    (lease,) = acme.claim()
    assert (lease["payload"], lease["generation"]) == (1, 1)
    assert acme.get(f"/v1/jobs/{origin}").json()["state"] == "dead"


def test_a_fork_is_audited_with_its_new_job(acme: Api) -> None:
    origin = acme.kill()
    made = _fork(acme, origin).json()
    entries = cast.read(
        "SELECT target, reason, details->>'job' FROM tenants_auditentry WHERE action = 'job.fork'",
        alias=SHARD,
    )
    assert entries == [(f"job:{origin}", "a new order", made["job_id"])]


def test_a_repeated_fork_is_the_first(acme: Api) -> None:
    origin = acme.kill()
    made = _fork(acme, origin).json()
    again = _fork(acme, origin)
    assert (again.status_code, again.json()["job_id"], again.json()["replayed"]) == (
        200,
        made["job_id"],
        True,
    )
    assert cast.audited("job.fork") == 1


def test_a_repeated_fork_is_the_first_whatever_became_of_its_origin(acme: Api) -> None:
    origin = acme.kill()
    made = _fork(acme, origin).json()
    _correct(acme, origin)
    corrected = _fork(acme, origin)
    assert acme.post(f"/v1/dlq/{origin}/redrive", {"note": "mended"}).status_code == 201
    redriven = _fork(acme, origin)
    for again in (corrected, redriven):
        assert (again.status_code, again.json()["job_id"]) == (200, made["job_id"])
    assert code(_fork(acme, origin, request_key="newer")) == (409, "not_dead")


def test_a_key_of_another_job_is_no_fork(acme: Api) -> None:
    taken = acme.enqueue(request_key="new")
    acme.claim()
    origin = acme.kill()
    response = _fork(acme, origin)
    assert code(response) == (409, "request_key_conflict")
    assert response.json()["job_id"] == taken


def test_the_header_names_the_fork_too(acme: Api) -> None:
    origin = acme.kill()
    url = f"/v1/dlq/{origin}/fork"
    assert acme.post(url, {"note": "n"}, Idempotency_Key="h").json()["request_key"] == "h"
    both = acme.post(url, {"note": "n", "request_key": "a"}, Idempotency_Key="b")
    assert pointers(both) == ["/request_key"]
    assert pointers(acme.post(url, {"note": "n"})) == ["/request_key"]


def test_only_a_dead_letter_is_forked(acme: Api) -> None:
    assert code(_fork(acme, acme.enqueue())) == (409, "not_dead")


def test_a_fork_needs_admin(acme: Api) -> None:
    origin = acme.kill()
    assert code(_fork(caller("acme", "redrive", "produce"), origin)) == (403, "insufficient_scope")


# Payloads


@pytest.mark.parametrize("where", ["dlq", "jobs"])
def test_a_payload_that_is_shown_is_audited(acme: Api, where: str) -> None:
    job_id = acme.kill(payload={"secret": 1})
    assert b"secret" not in acme.get(f"/v1/{where}/{job_id}").content
    assert cast.audited("job.payload_shown") == 0
    assert b"secret" in acme.get(f"/v1/{where}/{job_id}?include=payload").content
    assert cast.audited("job.payload_shown") == 1
