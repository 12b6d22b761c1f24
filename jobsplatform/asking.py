"""Asks every shard the same, at once, and waits no longer than a page may take: who does not answer is unknown."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from typing import Final, TypeVar

from django.db import DatabaseError, InterfaceError, connections

from jobsplatform import database
from jobsplatform.errors import JobsPlatformError

WAIT_SECONDS: Final = 1.0
ALONE_SECONDS: Final = 5.0  # for so long a shard that did not answer is not asked again
THREADS: Final = 8

T = TypeVar("T")

_pool: ThreadPoolExecutor | None = None
_away: dict[str, float] = {}  # alias → when it may be asked again


def all_shards(read: Callable[[str], T], *, wait_s: float = WAIT_SECONDS) -> dict[int, T | None]:
    """Shard number → what `read(alias)` answered; None for a shard that was away or too slow.

    Inside a transaction the caller's own connections are used, one after the other: another thread would not see what
    it has written.
    """
    places = database.aliases()
    if any(connections[alias].in_atomic_block for alias in places.values()):
        return {number: _answer(read, alias) for number, alias in places.items()}
    asked = {number: (alias, _asked(read, alias)) for number, alias in places.items()}
    ends = time.monotonic() + wait_s
    return {number: _awaited(future, alias, ends) for number, (alias, future) in asked.items()}


def forget() -> None:
    """Ask every shard again at once."""
    _away.clear()


def _asked(read: Callable[[str], T], alias: str) -> Future[T | None] | None:
    global _pool
    if _away.get(alias, 0.0) > time.monotonic():
        return None
    if _pool is None:
        _pool = ThreadPoolExecutor(THREADS, thread_name_prefix="asking")
    return _pool.submit(_apart, read, alias)


def _awaited(future: Future[T | None] | None, alias: str, ends: float) -> T | None:
    if future is None:
        return None
    try:
        answer = future.result(max(0.0, ends - time.monotonic()))
    except TooLate:
        answer = None
    if answer is None:
        _away[alias] = time.monotonic() + ALONE_SECONDS
    return answer


def _apart(read: Callable[[str], T], alias: str) -> T | None:
    try:
        return _answer(read, alias)
    finally:
        database.give_connections_back()


def _answer(read: Callable[[str], T], alias: str) -> T | None:
    try:
        return read(alias)
    except (DatabaseError, InterfaceError, JobsPlatformError):
        return None
