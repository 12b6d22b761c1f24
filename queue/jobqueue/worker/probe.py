"""`GET /healthz` on loopback for `--probe-port`: 200 while the worker takes work, 503 when it is deaf."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEAF_S = 60.0  # without a successful poll (or a reason not to poll)
REQUEST_S = 5.0  # a client that is slower is dropped


class Probe:
    """Serves until the process ends. Raises OSError when the port is taken."""

    def __init__(self, port: int, poll_age_s: Callable[[], float]) -> None:
        handler = type("Handler", (_Handler,), {"poll_age_s": staticmethod(poll_age_s)})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
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
    timeout = REQUEST_S
    server_version = "jobsplatform"
    sys_version = ""
    poll_age_s: Callable[[], float]

    def do_GET(self) -> None:
        if self.path.split("?")[0] != "/healthz":
            return self._answer(404, {"status": "not_found"})
        age_s = self.poll_age_s()
        healthy = age_s <= DEAF_S
        self._answer(
            200 if healthy else 503,
            {"status": "ok" if healthy else "deaf", "last_poll_age_s": round(age_s, 3)},
        )

    do_HEAD = do_GET

    def _answer(self, status: int, document: dict[str, object]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes are no events."""
