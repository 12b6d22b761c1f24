"""A TCP proxy before PostgreSQL that cuts a connection at one chosen commit, before it or before its reply.

It reads the frontend/backend protocol's frames: an implicit transaction commits when the server handles the
Sync (or the simple Query) that ends it, and says so by ReadyForQuery.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field

BEFORE, AFTER = "before", "after"
_CHUNK = 65_536


@dataclass
class Link:
    """One connection through the proxy."""

    client: socket.socket
    server: socket.socket
    is_chosen: bool = False  # the statement has passed; its commit comes next
    sent_syncs: int = 0
    ready_replies: int = 0
    cut_at: int = 0  # the ReadyForQuery that must not reach the client
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_over: threading.Event = field(default_factory=threading.Event)
    prepared: dict[bytes, bytes] = field(default_factory=dict)  # name → its Parse frame

    def statement(self, frame: bytes) -> bytes:
        """The statement that a frame runs, as far as it does: what was prepared runs when it is bound."""
        kind, names = frame[:1], frame[5:].split(b"\0", 2)
        if kind == b"P" and names[0]:
            self.prepared[names[0]] = frame
            return b""
        if kind == b"B":
            return self.prepared.get(names[1], b"")
        return frame if kind in (b"P", b"Q") else b""

    def cut(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class CommitCutter:
    """Listens on loopback; `arm` chooses the next statement that contains `words`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._words = b""
        self._when = AFTER
        self._lock = threading.Lock()
        self.links: list[Link] = []
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def arm(self, words: bytes, when: str) -> None:
        """Cut once: at the commit of the next statement with these words."""
        with self._lock:
            self._words, self._when = words, when

    def disarm(self) -> None:
        self.arm(b"", AFTER)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self.links:
            link.cut()
            link.is_over.wait(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            link = Link(client, socket.create_connection(self._target))
            self.links.append(link)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: Link) -> None:
        with link.client, link.server:
            replies = threading.Thread(target=self._reply, args=(link,), daemon=True)
            replies.start()
            self._forward(link)
            replies.join()
        link.is_over.set()

    # From the client

    def _forward(self, link: Link) -> None:
        held, is_started = b"", False
        with suppress(OSError):
            while data := link.client.recv(_CHUNK):
                held += data
                while frame := _frame(held, is_started=is_started):
                    held, is_started = held[len(frame) :], True
                    if not self._pass_on(link, frame):
                        return
        link.cut()

    def _pass_on(self, link: Link, frame: bytes) -> bool:
        """Send one frame to the server; False when the connection was cut instead."""
        kind = frame[:1]
        if self._is_chosen(link.statement(frame)):
            link.is_chosen = True
        ends_transaction = kind in (b"S", b"Q")
        if link.is_chosen and ends_transaction:
            if self._when == BEFORE:
                self._cut(link)
                return False
            with link.lock:
                link.cut_at = link.sent_syncs + 1
        if ends_transaction:
            link.sent_syncs += 1
        link.server.sendall(frame)
        return True

    def _is_chosen(self, statement: bytes) -> bool:
        with self._lock:
            if not self._words or self._words not in statement:
                return False
            self._words = b""
            return True

    def _cut(self, link: Link) -> None:
        self.cuts += 1
        link.cut()

    # From the server

    def _reply(self, link: Link) -> None:
        held = b""
        with suppress(OSError):
            while data := link.server.recv(_CHUNK):
                held += data
                while frame := _frame(held, is_started=True):
                    held = held[len(frame) :]
                    if frame[:1] == b"Z":
                        link.ready_replies += 1
                    with link.lock:
                        doomed = link.cut_at
                    # the server greets with one ReadyForQuery before any Sync
                    if doomed and link.ready_replies - 1 == doomed:
                        self._cut(link)
                        return
                    if not doomed or link.ready_replies - 1 < doomed - 1:
                        link.client.sendall(frame)
        link.cut()


def _frame(data: bytes, *, is_started: bool) -> bytes:
    """The first whole frame; empty while there is none. The very first of a client has no type byte."""
    head = 1 if is_started else 0
    if len(data) < head + 4:
        return b""
    size: int = head + struct.unpack("!i", data[head : head + 4])[0]
    return data[:size] if len(data) >= size else b""
