"""The calls about schedules, as the contract says them."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue import policies
from tenants import registry
from tests import cast
from tests.api_cast import Api, caller, code, pointers
from tests.schedules_cast import stand, tick, utc

pytestmark = pytest.mark.django_db

NEW = {"name": "nightly", "kind": "report", "cron": "30 2 * * *"}


@pytest.fixture
def acme() -> Api:
    return caller("acme", "schedule")


def make(api: Api, **members: Any) -> dict[str, Any]:
    response = api.post("/v1/schedules", NEW | members)
    assert response.status_code == 201, response.content
    made: dict[str, Any] = response.json()
    return made


# Making


def test_a_schedule_has_the_defaults_of_the_contract(acme: Api) -> None:
    response = acme.post("/v1/schedules", NEW)
    made = response.json()
    assert response.status_code == 201
    assert response["Location"] == f"/v1/schedules/{made['id']}"
    defaults = {
        "queue": "default",
        "payload": None,
        "priority": 2,
        "timezone": "UTC",
        "missed": "one",
        "overlap": "allow",
        "enabled": True,
    }
    assert {name: made[name] for name in [*NEW, *defaults]} == NEW | defaults
    assert (made["tenant"], made["in_words"]) == ("acme", "At 02:30 every day")


def test_a_schedule_is_shown_as_it_was_made(acme: Api) -> None:
    made = make(acme, payload={"n": 1.50})
    assert acme.get(f"/v1/schedules/{made['id']}").json() == made


def test_a_payload_comes_back_digit_for_digit(acme: Api) -> None:
    body = b'{"name":"n","kind":"a","cron":"0 0 1 1 *","payload":{"b":1.0,"a":12345678901234567890.10}}'
    response = acme.post("/v1/schedules", body)
    assert b'"payload":{"b":1.0,"a":12345678901234567890.10}' in response.content


def test_a_band_is_named_by_index_or_name(acme: Api) -> None:
    assert make(acme, priority="P0")["priority"] == 0


@pytest.mark.parametrize("missing", sorted(NEW))
def test_what_is_required_must_be_there(acme: Api, missing: str) -> None:
    response = acme.post("/v1/schedules", {name: value for name, value in NEW.items() if name != missing})
    assert pointers(response) == [f"/{missing}"]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("cron", "0 0 31 2 *"),
        ("cron", "@daily"),
        ("cron", "* * * * * *"),
        ("cron", None),
        ("timezone", "utc"),
        ("timezone", "Mars/Olympus"),
        ("timezone", None),
        ("kind", "No Kind"),
        ("name", ""),
        ("name", "  "),
        ("name", "n" * 201),
        ("queue", "nowhere"),
        ("priority", 5),
        ("priority", "H"),
        ("priority", True),
        ("priority", "0"),
        ("missed", "some"),
        ("overlap", "queue"),
        ("enabled", 1),
        ("enabled", None),
        ("seconds", 1),
    ],
)
def test_a_bad_member_is_named(acme: Api, member: str, value: object) -> None:
    assert pointers(acme.post("/v1/schedules", NEW | {member: value})) == [f"/{member}"]


def test_a_body_has_at_most_64_kib(acme: Api) -> None:
    assert code(acme.post("/v1/schedules", NEW | {"payload": "x" * 66_000})) == (413, "too_large")


def test_a_token_of_other_queues_makes_none_in_this() -> None:
    cast.queue("mail")
    narrow = caller("acme", "schedule", queues=["mail"])
    assert code(narrow.post("/v1/schedules", NEW)) == (403, "insufficient_scope")
    assert make(narrow, queue="mail")["queue"] == "mail"


def test_the_quota_of_schedules_is_kept(acme: Api) -> None:
    registry.set_quota("acme", {"max_schedules": 1}, actor=cast.OPS)
    make(acme)
    response = acme.post("/v1/schedules", NEW)
    assert code(response) == (429, "quota_exceeded")
    assert int(response["Retry-After"]) >= 1


def test_the_tenant_s_page_tells_how_many_schedules_are_used(acme: Api) -> None:
    registry.set_quota("acme", {"max_schedules": 7}, actor=cast.OPS)
    make(acme)
    (limit,) = caller("acme", "read").get("/v1/tenant").json()["quotas"]
    assert (limit["limit"], limit["value"], limit["used"]) == ("max_schedules", 7, 1)


def _keyed(api: Api, key: str, **members: Any) -> Any:
    return api.post("/v1/schedules", NEW | members, IDEMPOTENCY_KEY=key)


def test_a_repeat_with_the_same_key_and_body_is_the_first_answer(acme: Api) -> None:
    first = _keyed(acme, "k")
    again = _keyed(acme, "k")
    assert (again.status_code, again.json()) == (201, first.json())
    assert len(acme.get("/v1/schedules").json()["items"]) == 1


def test_a_key_with_another_body_is_a_conflict(acme: Api) -> None:
    _keyed(acme, "k")
    assert code(_keyed(acme, "k", name="other")) == (409, "key_conflict")


# Listing


def test_schedules_are_listed_newest_first_in_pages(acme: Api) -> None:
    ids = [make(acme)["id"] for _ in range(3)]
    first = acme.get("/v1/schedules?limit=2").json()
    rest = acme.get(f"/v1/schedules?limit=2&cursor={first['next']}").json()
    assert [one["id"] for one in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "cursor=x", "enabled=true"])
def test_a_bad_query_is_refused(acme: Api, query: str) -> None:
    assert code(acme.get(f"/v1/schedules?{query}")) == (400, "invalid")


# Changing


def test_a_change_touches_what_it_names(acme: Api) -> None:
    made = make(acme)
    changed = acme.call("PATCH", f"/v1/schedules/{made['id']}", {"enabled": False, "payload": [1]})
    assert changed.status_code == 200
    assert changed.json() == made | {"enabled": False, "payload": [1], "next_at": None}


def test_a_change_to_null_is_a_payload_of_null(acme: Api) -> None:
    made = make(acme, payload=1)
    assert acme.call("PATCH", f"/v1/schedules/{made['id']}", {"payload": None}).json()["payload"] is None


def test_an_empty_change_changes_nothing(acme: Api) -> None:
    made = make(acme)
    assert acme.call("PATCH", f"/v1/schedules/{made['id']}", {}).json() == made


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("cron", "0 24 * * *"),
        ("timezone", "x"),
        ("priority", 9),
        ("queue", "nowhere"),
        ("id", "1"),
        ("name", None),
    ],
)
def test_a_bad_change_is_named_and_changes_nothing(acme: Api, member: str, value: object) -> None:
    made = make(acme)
    url = f"/v1/schedules/{made['id']}"
    assert pointers(acme.call("PATCH", url, {"name": "x"} | {member: value})) == [f"/{member}"]
    assert acme.get(url).json() == made


def test_a_change_of_queue_is_checked_against_the_bands_there(acme: Api) -> None:
    cast.queue("hnl", preset="hnl")
    url = f"/v1/schedules/{make(acme)['id']}"
    assert pointers(acme.call("PATCH", url, {"queue": "hnl", "priority": 3})) == ["/priority"]
    assert acme.call("PATCH", url, {"queue": "hnl", "priority": "H"}).json()["priority"] == 0


def test_a_removed_schedule_is_not_found(acme: Api) -> None:
    url = f"/v1/schedules/{make(acme)['id']}"
    assert acme.delete(url).status_code == 204
    assert code(acme.get(url)) == (404, "not_found")
    assert code(acme.delete(url)) == (404, "not_found")


@pytest.mark.parametrize("name", ["0", "01", "x", "1.0", "-1", "9" * 30, "1%00"])
def test_a_malformed_id_is_not_found(acme: Api, name: str) -> None:
    assert code(acme.get(f"/v1/schedules/{name}")) == (404, "not_found")


# Next


def _next(api: Api, made: dict[str, Any], query: str) -> Any:
    return api.get(f"/v1/schedules/{made['id']}/next?{query}")


def test_the_next_instants_follow_local_time(acme: Api) -> None:
    made = make(acme, timezone="Europe/Berlin")
    response = _next(acme, made, "count=3&after=2026-10-24T12:00:00Z")
    assert response.json() == {
        "items": ["2026-10-25T00:30:00.000000Z", "2026-10-26T01:30:00.000000Z", "2026-10-27T01:30:00.000000Z"]
    }


def test_the_next_instants_come_after_the_one_named(acme: Api) -> None:
    made = make(acme, cron="0 0 29 2 *")
    response = _next(acme, made, "count=1&after=2028-02-29T00:00:00Z")
    assert response.json()["items"] == ["2032-02-29T00:00:00.000000Z"]


def test_without_an_instant_the_next_are_those_from_now(acme: Api) -> None:
    made = make(acme)
    items = _next(acme, made, "").json()["items"]
    assert (len(items), items[0]) == (5, made["next_at"])


@pytest.mark.parametrize(
    "query", ["count=0", "count=101", "after=2026-01-01", "after=2026-01-01T00:00:00", "x=1"]
)
def test_a_bad_question_about_the_next_is_refused(acme: Api, query: str) -> None:
    assert code(_next(acme, make(acme), query)) == (400, "invalid")


# S67: what is no instant, wherever one may stand.
NO_INSTANTS = (
    "2026-01-01T00:00:00",
    "2026-01-01",
    "1767225600",
    "2026-01-01T24:00:00Z",
    "2026-01-01T23:59:60Z",
    "2026-01-01T00:00:00.1234567Z",
    "9999-12-31T23:59:59-12:00",
)


@pytest.mark.parametrize("text", NO_INSTANTS)
def test_what_is_no_instant_is_refused_in_a_query_and_in_a_body(acme: Api, text: str) -> None:
    assert pointers(acme.get(f"/v1/schedules/{make(acme)['id']}/next?after={text}")) == ["/after"]
    job = {"kind": "a", "payload": 1, "not_before": text}
    assert pointers(caller("acme").post("/v1/jobs", job)) == ["/not_before"]


def test_an_offset_of_fourteen_hours_is_an_instant_of_the_day_before(acme: Api) -> None:
    made = make(acme, cron="0 * * * *")
    response = _next(acme, made, "count=1&after=2026-01-02T00:00:00%2B14:00")
    assert response.json()["items"] == ["2026-01-01T11:00:00.000000Z"]


def test_there_may_be_no_next_any_more(acme: Api) -> None:
    assert _next(acme, make(acme), "after=9999-12-31T12:00:00Z").json() == {"items": []}


# Running


def test_a_run_makes_a_job_now(acme: Api) -> None:
    made = make(acme, payload={"n": 1})
    response = acme.post(f"/v1/schedules/{made['id']}/run-now")
    assert response.status_code == 201
    job_id = response.json()["job_id"]
    assert response["Location"] == f"/v1/jobs/{job_id}"
    job = caller("acme").get(f"/v1/jobs/{job_id}?include=payload").json()
    assert (job["state"], job["kind"], job["payload"]) == ("ready", "report", {"n": 1})


def test_a_repeated_run_is_the_first(acme: Api) -> None:
    url = f"/v1/schedules/{make(acme)['id']}/run-now"
    first, again = (acme.post(url, IDEMPOTENCY_KEY="k") for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"job_id": first.json()["job_id"], "replayed": True}


def test_a_run_for_a_suspended_tenant_is_refused(acme: Api) -> None:
    made = make(acme)
    registry.suspend("acme", actor=cast.OPS)
    assert code(caller("acme", "schedule").post(f"/v1/schedules/{made['id']}/run-now"))[0] == 403


def test_a_run_while_intake_is_paused_is_refused(acme: Api) -> None:
    made = make(acme)
    policies.pause("default", intake=True, actor=cast.OPS)
    assert code(acme.post(f"/v1/schedules/{made['id']}/run-now")) == (503, "unavailable")


# Standing


def test_a_schedule_tells_of_its_last_fire_and_what_it_missed(acme: Api) -> None:
    made = make(acme, cron="0 * * * *", missed="one")
    noon = utc("2035-05-04 12:00")
    stand(int(made["id"]), noon)
    tick(utc("2035-05-04 14:30"))
    now = acme.get(f"/v1/schedules/{made['id']}").json()
    assert (now["missed_count"], now["next_at"]) == (2, "2035-05-04T15:00:00.000000Z")
    assert now["last_fired_at"] == "2035-05-04T14:30:00.000000Z"
    assert caller("acme", "read").get(f"/v1/jobs/{now['last_job_id']}").json()["kind"] == "report"
