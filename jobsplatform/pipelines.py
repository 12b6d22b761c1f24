"""Pipelines that send their statements together: one packet a round trip, where psycopg's send each at once.

Each packet wakes the server's process, which then works while its client still makes the next: on busy cores both
pay for the change. Nothing is lost by waiting: rows are awaited behind the last statement anyhow.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg import generators

Steps = Generator[Any, Any, None]  # what psycopg waits with


class _Together(psycopg.Pipeline):
    """Statements gather in libpq until rows are fetched or the pipeline is synchronised."""

    _is_clean = False  # synchronised, and nothing was sent since

    def _communicate_gen(self) -> Steps:
        self._is_clean = False
        while self.command_queue:
            self.command_queue.popleft()()
        yield from ()

    def _fetch_gen(self, *, flush: bool) -> Steps:
        if flush and self.result_queue:
            self.pgconn.send_flush_request()
        yield from generators.send(self.pgconn)  # the server may answer meanwhile: that is read too
        yield from super()._fetch_gen(flush=False)

    def _sync_gen(self) -> Steps:
        yield from super()._sync_gen()
        self._is_clean = True

    def _exit_gen(self) -> Steps:
        if not self._is_clean:  # else it would be a round trip for nothing
            yield from super()._exit_gen()


def together(connection: psycopg.Connection[Any]) -> AbstractContextManager[psycopg.Pipeline]:
    """`connection.pipeline()` of statements that are sent together; inside another pipeline: that one."""
    if connection._pipeline is None:
        connection._pipeline = _Together(connection)
    return connection.pipeline()
