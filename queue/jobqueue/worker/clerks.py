"""Threads that talk to the database for the keeper, or for the engine, so that its own thread need not wait for one.

A call that is stuck (a slow or silent database) must not hold up the next of the keeper: it has a few clerks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

CLERKS = 4
CLERKS_MAX = 16
SILENT_S = 20.0  # a clerk without an answer for so long may never get one: another takes over

Answer = object | BaseException
Task = tuple[Callable[[], object], Callable[[Answer], None]]


class Clerks:
    """Runs calls in daemon threads; what becomes of them is told in the thread that calls `deliver`."""

    def __init__(self, *, rouse: Callable[[], None], tidy: Callable[[], None], size: int = CLERKS) -> None:
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._answers: deque[tuple[Callable[[Answer], None], Answer]] = deque()
        self._busy_since: list[float | None] = []
        self._rouse = rouse
        self._tidy = tidy
        self._size = size
        self.open = 0  # calls whose answer has not been delivered

    def start(self) -> None:
        for _ in range(self._size):
            self._hire()

    def submit(self, call: Callable[[], object], done: Callable[[Answer], None]) -> None:
        """Run `call` soon; `done` gets what it returned or raised, at a later `deliver`."""
        self.open += 1
        self._tasks.put((call, done))

    @property
    def has_news(self) -> bool:
        """Whether `deliver` has something to tell."""
        return bool(self._answers)

    def deliver(self) -> None:
        while self._answers:
            done, answer = self._answers.popleft()
            self.open -= 1
            done(answer)

    def reinforce(self, now: float) -> None:
        """Hire another when all are stuck, up to a bound."""
        stuck = sum(since is not None and now - since > SILENT_S for since in self._busy_since)
        if stuck == len(self._busy_since) < CLERKS_MAX:
            self._hire()

    def _hire(self) -> None:
        number = len(self._busy_since)
        self._busy_since.append(None)
        threading.Thread(target=self._work, args=(number,), name=f"clerk-{number}", daemon=True).start()

    def _work(self, number: int) -> None:
        while True:
            call, done = self._tasks.get()
            self._busy_since[number] = time.monotonic()
            answer: Answer
            try:
                answer = call()
            except Exception as error:
                answer = error
            with suppress(Exception):  # a connection that fails to close is gone all the same
                self._tidy()
            self._busy_since[number] = None
            self._answers.append((done, answer))
            self._rouse()
