"""Every route × scope × tenant, generated from the routes that are served: a new route without a row fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver
from pytest_django import DjangoDbBlocker

from jobsplatform import scopes
from jobsplatform.http import ApiView
from tests.api_cast import Api, caller, code

# Pages for people, and what browsers report of them.
NOT_API = {"", "admin", "admin/", "docs", "csp-report", "login/", "login/code/", "logout/", "t/"}
FOREIGN_MEMBERS = ("tenant", "tenant_id", "state", "attempt", "result_hash", "created_at", "id")
IDS = ("job_id", "token_id", "schedule_id", "campaign_id")
RECEIPT = {"generation": 1, "lease_token": "AAAAAAAAAAAAAAAAAAAAAA"}


@dataclass(frozen=True)
class Sample:
    """A sound call of a route: its body, and what a caller with the scope gets on its own and on a foreign id."""

    body: Any = None
    own: frozenset[int] = frozenset({200})
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)


SAMPLES = {
    "GET /livez": Sample(),
    "GET /readyz": Sample(),
    "GET /metrics": Sample(),
    "GET /v1/openapi.yaml": Sample(),
    "POST /v1/jobs": Sample({"kind": "a", "payload": 1}, frozenset({201})),
    "GET /v1/jobs": Sample(),
    "POST /v1/jobs/batch": Sample({"jobs": [{"kind": "a", "payload": 1}]}),
    "GET /v1/jobs/{job_id}": Sample(),
    "GET /v1/jobs/{job_id}/attempts": Sample(),
    "GET /v1/jobs/{job_id}/result": Sample(own=frozenset({404})),
    "GET /v1/jobs/{job_id}/why": Sample(),
    "POST /v1/jobs/{job_id}/cancel": Sample({}, frozenset({409})),
    "POST /v1/leases/claim": Sample({}),
    "POST /v1/leases/settle": Sample({}),
    "POST /v1/jobs/{job_id}/renew": Sample(RECEIPT, frozenset({409})),
    "POST /v1/jobs/{job_id}/complete": Sample(RECEIPT, frozenset({409})),
    "POST /v1/jobs/{job_id}/fail": Sample(RECEIPT | {"error_class": "transient"}, frozenset({409})),
    "POST /v1/jobs/{job_id}/release": Sample(RECEIPT, frozenset({409})),
    "GET /v1/queues": Sample(),
    "GET /v1/queues/{queue}/stats": Sample(),
    "GET /v1/queues/{queue}/scale": Sample(),
    "POST /v1/queues/{queue}/messages": Sample({"body": "aGk="}, frozenset({202})),
    "POST /v1/queues/{queue}/receive": Sample({}),
    "POST /v1/queues/{queue}/ack": Sample({"ack": ["0-1-1"]}),
    "GET /v1/dlq": Sample(),
    "GET /v1/dlq/groups": Sample(),
    "POST /v1/dlq/campaigns": Sample({"filter": {"reason": "invalid"}, "note": "n"}, frozenset({201})),
    "GET /v1/dlq/campaigns/{campaign_id}": Sample(),
    "POST /v1/dlq/campaigns/{campaign_id}/pause": Sample({}),
    "POST /v1/dlq/campaigns/{campaign_id}/resume": Sample({}),
    "POST /v1/dlq/campaigns/{campaign_id}/abort": Sample({}),
    "GET /v1/dlq/{job_id}": Sample(),
    "POST /v1/dlq/{job_id}/corrections": Sample({"note": "n", "payload": 1}, frozenset({201})),
    "POST /v1/dlq/{job_id}/redrive": Sample({"note": "n"}, frozenset({201, 409})),
    "GET /v1/schedules": Sample(),
    "POST /v1/schedules": Sample({"name": "n", "kind": "a", "cron": "0 0 1 1 *"}, frozenset({201})),
    "GET /v1/schedules/{schedule_id}": Sample(),
    "PATCH /v1/schedules/{schedule_id}": Sample({"name": "m"}),
    "DELETE /v1/schedules/{schedule_id}": Sample(own=frozenset({204})),
    "POST /v1/schedules/{schedule_id}/run-now": Sample({}, frozenset({201})),
    "GET /v1/schedules/{schedule_id}/next": Sample(),
    "POST /v1/dlq/{job_id}/fork": Sample({"note": "n", "request_key": "f"}, frozenset({201})),
    "GET /v1/tenant": Sample(),
    "GET /v1/tokens": Sample(),
    "POST /v1/tokens": Sample({"scopes": ["read"]}, frozenset({201})),
    "POST /v1/tokens/{token_id}/rotate": Sample({}),
    "DELETE /v1/tokens/{token_id}": Sample(own=frozenset({204})),
}
PROTECTED = [
    name for name, access in scopes.TABLE.items() if not access.is_open and not access.is_open_on_loopback
]
SHARED = "{queue}"  # queues belong to the platform: their names are nobody's secret
WITH_ID = [name for name in PROTECTED if "{" in name and SHARED not in name]
WITHOUT_ID = [name for name in PROTECTED if name not in WITH_ID]
OF_QUEUES = [name for name in PROTECTED if SHARED in name]
OF_A_TENANT = [name for name in PROTECTED if "/v1/schedules" in name]  # whose tenant a fleet token must name


def served(patterns: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every route of the resolver but the admin's own, with its callback."""
    for one in get_resolver().url_patterns if patterns is None else patterns:
        route = prefix + str(one.pattern)
        if isinstance(one, URLResolver) and route != "admin/":
            yield from served(one.url_patterns, route)
        elif isinstance(one, URLPattern):
            yield route, one.callback


