"""The worker for asyncio: handlers are coroutines, each in a task of its own."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from jobsplatform_client import tracing
from jobsplatform_client.aio import AsyncClient
from jobsplatform_client.worker.book import Held
from jobsplatform_client.worker.context import AsyncJobContext
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

AsyncHandler = Callable[[AsyncJobContext], Awaitable[object]]

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class _Drained(Exception):
    """A wait between two tries of a claim was ended."""


class AsyncWorker:
    """As `Worker`; handlers and reconcilers are `async def`. A handler whose lease is lost is cancelled."""

    def __init__(
        self,
        client: AsyncClient,
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
        self._registry: Registry[AsyncHandler] = Registry(_check)
        self._waiting: deque[Held] = deque()
        self._running: dict[Held, asyncio.Task[None]] = {}
        self._ending = asyncio.Event()  # no more claims
        self._hurry = asyncio.Event()  # no more waiting for what runs
        self._moved = asyncio.Event()  # a lease came or went
        self._failure: BaseException | None = None
        self._is_once = False

    def handler(self, kind: str) -> Callable[[AsyncHandler], AsyncHandler]:
        """Decorates the function that runs jobs of a kind; what it returns is the result."""
        return self._registry.handler(kind)

    def reconciler(self, kind: str) -> Callable[[AsyncHandler], AsyncHandler]:
        """Decorates the function that looks whether an outside effect has happened; see `Worker.reconciler`."""
        return self._registry.reconciler(kind)

    # Its life

    async def run(self, *, handle_signals: bool = True) -> None:
        """Work until `drain()`, SIGTERM or SIGINT; a second signal does not wait.

        `handle_signals` False where the loop is not the main thread's. Raises what makes working impossible.
        """
        kinds = self._registry.kinds()
        if handle_signals:
            self._listen()
        claims = asyncio.create_task(self._claims(kinds))
        beats = asyncio.create_task(self._beats())
        try:
            await self._ending.wait()
            await self._end(claims)
        finally:
            beats.cancel()
            claims.cancel()
            await asyncio.gather(beats, claims, return_exceptions=True)
            if handle_signals:
                for number in SIGNALS:
                    asyncio.get_running_loop().remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure

    async def run_until_idle(self) -> None:
        """Work until nothing is claimable and nothing runs: for tests, and for cron."""
        self._is_once, self._failure = True, None
        for event in (self._ending, self._hurry):
            event.clear()
        await self.run(handle_signals=False)

    def drain(self) -> None:
        """Claim no more, finish what runs, and let `run` return."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._moved.set()

    def _listen(self) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        if self._ending.is_set():
            self._hurry.set()
        self.drain()

    async def _end(self, claims: asyncio.Task[None]) -> None:
        for held in self._desk.book.all():
            held.is_worker_ending = True
        await self._release_waiting()
        hurry = asyncio.create_task(self._hurry.wait())
        grace = asyncio.create_task(asyncio.sleep(self._options.grace_s))
        await _first(hurry, claims, timeout_s=self._options.claim_ends_s)
        while self._running and not (hurry.done() or grace.done()):
            await _first(hurry, grace, *self._running.values())
        await self._release_waiting()
        left = dict(self._running)
        for held in left:
            await self._client.run(self._desk.give_back(held))
        for task in (*left.values(), hurry, grace):
            task.cancel()
        await asyncio.gather(*left.values(), hurry, grace, return_exceptions=True)

    async def _release_waiting(self) -> None:
        while self._waiting:
            await self._client.run(self._desk.give_back(self._waiting.popleft()))

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.drain()

    # Claiming

    async def _claims(self, kinds: list[str]) -> None:
        try:
            while not self._ending.is_set():
                self._moved.clear()
                held = len(self._waiting) + len(self._running)
                room = self._options.concurrency + self._options.prefetch - held
                if room > 0:
                    await self._claim(kinds, room)
                else:
                    await self._moved.wait()
        except _Drained:
            return
        except Exception as error:
            self._fail(error)

    async def _claim(self, kinds: list[str], room: int) -> None:
        wait_s = 0 if self._is_once else self._options.wait_s
        clock = asyncio.get_running_loop().time
        was_idle, began = not (self._waiting or self._running), clock()
        taken = await self._client.run(self._desk.claim(kinds, room, wait_s=wait_s), self._pause)
        if self._ending.is_set():
            for held in taken:
                await self._client.run(self._desk.give_back(held))
            return
        self._waiting.extend(taken)
        self._start()
        if self._is_once and was_idle and not taken:
            self.drain()
        await self._pause(self._desk.idle_s(len(taken), clock() - began, wait_s))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            if seconds:
                await asyncio.wait_for(self._ending.wait(), seconds)
                raise _Drained

    # Running

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._options.concurrency and not self._ending.is_set():
            held = self._waiting.popleft()
            self._running[held] = asyncio.create_task(self._work(held))

    async def _work(self, held: Held) -> None:
        try:
            if await self._client.run(self._desk.begin(held)):
                await self._client.run(self._desk.settle(held, await self._handle(held)))
        except asyncio.CancelledError:
            self._desk.book.drop(held)
            if held.lost is None:
                raise  # somebody else's wish, not ours
        except Exception as error:  # nothing of a handler's arrives here
            self._fail(error)
        finally:
            del self._running[held]
            self._start()
            self._moved.set()

    async def _handle(self, held: Held) -> Verdict:
        job = AsyncJobContext(held, self._save)
        if job.reconcile:
            reconcile = self._registry.reconcilers.get(job.kind)
            if reconcile is None:
                return NO_RECONCILER
            try:
                with tracing.processing(held.lease):
                    settled = settled_by(await reconcile(job))
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                return _verdict_of(error, while_reconciling=True)
            if settled is not None:
                return settled
        try:
            with tracing.processing(held.lease):
                return Complete(await self._registry.handlers[job.kind](job))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            return _verdict_of(error, while_reconciling=False)

    async def _save(self, held: Held, value: object) -> None:
        await self._client.run(self._desk.checkpoint(held, value))

    # Renewing

    async def _beats(self) -> None:
        try:
            while True:
                await asyncio.sleep(BEAT_S)
                for held in await self._client.run(self._desk.beat()):
                    await self._give_back_unbegun(held)
                for held, task in list(self._running.items()):
                    if held.lost == "refused":
                        task.cancel()
        except Exception as error:
            self._fail(error)

    async def _give_back_unbegun(self, held: Held) -> None:
        if held not in self._waiting:
            return  # it has begun meanwhile
        self._waiting.remove(held)
        log.info("job %s is given back: urgent work waits", held.lease.job_id)
        await self._client.run(self._desk.give_back(held))


def _verdict_of(error: BaseException, *, while_reconciling: bool) -> Verdict:
    """As `verdict_of`; a cancellation of the job's own task is none, one that a handler met elsewhere is an error."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return verdict_of(error, while_reconciling=while_reconciling)


async def _first(*tasks: asyncio.Task[Any], timeout_s: float | None = None) -> None:
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


def _check(function: Any) -> None:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} is not async: use Worker")
