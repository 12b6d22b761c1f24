"""What an adapter fills in, and its command line.

    setup          make the peer's schema in the empty database $BENCH_DSN
    info           print JSON: version, settings, unfinished (SQL: how many jobs are not over)
    single N       enqueue N jobs, one awaited call each: print JSON {"seconds": …}
    bulk N         enqueue N jobs by the best call for many, 1,000 a call: the same
    paced N MS     enqueue one job every MS milliseconds, each with the instant of its sending
    worker         work until SIGTERM ($BENCH_WORKERS processes, where one command starts them all)

A job's arguments are `job(number, sent_ns)`; its body calls `counter.tick(t)`. Standard library only: it runs in the
peer's environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

DSN = os.environ.get("BENCH_DSN", "")
PAD = "x" * int(os.environ.get("BENCH_PAD", "100"))
WORKERS = int(os.environ.get("BENCH_WORKERS", "1"))
A_CALL = 1_000


def job(number: int, sent_ns: int = 0) -> dict[str, Any]:
    """The arguments of one job: about 130 bytes of JSON with the usual pad."""
    return {"n": number, "t": sent_ns, "pad": PAD}


def versions(*names: str) -> str:
    return ", ".join(f"{name} {version(name)}" for name in names)


class Adapter:
    """One peer. Calls of a peer without asyncio simply do not await."""

    version = ""
    settings = ""
    unfinished = ""  # SQL that gives one number
    a_call = A_CALL  # jobs of one bulk call

    async def set_up(self) -> None:
        raise NotImplementedError

    async def open(self) -> None:
        """Connect the producer."""

    async def close(self) -> None:
        """Disconnect it."""

    async def send(self, one: dict[str, Any]) -> None:
        raise NotImplementedError

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        raise NotImplementedError

    async def work(self) -> None:
        raise NotImplementedError

    # The command line

    async def single(self, count: int) -> float:
        """Seconds. One job more goes before: connections and plans are there when the clock starts."""
        await self.send(job(-1))
        start = time.perf_counter()
        for number in range(count):
            await self.send(job(number))
        return time.perf_counter() - start

    async def bulk(self, count: int) -> float:
        """Seconds, with the making of the arguments."""
        start = time.perf_counter()
        for first in range(0, count, self.a_call):
            await self.send_many([job(number) for number in range(first, min(count, first + self.a_call))])
        return time.perf_counter() - start

    async def paced(self, count: int, every_ms: float) -> float:
        start = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, start + number * every_ms / 1_000 - time.perf_counter()))
            await self.send(job(number, time.time_ns()))
        return time.perf_counter() - start

    async def produce(self, verb: str, *numbers: float) -> float:
        await self.open()
        try:
            match verb:
                case "single":
                    return await self.single(int(numbers[0]))
                case "bulk":
                    return await self.bulk(int(numbers[0]))
                case "paced":
                    return await self.paced(int(numbers[0]), numbers[1])
            sys.exit(f"There is no verb {verb!r}.")
        finally:
            await self.close()


def main(adapter: Adapter) -> None:
    """Do what the command line says."""
    verb, *numbers = sys.argv[1:]
    match verb:
        case "setup":
            asyncio.run(adapter.set_up())
        case "info":
            facts = {name: getattr(adapter, name) for name in ("version", "settings", "unfinished")}
            print(json.dumps(facts))
        case "worker":
            asyncio.run(adapter.work())
        case _:
            print(json.dumps({"seconds": asyncio.run(adapter.produce(verb, *map(float, numbers)))}))
