"""Calls of the API by the standard library: what is repeated, what is refused, where a token goes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from jobqueue.tasks.transport import Api
from jobsplatform.errors import QuotaExceeded, Unavailable, UnknownOutcome


class Answers(HTTPServer):
    """Gives one answer after another: (status, headers, members)."""

    def __init__(self, *answers: tuple[int, dict[str, str], Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.seen: list[tuple[str, str | None]] = []
        self.api = Api(f"http://127.0.0.1:{self.server_port}", "t", patience_s=20)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        status, headers, members = self.server.answers.pop(0)
        data = json.dumps(members).encode()
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def answers() -> Iterator[Any]:
    servers: list[Answers] = []

    def serve(*given: tuple[int, dict[str, str], Any]) -> Answers:
        servers.append(Answers(*given))
        return servers[-1]

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_503_is_asked_again(answers: Any) -> None:
    server = answers((503, {"Retry-After": "0"}, {"code": "unavailable"}), (200, {}, {"a": 1}))
    assert server.api.get("/x") == {"a": 1}


def test_a_redirect_is_not_followed(answers: Any) -> None:
    """The token belongs to one host."""
    server = answers((302, {"Location": "http://127.0.0.1:1/"}, {}))
    server.api._patience_s = 0
    with pytest.raises(Unavailable, match="302"):
        server.api.get("/x")
    assert len(server.seen) == 1


def test_a_refusal_is_not_repeated(answers: Any) -> None:
    server = answers((429, {"Retry-After": "7"}, {"code": "quota_exceeded", "detail": "full"}))
    with pytest.raises(QuotaExceeded, match="full") as refused:
        server.api.get("/x")
    assert (refused.value.retry_after, len(server.seen)) == (7, 1)


def test_an_answer_that_is_no_json_is_no_answer(answers: Any) -> None:
    server = answers((200, {}, ["a", "list"]))
    server.api._patience_s = 0
    with pytest.raises(Unavailable):
        server.api.get("/x")


def test_a_host_that_is_away_is_told_after_the_patience() -> None:
    api = Api("http://127.0.0.1:1", "t", patience_s=0)
    with pytest.raises(Unavailable):
        api.get("/x")
    with pytest.raises(UnknownOutcome):
        api.post("/x", "{}")


@pytest.mark.parametrize("url", ["", "ftp://host", "host:80", "https://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        Api(url, "t")
