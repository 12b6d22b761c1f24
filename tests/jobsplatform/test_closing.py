"""Closing the line after a refused body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from jobsplatform.closing import StartResponse, closing


class ServerResponse:
    """What gunicorn hands to an application, as far as it matters here."""

    def __init__(self) -> None:
        self.must_close = False
        self.started: tuple[Any, ...] = ()

    def force_close(self) -> None:
        self.must_close = True

    def start_response(self, *args: Any) -> str:
        self.started = args
        return "write"


@pytest.mark.parametrize(("value", "closes"), [("close", True), ("keep-alive", False)])
def test_the_wish_to_close_reaches_the_server(value: str, closes: bool) -> None:
    def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        assert start_response("413 Too Large", [("Connection", value)]) == "write"
        return [b""]

    server = ServerResponse()
    closing(application)({}, server.start_response)
    assert server.must_close is closes
    assert server.started == ("413 Too Large", [("Connection", value)])


def test_another_server_is_left_alone() -> None:
    def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        start_response("413 Too Large", [("Connection", "close")])
        return [b"x"]

    assert closing(application)({}, lambda *args: None) == [b"x"]
