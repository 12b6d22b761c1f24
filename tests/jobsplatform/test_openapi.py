"""The OpenAPI document: valid, complete, and of one mind with what is served."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from jobqueue import upkeep
from jobsplatform import scopes
from jobsplatform.public import openapi_document
from tests.api_cast import Api, caller


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(openapi_document())
    return found


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_it_is_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"


def test_it_lists_exactly_the_routes_of_the_scope_table(document: dict[str, Any]) -> None:
    assert operations(document).keys() == scopes.TABLE.keys()


def test_every_operation_says_what_it_needs(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        access = scopes.TABLE[name]
        assert operation["summary"], name
        assert operation["security"] == ([] if access.is_open else [{"token": []}]), name
        assert operation.get("x-scopes", []) == sorted(access.scopes), name
        assert "400" in operation["responses"], name
        assert any(status.startswith("2") for status in operation["responses"]), name


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(set(names)) == len(names)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for value in node.values() for found in references(value)]
        return [found for value in node for found in references(value)] if isinstance(node, list) else []

    for reference in references(document):
        node: Any = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def test_every_schema_is_a_json_schema(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.django_db
def test_replies_are_as_described(document: dict[str, Any]) -> None:
    """Each call below is checked against the schema of its reply."""
    acme = caller("acme")
    dead = acme.kill(payload={"n": 1})
    job_id = acme.enqueue(request_key="K")
    schedule_id = acme.post("/v1/schedules", {"name": "n", "kind": "a", "cron": "0 9 * * *"}).json()["id"]
    calls: list[tuple[str, str, Any]] = [
        ("POST /v1/jobs", "/v1/jobs", {"kind": "a", "payload": 1}),
        ("POST /v1/jobs", "/v1/jobs", {"kind": "a", "payload": {}, "request_key": "K"}),
        ("POST /v1/jobs", "/v1/jobs", {}),
        ("POST /v1/jobs/batch", "/v1/jobs/batch", {"jobs": [{"kind": "a", "payload": 1}, {}]}),
        ("GET /v1/jobs", "/v1/jobs", None),
        ("GET /v1/jobs/{job_id}", f"/v1/jobs/{job_id}?include=payload", None),
        ("GET /v1/jobs/{job_id}", "/v1/jobs/0-999", None),
        ("GET /v1/jobs/{job_id}/attempts", f"/v1/jobs/{dead}/attempts", None),
        ("POST /v1/leases/claim", "/v1/leases/claim", {"limit": 2}),
        ("POST /v1/leases/settle", "/v1/leases/settle", {"renew": [{"job_id": "0-1"}, {}]}),
        ("GET /v1/dlq", "/v1/dlq", None),
        ("GET /v1/dlq/{job_id}", f"/v1/dlq/{dead}?include=payload", None),
        ("POST /v1/dlq/{job_id}/corrections", f"/v1/dlq/{dead}/corrections", {"note": "n", "payload": 1}),
        ("POST /v1/dlq/{job_id}/redrive", f"/v1/dlq/{dead}/redrive", {"note": "n"}),
        ("POST /v1/jobs/{job_id}/cancel", f"/v1/jobs/{dead}/cancel", {}),
        ("GET /v1/jobs/{job_id}/result", f"/v1/jobs/{dead}/result", None),
        ("GET /v1/jobs/{job_id}/why", f"/v1/jobs/{job_id}/why", None),
        ("GET /v1/jobs/{job_id}/why", f"/v1/jobs/{dead}/why", None),
        ("POST /v1/schedules", "/v1/schedules", {"name": "n", "kind": "a", "cron": "0 9 * * *"}),
        ("POST /v1/schedules", "/v1/schedules", {"name": "n", "kind": "a", "cron": "never"}),
        ("GET /v1/schedules", "/v1/schedules", None),
        ("GET /v1/schedules/{schedule_id}", f"/v1/schedules/{schedule_id}", None),
        ("PATCH /v1/schedules/{schedule_id}", f"/v1/schedules/{schedule_id}", {"enabled": False}),
        ("POST /v1/schedules/{schedule_id}/run-now", f"/v1/schedules/{schedule_id}/run-now", None),
        ("GET /v1/schedules/{schedule_id}/next", f"/v1/schedules/{schedule_id}/next", None),
        ("GET /v1/tenant", "/v1/tenant", None),
        ("GET /v1/tokens", "/v1/tokens", None),
        ("POST /v1/tokens", "/v1/tokens", {"scopes": ["read"]}),
        ("GET /v1/queues", "/v1/queues", None),
        (
            "POST /v1/queues/{queue}/messages",
            "/v1/queues/default/messages",
            {"body": "aGk=", "dedup_key": "D"},
        ),
        (
            "POST /v1/queues/{queue}/messages",
            "/v1/queues/default/messages",
            {"body": "aG8=", "dedup_key": "D"},
        ),
        ("POST /v1/queues/{queue}/messages", "/v1/queues/default/messages", {"body": "not base64"}),
        ("GET /v1/queues/{queue}/stats", "/v1/queues/default/stats", None),
        ("GET /v1/queues/{queue}/scale", "/v1/queues/default/scale", None),
        ("POST /v1/queues/{queue}/receive", "/v1/queues/default/receive", {}),
        ("POST /v1/queues/{queue}/ack", "/v1/queues/default/ack", {"ack": ["0-1-1", "nonsense"]}),
        ("GET /v1/queues/{queue}/stats", "/v1/queues/no-such/stats", None),
    ]
    for name, url, body in calls:
        check_reply(document, name, acme, url, body)


@pytest.mark.django_db
def test_replies_about_a_lost_lease_and_a_purged_job_are_as_described(document: dict[str, Any]) -> None:
    acme = caller("acme")
    lost = acme.enqueue()
    assert acme.claim()
    upkeep.reap(now=datetime.now(UTC) + timedelta(minutes=1))
    purged = acme.enqueue(request_key="K")
    acme.post(f"/v1/jobs/{purged}/cancel")
    upkeep.purge(now=datetime.now(UTC) + timedelta(days=31))

    assert acme.get(f"/v1/jobs/{lost}").json()["last_error"]["error_class"] == "worker_crash"
    check_reply(document, "GET /v1/jobs/{job_id}", acme, f"/v1/jobs/{lost}", None)
    check_reply(document, "GET /v1/jobs/{job_id}/attempts", acme, f"/v1/jobs/{lost}/attempts", None)
    assert acme.get(f"/v1/jobs/{purged}").status_code == 404
    again = {"kind": "a", "payload": {}, "request_key": "K"}
    check_reply(document, "POST /v1/jobs", acme, "/v1/jobs", again)


def check_reply(document: dict[str, Any], name: str, api: Api, url: str, body: Any) -> None:
    response = api.call(name.split()[0], url, body)
    described = operations(document)[name]["responses"][str(response.status_code)]
    media_type = response["Content-Type"].partition(";")[0]
    schema = described["content"][media_type]["schema"] | {"components": document["components"]}
    jsonschema.validate(response.json(), schema, cls=jsonschema.Draft202012Validator)
