"""What each shard last said of its heads, by class of claims. Young words are used again; older ones are unknown.

A word is asked for when a claim needs it: so only queues with consumers cost anything, and at most one statement a
shard and 20 ms, however many claims there are. Work that is told of makes its shard's word old, and so does a claim
from it. Why words are asked for and not published: ADR 0022.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from jobqueue import wakeup
from jobqueue.claiming import inversions
from jobqueue.policy.routing import STALE_S, Heads, Waiting
from jobqueue.wakeup import Mark
from jobsplatform import database, reach, sql

FRESH_SECONDS: Final = 0.02  # how long a shard's word is used again
PROBES_MAX: Final = 1_000  # lanes of a band that one look may meet
DEPTH: Final = 100  # jobs counted in a lane
CLASSES_MAX: Final = 1_000  # classes of claims that a process remembers words for
TOLD_MAX: Final = 10_000  # urgent marks of a shard, then the memory starts anew
THREADS: Final = 12  # of a process, for shards that are asked at once; each holds a connection while it asks

T = TypeVar("T")


class Class(NamedTuple):
    """Who asks: claims of one class see the same heads."""

    queue_ids: tuple[int, ...]
    max_priority: int | None
    kinds: tuple[str, ...] | None
    tenant_id: int | None


class Word(NamedTuple):
    """What a shard said; `number` tells it from every other word of this process."""

    number: int
    at: float  # when it was asked for, by this process's own clock
    queues: dict[int, dict[int, Waiting]]

    @property
    def is_young(self) -> bool:
        return time.monotonic() - self.at <= FRESH_SECONDS


class View(NamedTuple):
    """The map as one claim sees it: heads by queue, shards of which nothing is known, and the words it is made of."""

    heads: dict[int, Heads]
    unknown: list[int]
    words: dict[str, Word]


_words: dict[Class, dict[str, Word]] = {}
_told: dict[str, dict[Mark, float]] = {}  # alias → urgent work that somebody told of, and when
_numbers = itertools.count(1)
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_hears = False


def read(asked: Class) -> View:
    """The heads of each queue over all shards. Words that are not young any more are asked for again."""
    listen()
    with _lock:
        if len(_words) > CLASSES_MAX:
            _words.clear()
        held = dict(_words.get(asked, ()))
    old = {
        number: alias
        for number, alias in database.aliases().items()
        if not reach.is_down(alias) and (alias not in held or not held[alias].is_young)
    }
    unknown = [number for number, alias in database.aliases().items() if reach.is_down(alias)]
    for (number, alias), word in zip(
        old.items(), together([_asking(asked, a) for a in old.values()]), strict=True
    ):
        if isinstance(word, Word):
            held[alias] = word
        else:
            held.pop(alias, None)
            unknown.append(number)
    with _lock:
        _words[asked] = {**_words.get(asked, {}), **held}
    first = secrets.randbelow(max(database.aliases()) + 1)
    heads: dict[int, Heads] = {}
    for number, alias in database.aliases().items():
        if alias in held and number not in unknown:
            for queue_id, bands in held[alias].queues.items():
                heads.setdefault(queue_id, Heads(first=first)).by_shard[number] = dict(bands)
    return View(heads, unknown, held)


def is_current(asked: Class, view: View) -> bool:
    """Whether a view is made of the newest words, and all are young."""
    words = _words.get(asked, {})
    return len(view.words) == len(words) > 0 and all(
        word.is_young and words.get(alias) is word for alias, word in view.words.items()
    )


def told(queue_id: int, bands: Collection[int], since: float | None = None) -> dict[int, list[int]]:
    """Band → the shards of which somebody has told that work waits there, the longest known first.

    A moment ago, or after `since` (by this process's own clock).
    """
    since = time.monotonic() - STALE_S if since is None else since
    with _lock:
        found = sorted(
            (at, band, number)
            for number, alias in database.aliases().items()
            for band in bands
            if (at := _told.get(alias, {}).get(Mark(queue_id, band), 0.0)) > since
            and not reach.is_down(alias)
        )
    shards: dict[int, list[int]] = {}
    for _, band, number in found:
        shards.setdefault(band, []).append(number)
    return shards


def forget() -> None:
    """Drop what is remembered."""
    global _hears
    with _lock:
        _words.clear()
        _told.clear()
    wakeup.forget_hearer(hint)
    _hears = False


def hint(alias: str, marks: Iterable[Mark]) -> None:
    """Something became ready: what the shard said before is old now, for those who can have it."""
    told, now = tuple(marks), time.monotonic()
    with _lock:
        urgent = _told.setdefault(alias, {})
        if len(urgent) > TOLD_MAX:
            urgent.clear()
        urgent.update((mark, now) for mark in told if mark.is_urgent)
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
    database.give_connections_back()  # they may be what the others wait for
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


def _asking(asked: Class, alias: str) -> Callable[[], Word]:
    return lambda: _ask(asked, alias)


def _ask(asked: Class, alias: str) -> Word:
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
    return Word(next(_numbers), at, queues)


def listen() -> None:
    """Hear of work that becomes ready, from now on."""
    global _hears
    if not _hears:
        with _lock:
            if not _hears:
                wakeup.hear(hint)
                _hears = True
