"""What `--probe-port` serves beside a worker or a loop: `/healthz` for who restarts it, `/metrics` for this machine.

A database that is away is no reason to restart a process, which waits for it: `/healthz` tells whether the process does
its part, and says 503 only when it has been silent for `SILENT_SECONDS`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

from jobsplatform import events

SILENT_SECONDS: Final = 60.0
REQUEST_SECONDS: Final = 5.0  # a client that is slower is dropped
LOOPBACK: Final = "127.0.0.1"


class Probe:
    """Serves until the process ends. `silent_s` tells for how long nothing has been done, in a field called `name`.

    Raises OSError when the port is taken.
    """

    def __init__(self, port: int, name: str, silent_s: Callable[[], float], *, host: str = LOOPBACK) -> None:
        asked = {"field": name, "silent_s": staticmethod(silent_s)}
        self._server = ThreadingHTTPServer((host, port), type("Handler", (_Handler,), asked))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="probe", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server_version = "jobsplatform"
    sys_version = ""
    field: str
    silent_s: Callable[[], float]

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/healthz":
            silent_s = self.silent_s()
            is_well = silent_s <= SILENT_SECONDS
            told = {"status": "ok" if is_well else "deaf", self.field: round(silent_s, 3)}
            self._answer(200 if is_well else 503, json.dumps(told).encode())
        elif path == "/metrics" and ip_address(self.client_address[0]).is_loopback:
            self._answer(200, events.exposition(), CONTENT_TYPE_LATEST)
        else:
            self._answer(404, b'{"status": "not_found"}')

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, media_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes are no events."""
