"""The worker for threads: one claims, one renews, and `concurrency` of them run handlers."""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from jobsplatform_client import tracing
from jobsplatform_client.client import Client
from jobsplatform_client.worker.book import Held
from jobsplatform_client.worker.context import JobContext
from jobsplatform_client.worker.desk import (
    BEAT_S,
    NO_RECONCILER,
    Complete,
    Desk,
    Options,
    Registry,
    Verdict,
    log,
    settled_by,
    verdict_of,
)

Handler = Callable[[JobContext], object]

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class _Drained(Exception):
    """A wait between two tries of a claim was ended."""


class Worker:
    """Runs handlers for jobs of one platform until it is told to drain.

    `concurrency`: handlers that run side by side. `prefetch`: further leases held ready; they are given back when
    urgent work waits elsewhere. `lease_s`: the queue's where it is None. `wait_s`: of one long poll, 1 to 20.
    `max_priority`: the largest band index to take. `grace_s`: how long a drain waits for running handlers; after
    that their jobs are given back, uncharged.
    """

    def __init__(
        self,
        client: Client,
        *,
        queue: str | None = None,
        concurrency: int = 8,
        prefetch: int = 0,
        lease_s: int | None = None,
        wait_s: int = 10,
        max_priority: int | None = None,
        name: str = "",
        grace_s: float = 10.0,
    ) -> None:
        self._client = client
        self._options = Options(queue, concurrency, prefetch, lease_s, wait_s, max_priority, name, grace_s)
        self._desk = Desk(client.core, self._options)
        self._registry: Registry[Handler] = Registry(_check)
        self._turn = threading.Condition()
        self._waiting: deque[Held] = deque()
        self._running: set[Held] = set()
        self._ending = threading.Event()  # no more claims
        self._hurry = threading.Event()  # no more waiting for what runs
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._is_once = False

    def handler(self, kind: str) -> Callable[[Handler], Handler]:
        """Decorates the function that runs jobs of a kind; what it returns is the result."""
        return self._registry.handler(kind)

    def reconciler(self, kind: str) -> Callable[[Handler], Handler]:
        """Decorates the function that looks whether an outside effect has happened, when an earlier try is uncertain.

        `Done(result)` completes the job, `NotDone()` lets the handler act. After `StillUnknown()`, an exception or any
        other answer, and for a kind without a reconciler, the handler is not called: the attempt ends uncertain.
        """
        return self._registry.reconciler(kind)

    # Its life

    def run(self) -> None:
        """Work until `drain()`, SIGTERM or SIGINT (in the main thread); a second signal does not wait.

        Raises what makes working impossible: a token that is refused, a queue that is not there.
        """
        kinds = self._registry.kinds()
        threads = [threading.Thread(target=self._claims, args=(kinds,), daemon=True)]
        beats = threading.Thread(target=self._beats, daemon=True)
        slots = [threading.Thread(target=self._slot, daemon=True) for _ in range(self._options.concurrency)]
        with self._signals():
            for thread in (*threads, beats, *slots):
                thread.start()
            self._ending.wait()
            self._end(threads[0])
        if self._failure is not None:
            raise self._failure

    def run_until_idle(self) -> None:
        """Work until nothing is claimable and nothing runs: for tests, and for cron."""
        self._is_once, self._failure = True, None
        for event in (self._ending, self._hurry, self._over):
            event.clear()
        self.run()

    def drain(self) -> None:
        """Claim no more, finish what runs, and let `run` return. From any thread."""
        self._ending.set()
        with self._turn:
            self._turn.notify_all()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._signalled) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        # Events alone: the condition's lock may be held by the code that this interrupts.
        if self._ending.is_set():
            self._hurry.set()
        self._ending.set()

    def _end(self, claims: threading.Thread) -> None:
        began = time.monotonic()
        with self._turn:
            self._turn.notify_all()
        for held in self._desk.book.all():
            held.is_worker_ending = True
        self._release_waiting()
        while not self._hurry.is_set() and self._is_awaited(claims, time.monotonic() - began):
            self._hurry.wait(0.05)
        self._release_waiting()
        for held in list(self._running):
            self._client.run(self._desk.give_back(held))
        self._over.set()
        with self._turn:
            self._turn.notify_all()

    def _is_awaited(self, claims: threading.Thread, seconds: float) -> bool:
        """Whether an end waits on, after so long, for handlers or for the last claim's answer."""
        is_running = bool(self._running) and seconds < self._options.grace_s
        return is_running or (claims.is_alive() and seconds < self._options.claim_ends_s)

    def _release_waiting(self) -> None:
        while True:
            with self._turn:
                if not self._waiting:
                    return
                held = self._waiting.popleft()
            self._client.run(self._desk.give_back(held))

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.drain()

    # Claiming

    def _claims(self, kinds: list[str]) -> None:
        try:
            while not self._ending.is_set():
                if (room := self._room()) > 0:
                    self._claim(kinds, room)
        except _Drained:
            return
        except BaseException as error:
            self._fail(error)

    def _room(self) -> int:
        """How many leases more may be held; waits a moment while it is none."""
        with self._turn:
            held = len(self._waiting) + len(self._running)
            room = self._options.concurrency + self._options.prefetch - held
            if room <= 0:
                self._turn.wait(1)
        return room

    def _claim(self, kinds: list[str], room: int) -> None:
        wait_s = 0 if self._is_once else self._options.wait_s
        was_idle, began = not (self._waiting or self._running), time.monotonic()
        taken = self._client.run(self._desk.claim(kinds, room, wait_s=wait_s), self._pause)
        if self._ending.is_set():
            for held in taken:
                self._client.run(self._desk.give_back(held))
            return
        with self._turn:
            self._waiting.extend(taken)
            self._turn.notify_all()
            if self._is_once and was_idle and not taken:
                self._ending.set()
        self._pause(self._desk.idle_s(len(taken), time.monotonic() - began, wait_s))

    def _pause(self, seconds: float) -> None:
        if seconds and self._ending.wait(seconds):
            raise _Drained

    # Running

    def _slot(self) -> None:
        while (held := self._next()) is not None:
            try:
                if self._client.run(self._desk.begin(held)):
                    self._client.run(self._desk.settle(held, self._handle(held)))
            except BaseException as error:  # nothing of a handler's arrives here
                self._fail(error)
            finally:
                with self._turn:
                    self._running.discard(held)
                    self._turn.notify_all()

    def _next(self) -> Held | None:
        with self._turn:
            while not self._waiting or self._ending.is_set():
                if self._ending.is_set() or self._over.is_set():
                    return None
                self._turn.wait(1)
            held = self._waiting.popleft()
            self._running.add(held)
            self._turn.notify_all()
            return held

    def _handle(self, held: Held) -> Verdict:
        job = JobContext(held, self._save)
        if job.reconcile:
            reconcile = self._registry.reconcilers.get(job.kind)
            if reconcile is None:
                return NO_RECONCILER
            try:
                with tracing.processing(held.lease):
                    settled = settled_by(reconcile(job))
            except BaseException as error:
                return verdict_of(error, while_reconciling=True)
            if settled is not None:
                return settled
        try:
            with tracing.processing(held.lease):
                return Complete(self._registry.handlers[job.kind](job))
        except BaseException as error:
            return verdict_of(error, while_reconciling=False)

    def _save(self, held: Held, value: object) -> None:
        self._client.run(self._desk.checkpoint(held, value))

    # Renewing

    def _beats(self) -> None:
        try:
            while not self._over.wait(BEAT_S):
                for held in self._client.run(self._desk.beat()):
                    self._give_back_unbegun(held)
        except BaseException as error:
            self._fail(error)

    def _give_back_unbegun(self, held: Held) -> None:
        with self._turn:
            if held not in self._waiting:
                return  # it has begun meanwhile
            self._waiting.remove(held)
        log.info("job %s is given back: urgent work waits", held.lease.job_id)
        self._client.run(self._desk.give_back(held))


def _check(function: Any) -> None:
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} is async: use AsyncWorker")
