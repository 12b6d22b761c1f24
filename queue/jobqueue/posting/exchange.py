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


class _Final(HTTPResponse):
    """The final answer: `102 Processing` and `103 Early Hints` go before it, and say nothing of how it ends."""

    def begin(self) -> None:
        super().begin()
        while self.status < 200:
            self.headers = None  # type: ignore[assignment]  # else `begin` takes itself for done
            super().begin()


class _Pinned(HTTPConnection):
    """Connects to given addresses instead of asking for the name's; TLS still proves the name."""

    response_class = _Final

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
        self._hold(self._reached())
        if self._tls is not None:
            shaking = self._tls.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            self._hold(shaking)
            shaking.do_handshake()

    def _reached(self) -> socket.socket:
        """Of the time that is left each address gets its share: one that swallows what is sent leaves the next some."""
        failure: OSError = OSError("no address")
        for tried, address in enumerate(self._addresses):
            share_s = (self._end - time.monotonic()) / (len(self._addresses) - tried)
            try:
                reached = socket.create_connection((address, self.port), max(0.001, share_s))
            except OSError as error:
                failure = error
                continue
            reached.settimeout(max(0.001, self._end - time.monotonic()))
            return reached
        raise failure

    def _hold(self, wire: socket.socket) -> None:
        """Let the end of the time find the socket; an end that came before found none to cut. Raises TimeoutError."""
        self.wire = self.sock = wire
        if time.monotonic() >= self._end:
            raise TimeoutError


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
    length = response.length
    most = ANSWER_BYTES_MAX if length is None else min(length, ANSWER_BYTES_MAX)
    body, is_whole = b"", False
    with suppress(OSError, HTTPException, ValueError):
        # `read` takes a chunk that says it has -1 bytes for all there is, without a bound; `read1` looks at a buffer.
        while len(body) < most and (piece := response.read1(most - len(body))):
            body += piece
        is_whole = response.read1(1) == b"" if length is None else len(body) == length
    return Answer(response.status, headers, body[:ANSWER_BYTES_MAX], not is_whole)


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
