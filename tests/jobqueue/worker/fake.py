"""A queue in memory with the worker's verbs, for tests of the engine that need no database."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from jobqueue import leases
from jobqueue.claiming import Lease
from jobqueue.worker.board import Board, shared_file
from jobqueue.worker.channel import Channel, Closed, Held, Word, unpack_held, unpack_places
from jobqueue.worker.context import JobContext
from jobqueue.worker.engine import Engine
from jobsplatform.errors import JobsPlatformError, StaleGeneration

T = TypeVar("T")
TOKEN = b"t" * 16


def make_lease(job_id: int = 1, kind: str = "noop", payload: str | None = "null", **changes: Any) -> Lease:
    now = datetime.now(UTC)
    fields: dict[str, Any] = {
        "job_id": job_id,
        "generation": 1,
        "attempt": 1,
        "token": TOKEN,
        "claimed_at": now,
        "expires_at": now + timedelta(seconds=30),
        "max_run_at": now + timedelta(hours=12),
        "queue_id": 1,
        "tenant_id": 1,
        "kind": kind,
        "priority": 2,
        "payload": payload,
        "payload_ref": None,
        "request_key": None,
        "deadline": None,
        "reconcile": False,
        "earlier_generations": [],
        "checkpoint": None,
        "redrive_generation": 0,
        "traceparent": None,
    }
    return Lease(**(fields | changes))


class FakeQueue:
    """Grants leases first in, first out, and remembers every call. `failures` are raised first."""

    def __init__(self) -> None:
        self.ready: deque[Lease] = deque()
        self.live: dict[int, Lease] = {}
        self.calls: dict[str, list[Any]] = {"complete": [], "fail": [], "release": [], "renew": []}
        self.claims: list[int] = []
        self.swept: list[str] = []
        self.failures: dict[str, deque[Exception | JobsPlatformError]] = {}
        self.delay_s = 0.0
        self.cancelled: set[int] = set()
        self.lock = threading.Lock()

    def add(self, count: int = 1, kind: str = "noop", first_id: int = 1, **changes: Any) -> None:
        self.ready.extend(make_lease(first_id + n, kind, **changes) for n in range(count))

    def done(self) -> int:
        return sum(len(self.calls[verb]) for verb in ("complete", "fail", "release"))

    def claim(self, limit: int) -> list[Lease]:
        self._fail("claim")
        self.claims.append(limit)
        with self.lock:
            taken = [self.ready.popleft() for _ in range(min(limit, len(self.ready)))]
            self.live.update((lease.job_id, lease) for lease in taken)
        return taken

    def claim_urgent(self, limit: int) -> list[Lease]:
        with self.lock:
            taken = [lease for lease in self.ready if lease.priority == 0][:limit]
            for lease in taken:
                self.ready.remove(lease)
            self.live.update((lease.job_id, lease) for lease in taken)
        return taken

    def renew(self, calls: Sequence[leases.Renew]) -> list[Any]:
        self._fail("renew")
        self.calls["renew"] += calls
        end = datetime.now(UTC) + timedelta(seconds=30)
        good = [leases.Renewed(end, call.job_id in self.cancelled) for call in calls]
        return [
            answer if call.job_id in self.live else StaleGeneration()
            for call, answer in zip(calls, good, strict=True)
        ]

    def complete(self, calls: Sequence[leases.Complete]) -> list[Any]:
        return self._end("complete", calls, lambda: leases.Completed(datetime.now(UTC)))

    def fail(self, calls: Sequence[leases.Fail]) -> list[Any]:
        return self._end("fail", calls, lambda: leases.Failed("scheduled", None, None))

    def release(self, calls: Sequence[leases.Release]) -> list[Any]:
        return self._end("release", calls, lambda: leases.Released("ready"))

    def release_unstarted(self, worker: str) -> int:
        self._fail("release_unstarted")
        self.swept.append(worker)
        return 0

    def queue_name(self, queue_id: int) -> str:
        return f"queue-{queue_id}"

    def tenant_slug(self, tenant_id: int) -> str:
        return f"tenant-{tenant_id}"

    def tidy(self) -> None: ...

    def forget_queries(self) -> None: ...

    def _end(self, verb: str, calls: Sequence[Any], answer: Callable[[], object]) -> list[Any]:
        self._fail(verb)
        answers: list[Any] = []
        for call in calls:
            if self.live.pop(call.job_id, None) is None:
                answers.append(StaleGeneration())
            else:
                self.calls[verb].append(call)
                answers.append(answer())
        return answers

    def _fail(self, verb: str) -> None:
        time.sleep(self.delay_s)
        waiting = self.failures.get(verb)
        if waiting:
            raise waiting.popleft()


class Rig:
    """An engine in a thread, with the test as its keeper."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch | None = None,
        handlers: dict[str, Callable[[JobContext], object]] | None = None,
        **options: Any,
    ) -> None:
        import socket

        self.queue = FakeQueue()
        self._stack = ExitStack()
        memory = self._stack.enter_context(shared_file())
        self.board = Board(memory.fileno())
        ours, theirs = socket.socketpair()
        self._sockets = (ours, theirs)
        self.channel = Channel(ours)
        self.held: dict[int, Held] = {}
        self.words: list[Word] = []
        known = {"noop": lambda job: None} | (handlers or {})
        self.engine = Engine(
            known, self.queue, Channel(theirs), self.board, **({"concurrency": 4, "grace_s": 5} | options)
        )
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.engine.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Rig:
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.engine.request_drain()
        self.engine._rouse()
        self._sockets[0].close()
        self.thread.join(5)
        self._sockets[1].close()
        self._stack.close()

    def hear(self) -> None:
        try:
            for word, body in self.channel.receive():
                self.words.append(word)
                if word is Word.HELD:
                    self.held.update((one.place, one) for one in unpack_held(body)[1])
                elif word is Word.DROPPED:
                    for place in unpack_places(body):
                        del self.held[place]
        except Closed:
            pass

    def place_of(self, job_id: int) -> Held:
        self.hear()
        return next(one for one in self.held.values() if one.job_id == job_id)

    def until(self, condition: Callable[[], object], timeout_s: float = 30) -> None:
        def heard() -> object:
            self.hear()
            return condition()

        until(heard, timeout_s)


def until(condition: Callable[[], object], timeout_s: float = 30) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)
