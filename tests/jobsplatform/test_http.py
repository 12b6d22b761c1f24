"""The edge of the API: the order of refusals, bodies, headers; on routes and callers of the test's own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from jobsplatform import http, problem, scopes
from jobsplatform.errors import NotFound, QueueFull, Unauthenticated
from jobsplatform.fields import Choice, Integer, Json, Text
from jobsplatform.http import Call, Endpoint, Reply, route, splice
from jobsplatform.scopes import Access
from jobsplatform.shapes import Shape

BODY_BYTES_MAX = 1_000


@dataclass(frozen=True)
class FakeTenant:
    id: int = 1
    slug: str = "acme"
    is_suspended: bool = False


@dataclass(frozen=True)
class FakeCaller:
    token_id: int = 7
    tenant: FakeTenant | None = field(default_factory=FakeTenant)
    scopes: frozenset[str] = frozenset({"produce", "read"})
    queue_names: frozenset[str] | None = None
    actor: str = "token:fake"


CALLERS = {
    "Bearer acme": FakeCaller(),
    "Bearer fleet": FakeCaller(tenant=None),
    "Bearer idle": FakeCaller(tenant=FakeTenant(2, "idle", is_suspended=True)),
    "Bearer worker": FakeCaller(scopes=frozenset({"work"})),
}


class Produce(Endpoint):
    """Make a thing."""

    body = Shape("Thing", Text(name="name", required=True), Json(name="payload", bytes_max=100))
    body_bytes_max = BODY_BYTES_MAX
    query = Shape("ThingQuery", Integer(name="n", low=1, high=5))
    needs_tenant = True
    takes_idempotency_key = True
    replies = {201: {"title": "ThingMade", "type": "object"}}

    def act(self, call: Call) -> Reply:
        if call.body["name"] == "absent":
            raise NotFound
        if call.body["name"] == "full":
            raise QueueFull(retry_after=0)
        if call.body["name"] == "broken":
            raise RuntimeError("a fault of ours")
        assert call.tenant is not None
        members = {"tenant": call.tenant.slug, "key": call.idempotency_key}
        return Reply(
            201, splice(members, {"payload": call.body["payload"] or "null"}), {"Location": "/v1/things/1"}
        )


class Show(Endpoint):
    """Show a thing."""

    query = Shape("ShowQuery", Choice(name="include", choices=("payload",)))

    def act(self, call: Call) -> Reply:
        return Reply(200, {"id": call.path["thing_id"], "tenant": call.tenant and call.tenant.slug})


class Poke(Endpoint):
    """All members are optional."""

    body = Shape("Poke", Integer(name="n", default=3))

    def act(self, call: Call) -> Reply:
        return Reply(200, {"n": call.body["n"]})


def html(request: object) -> HttpResponse:
    return HttpResponse("<p>a page</p>")


urlpatterns = [
    path("v1/things", route(POST=Produce)),
    path("v1/things/<str:thing_id>", route(GET=Show)),
    path("v1/things/<str:thing_id>/poke", route(POST=Poke)),
    path("v1/unlisted", route(GET=Show)),
    path("admin/page", html),
]
handler400 = problem.bad_request
handler403 = problem.permission_denied
handler404 = problem.not_found
handler500 = problem.server_error

ROWS = {
    "POST /v1/things": Access(frozenset({"produce"})),
    "GET /v1/things/{thing_id}": Access(frozenset({"read"}), with_payload=frozenset({"redrive"})),
    "POST /v1/things/{thing_id}/poke": Access(frozenset({"work", "read"})),
}


@pytest.fixture(autouse=True)
def edge(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Routes, table and callers of this file."""
    module = ModuleType("fake_callers")

    def authenticate(header: str | None) -> FakeCaller:
        try:
            return CALLERS[header or ""]
        except KeyError:
            raise Unauthenticated from None

    module.authenticate = authenticate  # type: ignore[attr-defined]
    module.tenant_by_slug = {"acme": FakeTenant()}.get  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_callers", module)
    monkeypatch.setattr(scopes, "TABLE", ROWS)
    settings.API_CALLERS = "fake_callers"
    settings.ROOT_URLCONF = __name__
    http.callers.cache_clear()
    scopes.access.cache_clear()
    yield
    http.callers.cache_clear()
    scopes.access.cache_clear()


