"""What is served without a token."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.core.checks import Error
from django.db import connections
from django.test import Client

from jobsplatform import checks, public, servers
from jobsplatform.errors import Unavailable
from tests.api_cast import Api, caller, code

pytestmark = pytest.mark.django_db


@pytest.fixture
def anyone() -> Api:
    return Api(None)


def test_a_live_process_answers_without_a_database(anyone: Api, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert anyone.get("/livez").json() == {"status": "alive"}


def test_a_platform_that_can_work_is_ready(anyone: Api) -> None:
    response = anyone.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


@pytest.mark.parametrize("alias", ["default", "shard0"])
def test_a_read_only_database_is_not_ready(anyone: Api, alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("SET LOCAL transaction_read_only = on")
    response = anyone.get("/readyz")
    assert code(response) == (503, "unavailable")
    assert "read only" in response.json()["detail"]
    assert int(response["Retry-After"]) >= 1


def test_a_database_with_migrations_to_be_run_is_not_ready(
    anyone: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "_migrated", set())
    with connections["default"].cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'queue'")
    assert "migrations" in anyone.get("/readyz").json()["detail"]


def test_a_database_that_may_lose_commits_is_not_ready(anyone: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Error("fsync is off", id="jobsplatform.E012")
    monkeypatch.setattr(checks, "servers_are_durable", lambda app_configs, databases: [fault])
    assert "durable" in anyone.get("/readyz").json()["detail"]


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the servers say something of themselves that no test can make true."""
    real = servers.of

    def change(**values: Any) -> None:
        monkeypatch.setattr(servers, "of", lambda alias: replace(real(alias), **values))

    return change


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"off_s": 31.0}, "clock that is 31 s off"),
        ({"standbys_wanted": "ANY 1 (a, b)", "standbys": 0}, "waits for a standby"),
    ],
)
def test_a_database_on_which_leases_or_commits_would_hang_is_not_ready(
    anyone: Api, changed: Callable[..., None], said: dict[str, Any], words: str
) -> None:
    changed(**said)
    response = anyone.get("/readyz")
    assert code(response) == (503, "unavailable")
    assert words in response.json()["detail"]


@pytest.mark.parametrize(
    ("said", "is_ready"),
    [
        ({}, False),
        ({"standbys_wanted": "*", "standbys": 1}, True),
        ({"standbys_wanted": "*", "standbys": 1, "synchronous_commit": "local"}, False),
    ],
)
def test_where_a_standby_is_required_nothing_is_ready_without_one(
    anyone: Api, changed: Callable[..., None], settings: Any, said: dict[str, Any], is_ready: bool
) -> None:
    settings.JOBS_STANDBY_REQUIRED = True
    changed(**said)
    response = anyone.get("/readyz")
    assert response.status_code == (200 if is_ready else 503)
    assert is_ready or "has no standby" in response.json()["detail"]


def test_a_database_that_is_away_is_told(anyone: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(alias: str) -> None:
        raise Unavailable

    monkeypatch.setattr(servers, "of", away)
    assert "control database: cannot be reached" in anyone.get("/readyz").json()["detail"]


def test_metrics_are_open_on_this_machine_and_else_for_the_fleet(anyone: Api) -> None:
    assert b"# HELP" in anyone.get("/metrics").content
    away = {"REMOTE_ADDR": "10.1.2.3"}
    client = Client(**away)  # type: ignore[arg-type]
    assert code(client.get("/metrics")) == (401, "unauthenticated")

    def ask(api: Api) -> Any:
        return client.get("/metrics", HTTP_AUTHORIZATION=f"Bearer {api.token}")

    assert code(ask(caller("acme", "read"))) == (403, "insufficient_scope")
    assert code(ask(caller(None, "produce"))) == (403, "insufficient_scope")
    assert ask(caller(None, "read")).status_code == 200


def test_the_manual_uses_files_of_ours_alone(anyone: Api) -> None:
    page = anyone.get("/docs")
    assert page.status_code == 200
    text = page.content.decode()
    assert "<script>" not in text
    assert "<style" not in text
    assert " style=" not in text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert all(address.startswith("/") for address in addresses)
    for address in addresses:
        if address.startswith("/static/"):
            assert finders.find(address.removeprefix("/static/")), address


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
def test_the_manual_refuses_other_methods_as_the_api_does(method: str) -> None:
    response = Client(enforce_csrf_checks=True).generic(method, "/docs")
    assert code(response) == (405, "method_not_allowed")
    assert response["Allow"] == "GET, HEAD"


def test_cookies_are_never_set_by_open_routes(anyone: Api) -> None:
    for url in ("/livez", "/readyz", "/metrics", "/docs", "/v1/openapi.yaml"):
        assert anyone.get(url).cookies == {}
