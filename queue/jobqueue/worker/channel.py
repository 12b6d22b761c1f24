"""The socket between a keeper and one executor: small binary frames, in order.

Executor → keeper: HELD before any of these leases can start, DROPPED when settled or lost, ISOLATE to hand on a
suspect's lease, LEAVING before a wanted exit. Keeper → executor: what the renewals found (CANCELLED, GIVE_BACK,
ENDING, LOST), RUN with an isolated lease, and DRAIN.
"""

from __future__ import annotations

import enum
import select
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_HEAD = struct.Struct("=BI")  # kind, bytes that follow
_HELD = struct.Struct("=Iqq16sdd")
_PLACE = struct.Struct("=I")
_NOTE = struct.Struct("=Iqq")
_INSTANT = struct.Struct("=d")

READ_BYTES = 256 * 1024
SEND_WAIT_S = (
    10.0  # a keeper never waits for a database, so one that does not read for so long is dead or stopped
)


class Word(enum.IntEnum):
    HELD = 1
    DROPPED = 2
    LEAVING = 3
    CANCELLED = 4
    GIVE_BACK = 5
    ENDING = 6
    LOST = 7
    DRAIN = 8
    ISOLATE = 10
    RUN = 11


class Held(NamedTuple):
    """A lease as the keeper must know it. `claimed_at` is epoch seconds by the database's clock."""

    place: int
    job_id: int
    generation: int
    token: bytes
    claimed_at: float
    lease_s: float


class Note(NamedTuple):
    """Which lease a keeper's word is about; a place alone could have changed hands meanwhile."""

    place: int
    job_id: int
    generation: int


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """One end. Frames are never split for the reader and never lost while both ends live."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._inbox = bytearray()
        self._outbox = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def post(self, word: Word, body: bytes = b"") -> None:
        """Send as far as possible now; the rest leaves with the next `flush`. Raises Closed."""
        self._outbox += _HEAD.pack(word, len(body)) + body
        self.flush()

    def flush(self) -> None:
        """Send what is left, as far as the other side takes it. Raises Closed."""
        while self._outbox:
            try:
                sent = self._socket.send(self._outbox)
            except BlockingIOError:
                return
            except OSError as error:
                raise Closed from error
            del self._outbox[:sent]

    def send(self, word: Word, body: bytes = b"") -> None:
        """Send all of it, waiting for the other side. Raises Closed when it does not read for 10 s."""
        self.post(word, body)
        while self._outbox:
            _, writable, _ = select.select([], [self._socket], [], SEND_WAIT_S)
            if not writable:
                raise Closed
            self.flush()

    def receive(self) -> Iterator[tuple[Word, bytes]]:
        """Every whole frame that has arrived, without waiting. Raises Closed after the very last one."""
        ended = self._read()
        start = 0
        while len(self._inbox) - start >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._inbox, start)
            end = start + _HEAD.size + size
            if len(self._inbox) < end:
                break
            body = bytes(self._inbox[start + _HEAD.size : end])
            start = end
            yield Word(kind), body
        del self._inbox[:start]
        if ended:
            raise Closed

    def _read(self) -> bool:
        """Take in what the socket has; True at the end of the stream."""
        while True:
            try:
                chunk = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not chunk:
                return True
            self._inbox += chunk


def pack_held(taken_at: float, leases: Iterable[Held]) -> bytes:
    return _INSTANT.pack(taken_at) + b"".join([_HELD.pack(*held) for held in leases])


def unpack_held(body: bytes) -> tuple[float, list[Held]]:
    (taken_at,) = _INSTANT.unpack_from(body)
    return taken_at, [Held._make(fields) for fields in _HELD.iter_unpack(body[_INSTANT.size :])]


def pack_places(places: Iterable[int]) -> bytes:
    return b"".join([_PLACE.pack(place) for place in places])


def unpack_places(body: bytes) -> list[int]:
    return [place for (place,) in _PLACE.iter_unpack(body)]


def pack_notes(notes: Iterable[Note]) -> bytes:
    return b"".join([_NOTE.pack(*note) for note in notes])


def unpack_notes(body: bytes) -> list[Note]:
    return [Note._make(fields) for fields in _NOTE.iter_unpack(body)]


def pack_isolated(taken_at: float, held: Held, text: str) -> bytes:
    """A lease on its way to another process: what the keeper must know, then the lease as text."""
    return pack_held(taken_at, [held]) + text.encode()


def unpack_isolated(body: bytes) -> tuple[float, Held]:
    taken_at, [held] = unpack_held(body[: _INSTANT.size + _HELD.size])
    return taken_at, held


def isolated_text(body: bytes) -> str:
    return body[_INSTANT.size + _HELD.size :].decode()


def pack_instant(monotonic_s: float) -> bytes:
    return _INSTANT.pack(monotonic_s)


def unpack_instant(body: bytes) -> float:
    (instant,) = _INSTANT.unpack(body)
    return float(instant)
