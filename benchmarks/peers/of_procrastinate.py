"""procrastinate: its asynchronous worker, told of new jobs by NOTIFY."""

from __future__ import annotations

import os
from typing import Any

import procrastinate

from benchmarks.peers import counter
from benchmarks.peers.adapter import DSN, Adapter, main, versions

CONCURRENCY = int(os.environ.get("PROCRASTINATE_CONCURRENCY", "10"))
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=DSN, min_size=4, max_size=CONCURRENCY + 4)
)


@app.task(queue="default", name="tick")
async def tick(n: int, t: int, pad: str) -> None:
    counter.tick(t)


class Procrastinate(Adapter):
    version = versions("procrastinate", "psycopg")
    settings = f"concurrency={CONCURRENCY}, keeps finished rows (its default)"
    unfinished = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    async def set_up(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await app.open_async()

    async def close(self) -> None:
        await app.close_async()

    async def send(self, one: dict[str, Any]) -> None:
        await tick.defer_async(**one)

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        await tick.batch_defer_async(*many)

    async def work(self) -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY, wait=True)


if __name__ == "__main__":
    main(Procrastinate())
