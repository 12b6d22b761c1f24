"""An executor as its keeper sees it: a child process with a channel, a board and a book of leases."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jobqueue.worker.board import Board, shared_file
from jobqueue.worker.channel import Channel, Closed, Word
from jobqueue.worker.leasebook import LeaseBook
from jobqueue.worker.options import WorkerOptions

PRIVATE_FLAG = "--executor"  # with name, two file descriptors, the keeper's process id and whether it is solo


class ExecutorProcess:
    """A started executor. Nothing of the keeper's is shared with it but two file descriptors."""

    def __init__(self, name: str, options: WorkerOptions, *, solo: bool = False) -> None:
        self.name = name
        self.started_at = time.monotonic()
        self.is_solo = solo
        self.is_leaving = False  # it said that it ends because it should
        self.is_silent = False  # its end of the channel is closed
        self.hung_looks = 0
        ours, theirs = socket.socketpair()
        with theirs, shared_file() as memory:
            self.board = Board(memory.fileno())
            descriptors = (theirs.fileno(), memory.fileno())
            # Popen executes a fresh interpreter: no thread, connection or lock of this process goes along.
            self._process = subprocess.Popen(
                [*_this_command(), *self._arguments(options, descriptors, solo)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
            )
        self.channel = Channel(ours)
        self.book = LeaseBook(self.board.states)

    def _arguments(self, options: WorkerOptions, descriptors: tuple[int, int], solo: bool) -> list[str]:
        private = ",".join(map(str, (self.name, *descriptors, os.getpid(), int(solo))))
        return [PRIVATE_FLAG, private, "--as", options.to_json()]

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it lives; a negative number names the signal that ended it."""
        return self._process.poll()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def hear(self) -> Iterator[tuple[Word, bytes]]:
        """What it has said; silence once it is gone."""
        try:
            yield from self.channel.receive()
        except Closed:
            self.is_silent = True

    def tell(self, word: Word, body: bytes) -> None:
        """Never waits; words to an executor that has gone are lost."""
        with suppress(Closed):
            self.channel.post(word, body)

    def flush(self) -> None:
        with suppress(Closed):
            self.channel.flush()

    def close(self) -> None:
        self.channel.close()


def _this_command() -> list[str]:
    """The command line up to `runworker`, in a new interpreter like this one."""
    script = Path(sys.argv[0])
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    entry = [str(script)] if script.name == "manage.py" and script.is_file() else ["-m", "django"]
    return [sys.executable, *flags, *entry, "runworker"]
