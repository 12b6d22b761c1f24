"""chancy: coroutines, acknowledgements once a second in batches (its default)."""

from __future__ import annotations

import logging
import os
from typing import Any

from chancy import Chancy, Queue, Worker

from benchmarks.peers.adapter import DSN, Adapter, main, versions
from benchmarks.peers.chancy_job import tick

CONCURRENCY = int(os.environ.get("CHANCY_CONCURRENCY", "500"))
quiet = logging.getLogger("bench")
quiet.setLevel(logging.ERROR)  # its own logger tells of every job


class OfChancy(Adapter):
    version = versions("chancy")
    settings = f"Executor.Async, concurrency={CONCURRENCY}, eager_polling, acknowledges once a second"
    unfinished = "SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')"

    async def set_up(self) -> None:
        async with Chancy(DSN, log=quiet) as chancy:
            await chancy.migrate()
            executor = Chancy.Executor.Async
            queue = Queue(
                "default", concurrency=CONCURRENCY, executor=executor, eager_polling=True, polling_interval=1
            )
            await chancy.declare(queue, upsert=True)

    async def open(self) -> None:
        self.chancy = await Chancy(DSN, log=quiet).__aenter__()

    async def close(self) -> None:
        await self.chancy.__aexit__(None, None, None)

    async def send(self, one: dict[str, Any]) -> None:
        await self.chancy.push(tick.job.with_kwargs(**one))

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        async for _ in self.chancy.push_many([tick.job.with_kwargs(**one) for one in many]):
            pass

    async def work(self) -> None:
        async with Chancy(DSN, log=quiet) as chancy, Worker(chancy) as worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    main(OfChancy())
