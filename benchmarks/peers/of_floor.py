"""The floor: what PostgreSQL allows a queue that promises next to nothing.

One table, a visibility timeout, one statement to take many and one to delete them. No tenants, no priorities, no
retries with a limit, no result, no history, no fencing: what it is faster by is what those cost.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import psycopg

from benchmarks.peers import counter
from benchmarks.peers.adapter import DSN, Adapter, main, versions

BATCH = int(os.environ.get("FLOOR_BATCH", "500"))
IDLE_S = 1.0
TABLE = """
    CREATE TABLE item (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        hidden_until timestamptz NOT NULL DEFAULT clock_timestamp(),
        taken integer NOT NULL DEFAULT 0,
        body text NOT NULL
    );
    CREATE INDEX item_visible ON item (hidden_until, id);
"""
PUT = "WITH put AS (INSERT INTO item (body) VALUES (%s)) SELECT pg_notify('item', '')"
PUT_MANY = "INSERT INTO item (body) SELECT unnest(%b::text[])"
TAKE = """
    WITH next AS MATERIALIZED (
        SELECT id FROM item WHERE hidden_until <= clock_timestamp()
        ORDER BY hidden_until, id LIMIT %s FOR UPDATE SKIP LOCKED
    )
    UPDATE item SET hidden_until = clock_timestamp() + interval '60 s', taken = taken + 1
    FROM next WHERE item.id = next.id RETURNING item.id, item.body
"""
DELETE = "DELETE FROM item WHERE id = ANY(%b)"


def connect() -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(DSN, autocommit=True, prepare_threshold=1)


class Floor(Adapter):
    version = f"own SQL, {versions('psycopg')}"
    settings = (
        f"takes {BATCH} at a time, deletes them in one statement; LISTEN when idle; one connection, prepared"
    )
    unfinished = "SELECT count(*) FROM item"

    async def set_up(self) -> None:
        with connect() as session:
            session.execute(TABLE)

    async def open(self) -> None:
        self.session = connect()

    async def close(self) -> None:
        self.session.close()

    async def send(self, one: dict[str, Any]) -> None:
        self.session.execute(PUT, [json.dumps(one)])

    async def send_many(self, many: list[dict[str, Any]]) -> None:
        self.session.execute(PUT_MANY, [[json.dumps(one) for one in many]])

    async def work(self) -> None:
        ends: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: ends.append(number))
        with connect() as session:
            session.execute("LISTEN item")
            while not ends:
                rows = session.execute(TAKE, [BATCH]).fetchall()
                for _, body in rows:
                    counter.tick(json.loads(body)["t"])
                if rows:
                    session.execute(DELETE, [[row[0] for row in rows]])
                else:
                    for _ in session.notifies(timeout=IDLE_S, stop_after=1):
                        pass


if __name__ == "__main__":
    main(Floor())