# The table is of one mind with the resolver


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    found = set()
    for route, callback in served():
        view = getattr(callback, "cls", None)
        if view is None or not issubclass(view, ApiView):
            is_page = route in NOT_API or route.startswith("t/<str:slug>/")  # these have a table of their own
            assert is_page, f"{route} is neither an ApiView nor a known page"
            continue
        found |= {f"{method} /{scopes.path_of(route)}" for method in view.endpoints}
    assert found == scopes.TABLE.keys()


def test_every_route_has_a_sample() -> None:
    assert SAMPLES.keys() == scopes.TABLE.keys()


def test_every_protected_row_names_known_scopes() -> None:
    for name in PROTECTED:
        access = scopes.TABLE[name]
        assert access.scopes, name
        assert access.scopes | access.with_payload <= scopes.ALL, name


# The world in which the calls are made


@dataclass
class World:
    """Acme's dead job and token, globex's of the same kind."""

    acme: Api
    globex: Api
    ids: dict[str, dict[str, str]]
    of_scope: dict[str, Api]  # callers of acme, each with that scope alone

    def url(self, name: str, whose: str) -> str:
        path = name.split()[1].replace(SHARED, "default")
        for key, value in self.ids.get(whose, dict.fromkeys(IDS, whose)).items():
            path = path.replace(f"{{{key}}}", value)
        return path

    def call(self, api: Api, name: str, whose: str) -> Any:
        sample = SAMPLES[name]
        return api.call(name.split()[0], self.url(name, whose) + sample.query, sample.body, **sample.headers)


@pytest.fixture(scope="module")
def world(shared_ground: None, django_db_blocker: DjangoDbBlocker) -> World:
    with django_db_blocker.unblock():
        return _made_world()


def _made_world() -> World:
    acme, globex = caller("acme"), caller("globex")
    ids = {}
    for slug, api in (("acme", acme), ("globex", globex)):
        token = api.post("/v1/tokens", {"scopes": ["read"], "name": f"canary-{slug}"}).json()
        schedule = api.post(
            "/v1/schedules", SAMPLES["POST /v1/schedules"].body | {"payload": f"canary-{slug}"}
        ).json()
        job_id = api.kill(payload={"canary": slug})
        campaign = api.post("/v1/dlq/campaigns", {"filter": {"kind": "b"}, "note": f"canary-{slug}"}).json()
        ids[slug] = {
            "job_id": job_id,
            "token_id": token["id"],
            "schedule_id": schedule["id"],
            "campaign_id": campaign["id"],
        }
    return World(acme, globex, ids, {scope: caller("acme", scope) for scope in sorted(scopes.ALL)})


pytestmark = pytest.mark.django_db(databases=["default", "shard0"])


def rows() -> dict[str, list[tuple[Any, ...]]]:
    """All that the databases hold of jobs, tokens and tenants; when a token was last used does not count."""
    found = {}
    for alias in ("default", "shard0"):
        with connections[alias].cursor() as cursor:
            for table in connections[alias].introspection.table_names(cursor):
                if re.match("queue_|dlq_|tenants_", table) and table != "tenants_apitoken":
                    cursor.execute(f'SELECT t::text FROM "{table}" t ORDER BY 1')
                    found[f"{alias}.{table}"] = cursor.fetchall()
    return found


# Scopes


def test_without_a_token_nothing_is_served(world: World, subtests: pytest.Subtests) -> None:
    for name in PROTECTED:
        with subtests.test(name):
            assert code(world.call(Api(None), name, "acme")) == (401, "unauthenticated")


@pytest.mark.parametrize("name", PROTECTED)
def test_a_route_serves_the_scopes_of_its_row_alone(world: World, name: str) -> None:
    for scope, api in world.of_scope.items():
        response = world.call(api, name, "acme")
        if scope in scopes.TABLE[name].scopes:
            assert response.status_code in SAMPLES[name].own, (scope, response.content)
        else:
            assert code(response) == (403, "insufficient_scope"), scope


