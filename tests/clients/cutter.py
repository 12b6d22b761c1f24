"""An HTTP proxy that loses requests, or their answers, or is away, as a test says."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

PASS, BEFORE, AFTER = "pass", "before", "after"

Choice = Callable[[str, str], str]  # method and path → PASS, BEFORE or AFTER
Change = Callable[[str, bytes], bytes]  # path and body of an answer → what the client sees


def say_give_back(path: str, content: bytes) -> bytes:
    """What a platform says in its answers to heartbeats while urgent work waits."""
    return re.sub(rb'("give_back": ?)false', rb"\1true", content) if path.endswith("/settle") else content


class ReplyCutter:
    """Listens on loopback. BEFORE: the platform never sees the request; AFTER: it has answered, and nobody hears."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.choose: Choice = lambda method, path: PASS
        self.change: Change = lambda path, content: content
        self.is_away = False  # every connection is reset as soon as it is made
        self.calls: list[str] = []
        self.refused = 0  # connections while it was away
        self.cuts = {BEFORE: 0, AFTER: 0}
        self.lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ReplyCutter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, cutter: ReplyCutter) -> None:
        self.cutter = cutter
        super().__init__(("127.0.0.1", 0), _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if not self.cutter.is_away:
            return True
        with self.cutter.lock:
            self.cutter.refused += 1
        _reset(request)
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:  # the name that the standard library calls
        cutter = self.server.cutter
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if cutter.is_away:  # on a connection from before
            with cutter.lock:
                cutter.refused += 1
            return self._cut()
        with cutter.lock:
            cutter.calls.append(f"{self.command} {self.path}")
            chosen = cutter.choose(self.command, self.path)
            if chosen != PASS:
                cutter.cuts[chosen] += 1
        if chosen == BEFORE:
            return self._cut()
        self._pass_on(body, is_cut=chosen == AFTER)
        return None

    do_GET = do_POST

    def _pass_on(self, body: bytes, *, is_cut: bool) -> None:
        connection = HTTPConnection("127.0.0.1", self.server.cutter.target_port, timeout=60)
        kept = {n: v for n, v in self.headers.items() if n.lower() not in ("host", "connection")}
        try:
            connection.request(self.command, self.path, body or None, kept)
            reply = connection.getresponse()
            content = self.server.cutter.change(self.path, reply.read())
        finally:
            connection.close()
        if is_cut:
            return self._cut()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        return None

    def _cut(self) -> None:
        self.close_connection = True
        _reset(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Not on the test's terminal."""


def _reset(connection: socket.socket) -> None:
    """End a connection so that the other side is told it was lost."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
