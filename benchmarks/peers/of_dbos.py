"""DBOS: a queue of workflows; there is no call for many."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from dbos import DBOS, DBOSClient

from benchmarks.peers import counter
from benchmarks.peers.adapter import DSN, Adapter, main, versions

CONCURRENCY = int(os.environ.get("DBOS_CONCURRENCY", "200"))
POLL_S = 0.1  # its default is 1


@DBOS.workflow(name="tick")
def tick(n: int, t: int, pad: str) -> None:
    counter.tick(t)


def launch(*, works: bool) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": DSN,
            "run_admin_server": False,
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": str(os.getpid()),
        }
    )
    if not works:
        DBOS.listen_queues([])
    DBOS.launch()
    DBOS.register_queue("bench", worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_S)


class OfDbos(Adapter):
    version = versions("dbos")
    settings = (
        f"worker_concurrency={CONCURRENCY}, polls every {POLL_S} s, a thread a workflow; bulk is single calls"
    )
    unfinished = (
        "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')"
    )

    async def set_up(self) -> None:
        thread = threading.Thread(target=launch, kwargs={"works": False})  # it must not find our event loop
        thread.start()
        thread.join()
        DBOS.destroy()

    async def open(self) -> None:
        self.client = DBOSClient(system_database_url=DSN)

    async def close(self) -> None:
        self.client.destroy()

    async def send(self, one: dict[str, Any]) -> None:
        how = {"workflow_name": "tick", "queue_name": "bench", "app_version": "1"}
        self.client.enqueue(how, one["n"], one["t"], one["pad"])

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        for one in many:
            await self.send(one)

    async def work(self) -> None:
        over = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: over.set())
        thread = threading.Thread(target=launch, kwargs={"works": True})
        thread.start()
        thread.join()
        over.wait()
        os._exit(0)


if __name__ == "__main__":
    main(OfDbos())