@pytest.mark.parametrize("name", [name for name in PROTECTED if scopes.TABLE[name].with_payload])
def test_a_payload_is_shown_to_the_scopes_of_its_row_alone(world: World, name: str) -> None:
    for scope, api in world.of_scope.items():
        response = api.get(world.url(name, "acme") + "?include=payload")
        shown = b"canary" in response.content
        assert shown is (scope in scopes.TABLE[name].with_payload), scope
        if not shown:
            assert code(response) == (403, "insufficient_scope"), scope


def test_all_other_scopes_together_open_nothing(world: World, subtests: pytest.Subtests) -> None:
    for name in PROTECTED:
        with subtests.test(name):
            others = scopes.ALL - scopes.TABLE[name].scopes
            response = world.call(caller("acme", *others), name, "acme")
            assert code(response) == (403, "insufficient_scope")


# Tenants


def test_a_foreign_id_answers_exactly_as_an_absent_one_and_changes_nothing(
    world: World, subtests: pytest.Subtests
) -> None:
    mallory = caller("globex", headers={"X-Request-ID": "same"})
    before = rows()
    for name in WITH_ID:
        with subtests.test(name):
            answers = [world.call(mallory, name, whose) for whose in ("acme", "0-99999999", "no-id")]
            assert code(answers[0]) == (404, "not_found")
            assert len({answer.content for answer in answers}) == 1
            assert answers[0].headers == answers[1].headers == answers[2].headers
            assert rows() == before


def test_no_answer_to_one_tenant_speaks_of_another(world: World, subtests: pytest.Subtests) -> None:
    for name in WITHOUT_ID:
        with subtests.test(name):
            text = world.call(world.globex, name, "globex").content.decode()
            assert "acme" not in text
            assert world.ids["acme"]["job_id"] not in re.findall(r'"(\d+-\d+)"', text)
            assert world.ids["acme"]["token_id"] not in text


def test_a_tenants_token_cannot_name_another_tenant(world: World, subtests: pytest.Subtests) -> None:
    mallory = caller("globex", headers={"Jobsplatform-Tenant": "acme"})
    before = rows()
    for name in PROTECTED:
        with subtests.test(name):
            assert code(world.call(mallory, name, "acme")) == (400, "invalid")
    assert rows() == before


@pytest.mark.parametrize("name", [name for name in WITH_ID if name not in OF_A_TENANT])
def test_a_fleet_token_reaches_every_tenant_or_only_the_one_that_it_names(world: World, name: str) -> None:
    named = caller(None, headers={"Jobsplatform-Tenant": "globex"})
    assert code(world.call(named, name, "acme")) == (404, "not_found")
    assert world.call(caller(None), name, "acme").status_code in SAMPLES[name].own


@pytest.mark.parametrize("name", OF_A_TENANT)
def test_a_fleet_token_must_say_whose_schedules_it_means(world: World, name: str) -> None:
    assert code(world.call(caller(None), name, "acme")) == (400, "tenant_required")
    named = caller(None, headers={"Jobsplatform-Tenant": "acme"})
    assert world.call(named, name, "acme").status_code in SAMPLES[name].own


@pytest.mark.parametrize("name", [name for name in OF_A_TENANT if name in WITH_ID])
def test_a_fleet_token_reaches_no_schedule_of_another_tenant_than_it_names(world: World, name: str) -> None:
    named = caller(None, headers={"Jobsplatform-Tenant": "globex"})
    assert code(world.call(named, name, "acme")) == (404, "not_found")


def test_a_token_of_other_queues_does_not_see_the_job(world: World, subtests: pytest.Subtests) -> None:
    narrow = caller("acme", queues=["no-such-queue"])
    for name in WITH_ID:
        with subtests.test(name):
            assert code(world.call(narrow, name, "acme")) == (404, "not_found")


def test_a_token_of_other_queues_is_refused_at_a_queue_s_path(
    world: World, subtests: pytest.Subtests
) -> None:
    narrow = caller("acme", queues=["no-such-queue"])
    for name in OF_QUEUES:
        with subtests.test(name):
            assert code(world.call(narrow, name, "acme")) == (403, "insufficient_scope")


def test_a_queue_that_is_not_there_is_not_found(world: World, subtests: pytest.Subtests) -> None:
    for name in OF_QUEUES:
        method, path = name.split()
        for absent in ("no-such-queue", "No%20Queue", "%00"):
            with subtests.test(f"{name} {absent}"):
                response = world.acme.call(method, path.replace(SHARED, absent), SAMPLES[name].body)
                assert code(response) == (404, "not_found")


def test_members_that_are_not_ours_to_set_are_refused(world: World, subtests: pytest.Subtests) -> None:
    """Mass assignment: state, tenant and the like are unknown in every body."""
    before = rows()
    for name in PROTECTED:
        body = SAMPLES[name].body
        for member in FOREIGN_MEMBERS if isinstance(body, dict) else ():
            with subtests.test(f"{name} {member}"):
                response = world.acme.call(name.split()[0], world.url(name, "acme"), body | {member: 1})
                assert f"/{member}" in [error["pointer"] for error in response.json()["errors"]]
    assert rows() == before