def call(  # keyword arguments go to the WSGI environment
    method: str = "POST",
    url: str = "/v1/things",
    body: bytes | dict[str, Any] = b"",
    *,
    token: str | None = "acme",
    media_type: str = "application/json",
    **environ: Any,
) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    if token is not None:
        environ["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    client = Client(raise_request_exception=False)
    return client.generic(method, url, content, content_type=media_type, **environ)


def code(response: Any) -> tuple[int, str]:
    assert response["Content-Type"] == "application/problem+json", response.content
    content = response.json()
    assert content["status"] == response.status_code
    assert content["instance"] == response["X-Request-ID"]
    return response.status_code, content["code"]


GOOD = {"name": "a"}


def test_a_good_call_is_answered_with_its_raw_payload() -> None:
    response = call(body=b'{"name":"a","payload":{"x": 1.0}}')
    assert response.status_code == 201
    assert response.content == b'{"tenant":"acme","key":null,"payload":{"x": 1.0}}'
    assert response["Location"] == "/v1/things/1"
    assert response["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("expected", "request_"),
    [
        ((401, "unauthenticated"), {"token": "nobody", "media_type": "text/plain", "body": b"{"}),
        ((415, "unsupported_media_type"), {"media_type": "text/plain", "body": b"{"}),
        ((413, "too_large"), {"body": b"{" * (BODY_BYTES_MAX + 1), "token": "worker"}),
        ((400, "invalid"), {"body": b"{", "token": "worker"}),
        ((400, "tenant_required"), {"body": GOOD, "token": "fleet"}),
        ((403, "insufficient_scope"), {"body": {"name": "absent"}, "token": "worker"}),
        ((403, "tenant_suspended"), {"body": {"name": "absent"}, "token": "idle"}),
        ((404, "not_found"), {"body": {"name": "absent"}}),
        ((429, "queue_full"), {"body": {"name": "full"}}),
        ((500, "internal"), {"body": {"name": "broken"}}),
    ],
)
def test_refusals_come_in_the_order_of_the_contract(
    expected: tuple[int, str], request_: dict[str, Any]
) -> None:
    assert code(call(**request_)) == expected


def test_a_refused_token_is_told_how_to_authenticate() -> None:
    assert call(body=GOOD, token=None)["WWW-Authenticate"] == "Bearer"


def test_retry_after_is_at_least_a_second() -> None:
    assert call(body={"name": "full"})["Retry-After"] == "1"


def test_a_fault_of_ours_leaks_nothing() -> None:
    assert b"a fault of ours" not in call(body={"name": "broken"}).content


@pytest.mark.parametrize(
    "media_type", ["application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"']
)
def test_json_in_utf8_is_understood(media_type: str) -> None:
    assert call(body=GOOD, media_type=media_type).status_code == 201


@pytest.mark.parametrize(
    "media_type",
    [
        *("", "text/json", "application/json; charset=latin-1", "application/json; version=2"),
        *("application/problem+json", "application/x-www-form-urlencoded"),
    ],
)
def test_other_media_types_are_not(media_type: str) -> None:
    assert code(call(body=GOOD, media_type=media_type)) == (415, "unsupported_media_type")


def test_an_encoded_body_is_not_understood() -> None:
    assert code(call(body=GOOD, HTTP_CONTENT_ENCODING="gzip")) == (415, "unsupported_media_type")


def test_a_body_that_is_too_large_closes_the_connection() -> None:
    response = call(body=b" " * (BODY_BYTES_MAX + 1))
    assert code(response) == (413, "too_large")
    assert response["Connection"] == "close"


class Endless(io.RawIOBase):
    """A body that never ends, and counts what was read of it."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        assert size > 0, "must not read without a bound"
        self.count += size
        return b" " * size


def chunked(stream: Any) -> Any:
    client = Client(raise_request_exception=False)
    return client.post(
        "/v1/things",
        content_type="application/json",
        CONTENT_LENGTH="",
        HTTP_TRANSFER_ENCODING="chunked",
        HTTP_AUTHORIZATION="Bearer acme",
        **{"wsgi.input": stream},
    )


def test_a_chunked_body_is_read_to_its_end() -> None:
    assert chunked(io.BytesIO(b'{"name":"a"}')).status_code == 201


def test_of_an_endless_body_no_more_than_the_limit_is_read() -> None:
    stream = Endless()
    assert code(chunked(stream)) == (413, "too_large")
    assert stream.count == BODY_BYTES_MAX + 1


def test_a_chunk_that_the_server_cannot_read_is_refused() -> None:
    class InvalidChunkSize(Exception):
        """As gunicorn's: no OSError, no ValueError."""

    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise InvalidChunkSize

    assert code(chunked(Broken())) == (400, "invalid")


def test_a_body_that_ends_early_is_refused() -> None:
    environ: dict[str, Any] = {"CONTENT_LENGTH": "500", "wsgi.input": io.BytesIO(b'{"name":"a"}')}
    response = call(body=GOOD, **environ)
    assert code(response) == (400, "invalid")


def test_an_all_optional_body_may_be_empty() -> None:
    assert call(url="/v1/things/1/poke").json() == {"n": 3}
    assert call(url="/v1/things/1/poke", media_type="").json() == {"n": 3}
    assert code(call(url="/v1/things/1/poke", body=b" ")) == (400, "invalid")
    assert code(call(body=b"", media_type="")) == (400, "invalid")


def test_errors_of_body_and_query_come_together() -> None:
    response = call(url="/v1/things?n=9&x=1", body=b'{"name":1}')
    assert sorted(error["pointer"] for error in response.json()["errors"]) == ["/n", "/name", "/x"]


def test_a_payload_over_its_own_limit_is_too_large() -> None:
    assert code(call(body={"name": 1, "payload": "x" * 100})) == (413, "too_large")


@pytest.mark.parametrize("url", ["/v1/things?", "/v1/things?n=1", "/v1/things?n=%31"])
def test_known_query_parameters_pass(url: str) -> None:
    assert call(url=url, body=GOOD).status_code == 201


@pytest.mark.parametrize(
    "url", ["/v1/things?n=%ff", "/v1/things?n=%00", "/v1/things?%ff=1", "/v1/things?n=1&n=1"]
)
def test_bad_bytes_in_a_query_are_invalid(url: str) -> None:
    assert code(call(url=url, body=GOOD)) == (400, "invalid")


def test_too_many_query_parameters_are_invalid() -> None:
    url = "/v1/things/1?" + "&".join(f"a{n}=1" for n in range(2_000))
    assert code(call("GET", url)) == (400, "invalid")


def test_a_tenants_token_must_not_name_a_tenant() -> None:
    assert code(call(body=GOOD, HTTP_JOBSPLATFORM_TENANT="acme")) == (400, "invalid")


def test_a_fleet_token_acts_for_the_tenant_that_it_names() -> None:
    assert call(body=GOOD, token="fleet", HTTP_JOBSPLATFORM_TENANT="acme").json()["tenant"] == "acme"
    assert code(call(body=GOOD, token="fleet", HTTP_JOBSPLATFORM_TENANT="gone")) == (400, "tenant_required")
    assert call("GET", "/v1/things/1", token="fleet").json()["tenant"] is None


def test_a_suspended_tenant_may_still_read() -> None:
    assert call("GET", "/v1/things/1", token="idle").status_code == 200


def test_a_payload_needs_a_scope_of_its_own() -> None:
    assert code(call("GET", "/v1/things/1?include=payload")) == (403, "insufficient_scope")
    assert code(call("GET", "/v1/things/1?include=other")) == (400, "invalid")


def test_a_route_without_a_row_serves_nobody() -> None:
    assert code(call("GET", "/v1/unlisted")) == (403, "insufficient_scope")


def test_an_idempotency_key_is_taken_as_utf8_in_nfc() -> None:
    assert (
        call(body=GOOD, HTTP_IDEMPOTENCY_KEY="cafe\u0301".encode().decode("latin-1")).json()["key"] == "café"
    )
    assert code(call(body=GOOD, HTTP_IDEMPOTENCY_KEY="\xff")) == (400, "invalid")
    assert code(call(body=GOOD, HTTP_IDEMPOTENCY_KEY="a" * 256)) == (400, "invalid")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_refused_by_name(method: str) -> None:
    response = call(method, body=b"")
    assert code(response) == (405, "method_not_allowed")
    assert response["Allow"] == "POST"


def test_head_is_answered_like_get() -> None:
    response = call("HEAD", "/v1/things/1")
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(
    "url", ["/", "/v1", "/v1/things/", "/v1/nothing", "/v1/things/1/2", "/v1/%00", "/%ff"]
)
def test_unknown_routes_are_problems_too(url: str) -> None:
    assert code(call("GET", url)) == (404, "not_found")


def test_pages_for_people_keep_html_errors() -> None:
    response = call("GET", "/admin/gone")
    assert response.status_code == 404
    assert response["Content-Type"].startswith("text/html")


def test_a_foreign_host_is_refused_without_a_page() -> None:
    assert code(call(body=GOOD, HTTP_HOST="evil.example")) == (400, "invalid")


@pytest.mark.parametrize("sent", ["abc-1", "x" * 100, "~!@#"])
def test_a_request_id_is_taken_in_and_given_back(sent: str) -> None:
    assert call(body=GOOD, HTTP_X_REQUEST_ID=sent)["X-Request-ID"] == sent


@pytest.mark.parametrize("sent", ["", "x" * 101, "a b", "a\nb", "é", "a\x7f"])
def test_another_request_id_is_replaced(sent: str) -> None:
    given = call(body=GOOD, HTTP_X_REQUEST_ID=sent)["X-Request-ID"]
    assert given != sent
    assert len(given) == 32


@pytest.mark.parametrize(
    "url", ["/v1/things/1", "/v1/nothing", "/admin/page", "/admin/gone", "/static/none.js"]
)
def test_every_answer_carries_security_headers(url: str) -> None:
    response = call("GET", url)
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]
    assert "unsafe" not in response["Content-Security-Policy"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Referrer-Policy"] == "same-origin"
    assert response["Cross-Origin-Opener-Policy"] == "same-origin"
    assert response["Cache-Control"] == "no-store"


def test_calls_of_the_api_pass_by_what_is_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: object, request: object) -> None:
        raise NotFound

    monkeypatch.setattr(SessionMiddleware, "process_request", stop)
    assert call(body=GOOD).status_code == 201
    assert code(call("GET", "/v1/nothing")) == (404, "not_found")
    with pytest.raises(NotFound):
        Client().get("/admin/page")


def test_middleware_that_looks_at_views_sees_those_of_the_api(settings: Any) -> None:
    settings.MIDDLEWARE = [f"{__name__}.Looks", *settings.MIDDLEWARE]
    assert call(body=GOOD)["X-Route"] == "v1/things"


class Looks:
    """What a tracer does to name its spans."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> HttpResponse:
        response: HttpResponse = self.get_response(request)
        response["X-Route"] = request.seen
        return response

    def process_view(self, request: Any, *view: Any) -> None:
        request.seen = request.resolver_match.route


def test_cookies_mean_nothing_to_the_api() -> None:
    client = Client()
    client.cookies["sessionid"] = "x"
    response = client.get("/v1/things/1")
    assert code(response) == (401, "unauthenticated")
    assert response.cookies == {}


@pytest.mark.parametrize(
    ("address", "environ", "expected"),
    [
        ("127.0.0.1", {}, True),
        ("127.8.8.8", {}, True),
        ("::1", {}, True),
        ("10.0.0.1", {}, False),
        ("", {}, False),
        ("127.0.0.1", {"HTTP_X_FORWARDED_FOR": "127.0.0.1"}, False),
    ],
)
def test_a_proxys_request_is_not_local(
    rf: Any, address: str, environ: dict[str, str], expected: bool
) -> None:
    assert http.is_loopback(rf.get("/", REMOTE_ADDR=address, **environ)) is expected
