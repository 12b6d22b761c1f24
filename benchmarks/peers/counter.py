"""What every job's body calls: counts it where the runner can read along, without a word to the database.

One small mapped file for each thread of a worker: jobs, first and last instant (nanoseconds since the epoch), three
unsigned 64-bit numbers. Waits of jobs that carry the instant of their sending lie beside it, eight bytes each. Standard
library only: it is imported in the environments of peers.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import BinaryIO

COUNTS = struct.Struct("=QQQ")
WAIT = struct.Struct("=Q")


class _Counter:
    """Of one thread: without a lock, which would be fought for by the threads of some peers and not of others."""

    def __init__(self, folder: Path) -> None:
        self.pid = os.getpid()
        path = folder / f"{self.pid}-{next(_numbers)}.counts"  # identifiers of threads are used again
        path.write_bytes(bytes(COUNTS.size))
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), COUNTS.size)
        self.waits: BinaryIO = path.with_suffix(".waits").open("ab", buffering=0)
        self.jobs, self.first = 0, time.time_ns()


_own = threading.local()
_numbers = itertools.count()


def tick(sent_ns: int = 0) -> None:
    """A job's body runs; `sent_ns` is when it was sent, 0 where nobody asks."""
    now = time.time_ns()
    counter: _Counter | None = getattr(_own, "counter", None)
    if counter is None or counter.pid != os.getpid():  # the thread's first job, or the first after a fork
        counter = _own.counter = _Counter(Path(os.environ["BENCH_RUN_DIR"]))
    counter.jobs += 1
    COUNTS.pack_into(counter.memory, 0, counter.jobs, counter.first, now)
    if sent_ns:
        counter.waits.write(WAIT.pack(max(0, now - sent_ns)))


def read(folder: Path) -> tuple[int, int, int]:
    """Jobs, first and last instant over all workers of a run; zeros before the first job."""
    found = [
        COUNTS.unpack(raw) for path in folder.glob("*.counts") if len(raw := path.read_bytes()) == COUNTS.size
    ]
    found = [one for one in found if one[0]]
    if not found:
        return 0, 0, 0
    return sum(one[0] for one in found), min(one[1] for one in found), max(one[2] for one in found)


def waits_ms(folder: Path) -> list[float]:
    """How long each job waited from its sending, in milliseconds, shortest first."""
    whole = [
        raw[: len(raw) // WAIT.size * WAIT.size]
        for path in folder.glob("*.waits")
        if (raw := path.read_bytes())
    ]
    return sorted(wait / 1e6 for raw in whole for (wait,) in WAIT.iter_unpack(raw))
