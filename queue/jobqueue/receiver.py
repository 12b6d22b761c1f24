"""The demo's receiver: a loopback HTTP endpoint that acts once per Idempotency-Key, however often it is called."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from typing import Final

from jobqueue.demo import receiver_file

KEYS_MAX: Final = 10_000  # that it remembers
BODY_BYTES_MAX: Final = 256 * 1024


class Effects:
    """What was done, by key: the first call acts, later ones are only counted."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def call(self, key: str) -> int:
        """How often this key has been called, this call included."""
        with self._lock:
            self._calls[key] = self._calls.get(key, 0) + 1
            self._calls.move_to_end(key)
            if len(self._calls) > KEYS_MAX:
                self._calls.popitem(last=False)
            return self._calls[key]


class Receiver(ThreadingHTTPServer):
    """Listens on a free port; the path is random, so that only who reads the address file meets it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.effects = Effects()
        self.path = f"/{token_urlsafe(12)}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{self.path}"

    def start(self) -> None:
        """Serve in a thread, and write the address for the workers of this machine."""
        threading.Thread(target=self.serve_forever, name="receiver", daemon=True).start()
        file = receiver_file()
        fresh = file.with_suffix(".new")
        fresh.touch(0o600)
        fresh.write_text(self.url, "ascii")
        fresh.replace(file)


class _Call(BaseHTTPRequestHandler):
    server: Receiver
    timeout = 5

    def do_POST(self) -> None:
        key = self.headers.get("Idempotency-Key", "")
        length = self.headers.get("Content-Length", "0")
        if self.path != self.server.path or not key or not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self.send_error(404)
            return
        self.rfile.read(int(length))
        calls = self.server.effects.call(key)
        body = json.dumps({"operation_id": key, "effects": 1, "calls": calls}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the job's attempts tell the story."""
