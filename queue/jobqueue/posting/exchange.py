"""One POST and its answer, bounded in bytes and in time, to an address that was chosen before.

The time bound is of the whole exchange: a receiver that sends a byte now and then gains nothing. No redirect is
followed and no proxy asked.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final

from jobqueue.posting.target import Target

ANSWER_BYTES_MAX: Final = 16 * 1024  # of an answer's body that is read


class NotSent(Exception):
    """Nothing of the request left this machine: the receiver cannot have acted."""


class NoAnswer(Exception):
    """The request was sent, at least in part, and no status came back: the receiver may have acted."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver said; header names are lower case. `is_cut`: its body had more than what was read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool


class _Pinned(HTTPConnection):
    """Connects to given addresses instead of asking for the name's; TLS still proves the name."""

    def __init__(
        self, target: Target, addresses: Sequence[str], end: float, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(target.host, target.port)
        self.default_port = 443 if target.scheme == "https" else 80  # left out of the Host header
        self._addresses = addresses
        self._end = end
        self._tls = tls
        self.wire: socket.socket | None = None  # stays known when `sock` is handed over to the answer

    def connect(self) -> None:
        failure: OSError = OSError("no address")
        for address in self._addresses:
            try:
                self.sock = socket.create_connection(
                    (address, self.port), max(0.001, self._end - time.monotonic())
                )
                break
            except OSError as error:
                failure = error
        else:
            raise failure
        self.wire = self.sock
        if self._tls is not None:
            shaking = self._tls.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.wire = self.sock = shaking
            shaking.do_handshake()


def post(
    target: Target,
    addresses: Sequence[str],
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send `body` and read the answer, its body up to ANSWER_BYTES_MAX, within `timeout_s` in all.

    `tls` replaces the machine's trust.

    Raises NotSent, NoAnswer.
    """
    context = (tls or ssl.create_default_context()) if target.scheme == "https" else None
    connection = _Pinned(target, addresses, time.monotonic() + timeout_s, context)
    try:
        with _ended_after(connection, timeout_s):
            try:
                connection.connect()
            except OSError as error:
                raise NotSent(f"the receiver cannot be reached: {_words(error)}") from None
            try:
                connection.request("POST", target.path, body, dict(headers))
                return _read(connection.getresponse())
            except (OSError, HTTPException, ValueError) as error:
                raise NoAnswer(f"the receiver's answer was lost: {_words(error)}") from None
    finally:
        connection.close()


def _read(response: HTTPResponse) -> Answer:
    """Once the status is there the receiver has spoken: a body that breaks off changes nothing of it."""
    headers = {name.lower(): value for name, value in response.getheaders()}
    body, is_cut = b"", True
    with suppress(OSError, HTTPException, ValueError):
        body = response.read(ANSWER_BYTES_MAX)
        is_cut = bool(response.length) or response.read(1) != b""
    return Answer(response.status, headers, body, is_cut)


@contextmanager
def _ended_after(connection: _Pinned, seconds: float) -> Iterator[None]:
    """Cut the connection at the end of the time: a socket's own time-out starts anew with each byte."""

    def cut() -> None:
        if connection.wire is not None:
            with suppress(OSError):
                # The plain socket's: TLS would first forget its state, under the hands of the reading thread.
                socket.socket.shutdown(connection.wire, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    return str(error) or type(error).__name__
