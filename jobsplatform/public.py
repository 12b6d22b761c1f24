"""What is served without a token: whether the process lives and can work, its metrics, the manual."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from django.conf import settings
from django.core.checks import Error
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.views.generic import TemplateView
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer
from drf_spectacular.settings import patched_settings
from prometheus_client import CONTENT_TYPE_LATEST

from jobsplatform import checks, metrics, problem, reach, servers
from jobsplatform.errors import InsufficientScope, JobsPlatformError, Unavailable
from jobsplatform.http import Call, Endpoint, Reply

READY_RETRY_SECONDS: Final = 2
REMEMBERED: Final = "; tokens, queues and limits are as remembered: changes and revocations wait"
REMEMBERED_SECONDS: Final = 900.0
READY: Final = {"type": "object", "properties": {"status": {"type": "string"}, "detail": {"type": "string"}}}
STATUS: Final = {"type": "object", "properties": {"status": {"type": "string"}}}


class ShowLife(Endpoint):
    """Whether the process answers; asks no database."""

    replies = {200: STATUS}

    def act(self, call: Call) -> Reply:
        return Reply(200, {"status": "alive"})


class ShowReadiness(Endpoint):
    """Whether every database takes writes, keeps what it confirms, keeps time and is migrated.

    While work can go on without one that is away: 200, degraded.
    """

    replies = {200: READY}

    def act(self, call: Call) -> Reply:
        faults, away = list(faults_of_databases()), databases_away()
        if away and not may_go_on(away):
            raise Unavailable("; ".join([*faults, *away.values()]), retry_after=READY_RETRY_SECONDS)
        if faults:
            raise Unavailable("; ".join(faults), retry_after=READY_RETRY_SECONDS)
        if away:
            return Reply(200, {"status": "degraded", "detail": "; ".join(away.values())})
        return Reply(200, {"status": "ready"})


class ShowOpenApi(Endpoint):
    """This document."""

    replies = {200: {}}

    def act(self, call: Call) -> Reply:
        return Reply(200, openapi_document(), media_type="application/yaml")


class ShowMetrics(Endpoint):
    """Metrics in Prometheus' text format; open on loopback, elsewhere for a fleet token with `read`."""

    replies = {200: {}}

    def act(self, call: Call) -> Reply:
        if call.caller is not None and call.caller.tenant is not None:
            raise InsufficientScope("Metrics are for the fleet.")
        return Reply(200, metrics.page().decode(), media_type=CONTENT_TYPE_LATEST)


# Readiness


def faults_of_databases() -> Iterator[str]:
    """What keeps the platform from working, a sentence each, without a name or address of the inside."""
    for alias, title in _titles().items():
        try:
            yield from (f"{title}: {fault}" for fault in _faults_of(alias))
        except (DatabaseError, JobsPlatformError):
            _away.add(alias)
        else:
            _away.discard(alias)


def databases_away() -> dict[str, str]:
    """The databases that the last look could not reach, with a sentence each."""
    return {
        alias: f"{title}: cannot be reached" + (REMEMBERED if alias == "default" else "")
        for alias, title in _titles().items()
        if alias in _away
    }


def may_go_on(away: Mapping[str, str]) -> bool:
    """Whether enqueues, claims and completions go on without these: some shard is there, and callers are known.

    Tokens are remembered for fifteen minutes without control; a process that never met it knows nobody.
    """
    shards = set(settings.SHARD_ALIASES.values())
    if shards <= away.keys():
        return False
    met_at = reach.met_at("default")
    return "default" not in away or (met_at is not None and time.monotonic() - met_at < REMEMBERED_SECONDS)


def _titles() -> dict[str, str]:
    aliases = dict.fromkeys(["default", *settings.SHARD_ALIASES.values()])
    return {
        alias: "control database" if number == 0 else f"shard database {number - 1}"
        for number, alias in enumerate(aliases)
    }


_away: set[str] = set()


def _faults_of(alias: str) -> Iterator[str]:
    server = servers.of(alias)
    if server.is_read_only:
        yield "is read only"
    if any(isinstance(found, Error) for found in checks.servers_are_durable(None, databases=[alias])):
        yield "is not durable"
    if server.off_s > servers.CLOCK_SECONDS[1]:
        yield f"has a clock that is {server.off_s:.0f} s off"
    if server.lacks_standby:
        yield "waits for a standby that is away"
    elif settings.JOBS_STANDBY_REQUIRED and not server.is_read_only and not server.has_standby:
        yield "has no standby"
    if not is_migrated(alias):
        yield "has migrations to be run"


_migrated: set[str] = set()


def is_migrated(alias: str) -> bool:
    """Whether this code's migrations have run. A yes holds for the life of the process."""
    if alias not in _migrated:
        executor = MigrationExecutor(connections[alias])
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return False
        _migrated.add(alias)
    return True


# The manual


@cache
def openapi_document() -> str:
    """The OpenAPI document as YAML; made once, as routes do not change while a process lives."""
    with patched_settings({"POSTPROCESSING_HOOKS": []}):  # they would pull words out of our schemas
        schema = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    text: bytes = OpenApiYamlRenderer().render(schema)  # type: ignore[no-untyped-call]
    return text.decode()


class DocsView(TemplateView):
    """The OpenAPI document as a page, from files of ours: no other host, no inline script or style."""

    template_name = "docs.html"
    http_method_names = ["get", "head"]

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = problem.respond(problem.MethodNotAllowed(), request)
        response["Allow"] = "GET, HEAD"
        return response
