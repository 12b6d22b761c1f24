"""How many jobs an executor holds: enough that no thread waits, never more than 0.1 s of work."""

from __future__ import annotations

from jobqueue.limits import WORKER_CLAIM_LIMIT_MAX

BUFFER_S = 0.1  # work that may wait in the executor; more would be hoarding
SLOW_S = 0.1  # a handler that runs longer does not help to empty the buffer
MEMORY = 0.9  # weight that the past keeps for each job measured


class Pace:
    """Measures service time and answers how much to claim. Not thread-safe: the engine's thread owns it."""

    def __init__(self, concurrency: int, buffer_max: int = WORKER_CLAIM_LIMIT_MAX) -> None:
        self.concurrency = concurrency
        self.buffer_max = buffer_max
        self._mean_s: float | None = None
        self._allowed = concurrency  # doubles at most from claim to claim, so that a first guess does no harm

    def learn(self, count: int, total_s: float) -> None:
        """`count` jobs took `total_s` seconds of handler time together."""
        mean = total_s / count
        kept = MEMORY**count
        self._mean_s = mean if self._mean_s is None else kept * self._mean_s + (1 - kept) * mean

    def overestimated(self) -> None:
        """Buffered jobs had to wait too long: start again from one job a thread."""
        self._allowed = self.concurrency
        self._mean_s = None

    def wanted(self, *, queued: int, running: int, slow: int, room: int) -> int:
        """How many jobs to claim now, at most `room`. `slow` of the running ones have run for over 0.1 s."""
        free = self.concurrency - running - queued
        ahead = self._ahead(self.concurrency - slow)
        want = free if queued * 2 > ahead else max(free, ahead - queued)
        return max(0, min(want, room, self.buffer_max))

    def claimed(self, count: int) -> None:
        """A claim of `count` jobs worked out: the next may be twice as large."""
        if count >= self._allowed // 2:
            self._allowed = min(max(self._allowed, count) * 2, self.buffer_max)

    def _ahead(self, quick_threads: int) -> int:
        """Jobs that the threads which are not busy with a slow one get through in the buffer's time."""
        if self._mean_s is None:
            return 0
        ahead = quick_threads * BUFFER_S / max(self._mean_s, 1e-6)
        return int(min(ahead, self._allowed, self.buffer_max))
