"""What is served without a token: whether the process lives and can work, its metrics, the manual."""

from __future__ import annotations

from collections.abc import Iterator
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

from jobsplatform import checks, metrics, problem, servers
from jobsplatform.errors import InsufficientScope, JobsPlatformError, Unavailable
from jobsplatform.http import Call, Endpoint, Reply

READY_RETRY_SECONDS: Final = 2
STATUS: Final = {"type": "object", "properties": {"status": {"type": "string"}}}


class ShowLife(Endpoint):
    """Whether the process answers; asks no database."""

    replies = {200: STATUS}

    def act(self, call: Call) -> Reply:
        return Reply(200, {"status": "alive"})


class ShowReadiness(Endpoint):
    """Whether every database takes writes, keeps what it confirms, keeps time and is migrated."""

    replies = {200: STATUS}

    def act(self, call: Call) -> Reply:
        faults = list(faults_of_databases())
        if faults:
            raise Unavailable("; ".join(faults), retry_after=READY_RETRY_SECONDS)
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
    for number, alias in enumerate(dict.fromkeys(["default", *settings.SHARD_ALIASES.values()])):
        title = "control database" if number == 0 else f"shard database {number - 1}"
        try:
            yield from (f"{title}: {fault}" for fault in _faults_of(alias))
        except (DatabaseError, JobsPlatformError):
            yield f"{title}: cannot be reached"


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
