"""pgqueuer: asyncpg, its own batching and completion buffer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.peers import counter
from benchmarks.peers.adapter import DSN, Adapter, main, versions

with suppress(ImportError):
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

BATCH = int(os.environ.get("PGQUEUER_BATCH", "500"))


class Pgqueuer(Adapter):
    version = versions("pgqueuer", "asyncpg")
    settings = f"uvloop, batch_size={BATCH} (its completion buffer is as large)"
    unfinished = "SELECT count(*) FROM pgqueuer"

    async def set_up(self) -> None:
        session = await asyncpg.connect(DSN)
        await Queries(AsyncpgDriver(session)).install()
        await session.close()

    async def open(self) -> None:
        self.session = await asyncpg.connect(DSN)
        self.queries = Queries(AsyncpgDriver(self.session))

    async def close(self) -> None:
        await self.session.close()

    async def send(self, one: dict[str, Any]) -> None:
        await self.queries.enqueue("tick", json.dumps(one).encode())

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        bodies = [json.dumps(one).encode() for one in many]
        await self.queries.enqueue(["tick"] * len(many), bodies, [0] * len(many))

    async def work(self) -> None:
        worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(DSN)))

        @worker.entrypoint("tick")
        async def tick(job: Any) -> None:
            counter.tick(json.loads(job.payload)["t"])

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown.set)
        await worker.run(batch_size=BATCH)


if __name__ == "__main__":
    main(Pgqueuer())
