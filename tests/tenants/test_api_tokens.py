"""Calls about tokens and the tenant, as a client meets them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue import policies
from jobsplatform.instants import format_instant
from tenants import access, registry
from tenants.models import ApiToken, AuditEntry
from tests.api_cast import Api, caller, code, pointers

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Api:
    return caller("acme")


def make(api: Api, **members: Any) -> dict[str, Any]:
    response = api.post("/v1/tokens", {"scopes": ["read"]} | members)
    assert response.status_code == 201, response.content
    made: dict[str, Any] = response.json()
    return made


def test_a_token_works_at_once_and_is_shown_once(acme: Api) -> None:
    made = make(acme, name="ci", scopes=["read", "produce"])
    assert made | {"tenant": "acme", "name": "ci", "scopes": ["produce", "read"], "queues": None} == made
    assert made["token"].startswith(f"jp_{made['id']}_")
    new = Api(made["token"])
    assert new.enqueue()
    assert code(new.post("/v1/leases/claim")) == (403, "insufficient_scope")
    listed = acme.get("/v1/tokens")
    assert made["id"] in [token["id"] for token in listed.json()["items"]]
    secret = made["token"].rpartition("_")[2]
    assert secret.encode() not in listed.content
    rows = [*ApiToken.objects.values_list(), *AuditEntry.objects.values_list()]
    assert not any(secret in repr(value) for row in rows for value in row)


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({}, "/scopes"),
        ({"scopes": []}, "/scopes"),
        ({"scopes": ["root"]}, "/scopes/0"),
        ({"scopes": None}, "/scopes"),
        ({"scopes": ["read"], "queues": []}, "/queues"),
        ({"scopes": ["read"], "queues": ["A"]}, "/queues/0"),
        ({"scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
        ({"scopes": ["read"], "expires_at": "tomorrow"}, "/expires_at"),
        ({"scopes": ["read"], "name": "n" * 201}, "/name"),
        ({"scopes": ["read"], "tenant": "globex"}, "/tenant"),
    ],
)
def test_a_bad_token_is_400_at_its_fault(acme: Api, members: dict[str, Any], pointer: str) -> None:
    assert pointers(acme.post("/v1/tokens", members)) == [pointer]


def test_a_token_for_a_queue_that_is_not_there_is_refused_at_its_name(acme: Api) -> None:
    answer = acme.post("/v1/tokens", {"scopes": ["read"], "queues": ["default", "nowhere"]})
    assert pointers(answer) == ["/queues/1"]
    assert [error["code"] for error in answer.json()["errors"]] == ["unknown_queue"]
    assert make(acme, queues=["default"])["queues"] == ["default"]


def test_a_token_of_some_queues_grants_no_more(acme: Api) -> None:
    policies.create_queue("narrow", actor="test")
    narrow = Api(make(acme, scopes=["admin"], queues=["narrow"])["token"])
    assert code(narrow.post("/v1/tokens", {"scopes": ["read"]})) == (403, "insufficient_scope")
    assert code(narrow.post("/v1/tokens", {"scopes": ["read"], "queues": ["default"]})) == (
        403,
        "insufficient_scope",
    )
    made = make(narrow, queues=["narrow"])
    wide = make(acme)
    assert code(narrow.post(f"/v1/tokens/{wide['id']}/rotate")) == (404, "not_found")
    assert code(narrow.delete(f"/v1/tokens/{wide['id']}")) == (404, "not_found")
    assert narrow.delete(f"/v1/tokens/{made['id']}").status_code == 204


def test_a_rotated_token_has_an_overlap(acme: Api) -> None:
    made = make(acme)
    rotated = acme.post(f"/v1/tokens/{made['id']}/rotate", {"overlap_s": 60})
    assert rotated.status_code == 200
    assert rotated.json()["id"] == made["id"]
    access.forget()
    for token in (made["token"], rotated.json()["token"]):
        assert Api(token).get("/v1/jobs").status_code == 200
    last = acme.post(f"/v1/tokens/{made['id']}/rotate").json()["token"]
    access.forget()
    assert code(Api(made["token"]).get("/v1/jobs")) == (401, "unauthenticated")
    assert code(Api(rotated.json()["token"]).get("/v1/jobs")) == (401, "unauthenticated")
    assert Api(last).get("/v1/jobs").status_code == 200
    assert pointers(acme.post(f"/v1/tokens/{made['id']}/rotate", {"overlap_s": -1})) == ["/overlap_s"]


def test_an_ended_token_is_over(acme: Api) -> None:
    made = make(acme)
    response = acme.delete(f"/v1/tokens/{made['id']}")
    assert (response.status_code, response.content) == (204, b"")
    assert code(Api(made["token"]).get("/v1/jobs")) == (401, "unauthenticated")
    assert code(acme.delete(f"/v1/tokens/{made['id']}")) == (404, "not_found")
    assert code(acme.post(f"/v1/tokens/{made['id']}/rotate")) == (404, "not_found")
    assert made["id"] not in [token["id"] for token in acme.get("/v1/tokens").json()["items"]]


def test_an_expired_token_is_over(acme: Api) -> None:
    made = make(acme, expires_at=format_instant(datetime.now(UTC) + timedelta(hours=1)))
    assert Api(made["token"]).get("/v1/jobs").status_code == 200
    ApiToken.objects.filter(public_id=made["id"]).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    access.forget()
    assert code(Api(made["token"]).get("/v1/jobs")) == (401, "unauthenticated")


@pytest.mark.parametrize("token_id", ["0" * 12, "x", "%00", "%ff", "A" * 12, "1; DROP TABLE"])
def test_an_unknown_token_is_not_found(acme: Api, token_id: str) -> None:
    assert code(acme.delete(f"/v1/tokens/{token_id}")) == (404, "not_found")


def test_tokens_page(acme: Api) -> None:
    made = [make(acme)["id"] for _ in range(3)][::-1]
    first = acme.get("/v1/tokens?limit=2").json()
    second = acme.get(f"/v1/tokens?limit=2&cursor={first['next']}").json()
    assert [token["id"] for token in first["items"] + second["items"]][:3] == made


def test_a_fleet_token_makes_tokens_of_the_fleet_and_of_the_tenant_that_it_names(acme: Api) -> None:
    fleet = caller(None)
    assert make(fleet)["tenant"] is None
    named = fleet.post("/v1/tokens", {"scopes": ["read"]}, jobsplatform_tenant="acme").json()
    assert named["tenant"] == "acme"
    assert named["id"] in [token["id"] for token in acme.get("/v1/tokens").json()["items"]]
    assert {token["tenant"] for token in acme.get("/v1/tokens").json()["items"]} == {"acme"}


@pytest.mark.parametrize(
    "header",
    [
        *(
            "",
            "Bearer",
            "Bearer ",
            "Basic abc",
            "Bearer jp_x_y",
            "Bearer jp_000000000000_" + "a" * 32,
            "Bearer \xff",
        ),
        *("bearer x", "Bearer jp_" + "0" * 100_000),
    ],
)
def test_whatever_is_no_token_is_401(acme: Api, header: str) -> None:
    response = acme.client.get("/v1/jobs", HTTP_AUTHORIZATION=header)
    assert code(response) == (401, "unauthenticated")
    assert response["WWW-Authenticate"] == "Bearer"


def test_a_wrong_secret_of_a_right_id_is_401(acme: Api) -> None:
    assert acme.token is not None
    other = acme.token[:-1] + ("A" if acme.token[-1] != "A" else "B")
    assert code(Api(other).get("/v1/jobs")) == (401, "unauthenticated")


# The tenant


def test_a_tenant_sees_its_limits_and_its_usage(acme: Api) -> None:
    registry.set_quota("acme", {"max_running": 3, "max_depth": 10}, actor="test")
    registry.set_quota(
        "acme", {"max_depth": 5, "max_payload_bytes": 1_000}, queue="default", band=1, actor="test"
    )
    for priority in (1, 2, 2):
        acme.enqueue(priority=priority)
    acme.claim()
    assert acme.get("/v1/tenant").json() == {
        "slug": "acme",
        "suspended": False,
        "quotas": [
            {"queue": None, "band": None, "limit": "max_running", "value": 3, "used": 1},
            {"queue": None, "band": None, "limit": "max_depth", "value": 10, "used": 2},
            {"queue": "default", "band": 1, "limit": "max_depth", "value": 5, "used": 0},
            {"queue": "default", "band": 1, "limit": "max_payload_bytes", "value": 1_000, "used": None},
        ],
        "usage": {"running": 1, "waiting": 2},
    }


def test_a_fleet_token_names_the_tenant_that_it_asks_for(acme: Api) -> None:
    fleet = caller(None)
    assert code(fleet.get("/v1/tenant")) == (400, "tenant_required")
    assert fleet.get("/v1/tenant", jobsplatform_tenant="acme").json()["slug"] == "acme"
    for slug in ("gone", "ACME", "a\x00b", "é"):
        assert code(fleet.get("/v1/tenant", jobsplatform_tenant=slug)) == (400, "tenant_required")
