"""Memory that an executor shares with its keeper: what runs at this instant, and whether the executor lives.

One byte a place (a place is a lease that the executor holds), written by the thread that runs the handler:
when the executor is killed, the keeper reads from it which jobs were running, to the instruction. No message
could say that.
"""

from __future__ import annotations

import mmap
import struct
import tempfile
import time
from typing import BinaryIO

PLACES = 2_048  # leases that an executor may hold: buffered, running and not yet settled

WAITING, RUNNING, FINISHED = 0, 1, 2

_STAMPS = struct.Struct("=dd")  # monotonic seconds: the last turn of the engine's loop, its last good poll
_STATES_AT = 64


class Board:
    """A view of the shared memory; both sides open the same file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _STATES_AT + PLACES)
        self._view = memoryview(self._memory)
        self.states = self._view[_STATES_AT:]

    def stamp_turn(self, now: float) -> None:
        """The engine's loop went round."""
        self._view[0:8] = struct.pack("=d", now)

    def stamp_poll(self, now: float) -> None:
        """The engine asked the queue for work and got an answer, or had no free slot to ask for."""
        self._view[8:16] = struct.pack("=d", now)

    @property
    def turned_at(self) -> float:
        return float(_STAMPS.unpack_from(self._memory)[0])

    @property
    def polled_at(self) -> float:
        return float(_STAMPS.unpack_from(self._memory)[1])

    def running(self) -> bool:
        """Is any handler running?"""
        return self._memory.find(bytes([RUNNING]), _STATES_AT) >= 0

    def close(self) -> None:
        self.states.release()
        self._view.release()
        self._memory.close()


def shared_file() -> BinaryIO:
    """An unnamed file of the board's size, with both stamps at now; its descriptor goes to the executor."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    file.write(_STAMPS.pack(time.monotonic(), time.monotonic()).ljust(_STATES_AT + PLACES, b"\0"))
    file.flush()
    return file
