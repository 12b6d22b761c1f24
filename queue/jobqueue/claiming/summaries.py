"""What each shard last said of its heads, by class of claims. Young words are used again; older ones are unknown.

A word is asked for when a claim needs it: so only queues with consumers cost anything, and at most one statement a
shard and 20 ms, however many claims there are. Work of bands 0 and 1 that is told of makes its shard's word old.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from jobqueue import wakeup
from jobqueue.claiming import inversions
from jobqueue.policy.routing import Heads, Waiting
from jobqueue.wakeup import Mark
from jobsplatform import database, reach, sql

FRESH_SECONDS: Final = 0.02  # how long a shard's word is used again
PROBES_MAX: Final = 1_000  # lanes of a band that one look may meet
DEPTH: Final = 100  # jobs counted in a lane
CLASSES_MAX: Final = 1_000  # classes of claims that a process remembers words for
THREADS: Final = 12  # of a process, for shards that are asked at once; each holds a connection while it asks

T = TypeVar("T")


class Class(NamedTuple):
    """Who asks: claims of one class see the same heads."""

    queue_ids: tuple[int, ...]
    max_priority: int | None
    kinds: tuple[str, ...] | None
    tenant_id: int | None


class _Word(NamedTuple):
    at: float  # this process's own clock
    queues: dict[int, dict[int, Waiting]]


_words: dict[Class, dict[str, _Word]] = {}
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_hears = False


def read(asked: Class) -> tuple[dict[int, Heads], list[int]]:
    """The heads of each queue over all shards, and the numbers of the shards of which nothing is known."""
    _listen()
    with _lock:
        if len(_words) > CLASSES_MAX:
            _words.clear()
        held = dict(_words.get(asked, ()))
    now = time.monotonic()
    old = {
        number: alias
        for number, alias in database.aliases().items()
        if not reach.is_down(alias) and (alias not in held or now - held[alias].at > FRESH_SECONDS)
    }
    unknown = [number for number, alias in database.aliases().items() if reach.is_down(alias)]
    for (number, alias), word in zip(
        old.items(), together([_asking(asked, a) for a in old.values()]), strict=True
    ):
        if isinstance(word, _Word):
            held[alias] = word
        else:
            held.pop(alias, None)
            unknown.append(number)
    with _lock:
        _words[asked] = {**_words.get(asked, {}), **held}
    heads: dict[int, Heads] = {}
    for number, alias in database.aliases().items():
        if alias in held and number not in unknown:
            for queue_id, bands in held[alias].queues.items():
                heads.setdefault(queue_id, Heads()).by_shard[number] = dict(bands)
    return heads, unknown


def forget() -> None:
    """Drop what is remembered."""
    global _hears
    with _lock:
        _words.clear()
    wakeup.forget_hearer(hint)
    _hears = False


def hint(alias: str, marks: Iterable[Mark]) -> None:
    """Something became ready: what the shard said before is old now, for those who can have it."""
    told = tuple(marks)
    with _lock:
        for asked, words in _words.items():
            if any(mark.queue_id in asked.queue_ids for mark in told):
                words.pop(alias, None)


def spoil(asked: Class, numbers: Iterable[int]) -> None:
    """What these shards said was not so, or is not any more."""
    aliases = database.aliases()
    with _lock:
        for number in numbers:
            _words.get(asked, {}).pop(aliases[number], None)


def together(actions: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Run actions at once, each with connections of its own; what one raises is its answer."""
    global _pool
    if len(actions) < 2:
        return [_tried(action) for action in actions]
    if _pool is None:
        with _lock:
            _pool = _pool or ThreadPoolExecutor(THREADS, thread_name_prefix="shards")
    futures: list[Future[T | Exception]] = [_pool.submit(_alone, action) for action in actions]
    return [future.result() for future in futures]


def _alone(action: Callable[[], T]) -> T | Exception:
    try:
        return _tried(action)
    finally:
        database.give_connections_back()


def _tried(action: Callable[[], T]) -> T | Exception:
    try:
        return action()
    except Exception as error:
        return error


def _asking(asked: Class, alias: str) -> Callable[[], _Word]:
    return lambda: _ask(asked, alias)


def _ask(asked: Class, alias: str) -> _Word:
    params = {
        "queue_ids": list(asked.queue_ids),
        "max_priority": asked.max_priority,
        "kinds": None if asked.kinds is None else list(asked.kinds),
        "tenant_id": asked.tenant_id,
        "probes": PROBES_MAX,
        "depth": DEPTH,
    }
    at = time.monotonic()
    queues: dict[int, dict[int, Waiting]] = {}
    for queue_id, band, count, since in sql.rows("jobqueue/head_summary", params, alias=alias):
        queues.setdefault(queue_id, {})[band] = Waiting(count, since)
    for queue_id, bands in queues.items():
        inversions.seen(queue_id, bands)
    return _Word(at, queues)


def _listen() -> None:
    global _hears
    if not _hears:
        with _lock:
            if not _hears:
                wakeup.hear(hint)
                _hears = True
