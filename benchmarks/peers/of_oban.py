"""Oban for Python (the free edition): fetches up to its free slots, acknowledges in one transaction a loop."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import psycopg
from oban import Oban, worker
from oban.schema import install_sql
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers import counter
from benchmarks.peers.adapter import DSN, Adapter, main, versions

LIMIT = int(os.environ.get("OBAN_LIMIT", "200"))


@worker(queue="default")
class Tick:
    async def process(self, job: Any) -> None:
        counter.tick(job.args["t"])


def pool(least: int) -> Any:
    return AsyncConnectionPool(DSN, min_size=least, max_size=5, open=False)


class OfOban(Adapter):
    version = versions("oban", "psycopg")
    settings = f"queue limit {LIMIT}, keeps finished rows (its default)"
    unfinished = """SELECT count(*) FROM oban_jobs
                    WHERE state IN ('available', 'executing', 'scheduled', 'retryable')"""

    async def set_up(self) -> None:
        with psycopg.connect(DSN, autocommit=True) as session:
            session.execute(install_sql())

    async def open(self) -> None:
        self.pool = pool(1)
        await self.pool.open()
        self.oban = Oban(pool=self.pool)

    async def close(self) -> None:
        await self.pool.close()

    async def send(self, one: dict[str, Any]) -> None:
        await self.oban.enqueue(Tick.new(one))  # type: ignore[attr-defined]

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        await self.oban.enqueue_many([Tick.new(one) for one in many])  # type: ignore[attr-defined]

    async def work(self) -> None:
        over, connections = asyncio.Event(), pool(2)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await connections.open()
        oban = Oban(pool=connections, queues={"default": LIMIT})
        await oban.start()
        await over.wait()
        await oban.stop()
        await connections.close()


if __name__ == "__main__":
    main(OfOban())
