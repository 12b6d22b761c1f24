"""`receiver`: a server on loopback that answers each path in its own, often hostile, way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

Talk = Callable[[socket.socket], None]


@dataclass
class Receiver:
    """`talk` is what it does with a connection once the request is read; `heard` are the requests."""

    port: int
    talk: Talk = lambda connection: None
    heard: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    def answers(self, status: int, *headers: str, body: bytes = b"{}") -> None:
        head = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(body)}", *headers, "", ""]
        self.talk = lambda connection: connection.sendall("\r\n".join(head).encode() + body)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Receiver(server.getsockname()[1])
        threading.Thread(target=_serve, args=(server, made), daemon=True).start()
        yield made
        server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, made: Receiver) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_meet, args=(connection, made), daemon=True).start()


def _meet(connection: socket.socket, made: Receiver) -> None:
    with connection, suppress(OSError):
        made.heard.append(read_request(connection))
        made.talk(connection)


def read_request(connection: socket.socket) -> bytes:
    text = b""
    while b"\r\n\r\n" not in text:
        if not (more := connection.recv(65_536)):
            return text
        text += more
    head, _, body = text.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.splitlines() if line.lower().startswith(b"content-length")
    ]
    while len(body) < int(lengths[0]):
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body
