"""Says, after a commit, that work has become ready. A hint and no more: who misses it finds the work by polling.

Never part of the transaction that made the work: NOTIFY inside it takes a lock that all commits share. What is told
goes at once to the hub of this process, and over a connection of its own to all others (`jobqueue.hub.notifier`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from django.db import connections, transaction

from jobsplatform import sql
from jobsplatform.errors import JobsPlatformError

LANES_MAX: Final = 100_000  # that a process remembers; about 15 MB, then the memory starts anew
URGENT_MAX: Final = 1  # bands 0 and 1 are told at once, others with what comes within 20 ms


class Mark(NamedTuple):
    """A band of a queue in which something has become ready."""

    queue_id: int
    priority: int

    @property
    def is_urgent(self) -> bool:
        return self.priority <= URGENT_MAX


Hearer = Callable[[str, frozenset[Mark]], None]

_hearers: list[Hearer] = []
_marks: dict[tuple[str, int], Mark] = {}


def hear(hearer: Hearer) -> Callable[[], None]:
    """Call `hearer(alias, marks)` at each wake-up of this process; the returned function ends that."""
    _hearers.append(hearer)
    return lambda: forget_hearer(hearer)


def forget_hearer(hearer: Hearer) -> None:
    """End what `hear` began."""
    _hearers[:] = [one for one in _hearers if one != hearer]


def ready(alias: str, marks: Iterable[Mark]) -> None:
    """Work became ready in these bands of the shard `alias`; told once the surrounding transaction is committed."""
    if _hearers and (told := frozenset(marks)):
        _after_commit(alias, partial(_tell, alias, told))


def lanes_ready(alias: str, lane_ids: Iterable[int]) -> None:
    """The same, for verbs that know the lanes alone."""
    if _hearers and (lanes := frozenset(lane_ids)):
        _after_commit(alias, partial(_tell_lanes, alias, lanes))


def forget() -> None:
    """Drop what is remembered (a database was replaced)."""
    _marks.clear()


def _after_commit(alias: str, tell: Callable[[], None]) -> None:
    """At once outside a transaction: Django's `on_commit` finds that out in ten steps."""
    if connections[alias].in_atomic_block:
        transaction.on_commit(tell, using=alias)
    else:
        tell()


def _tell_lanes(alias: str, lanes: frozenset[int]) -> None:
    with suppress(JobsPlatformError):  # the work is committed, and polls find it
        _tell(alias, frozenset(_bands(alias, lanes)))


def _bands(alias: str, lanes: frozenset[int]) -> list[Mark]:
    missing = [lane for lane in lanes if (alias, lane) not in _marks]
    if missing:
        if len(_marks) > LANES_MAX:
            _marks.clear()
        for lane, *band in sql.rows("jobqueue/lane_bands", {"lane_ids": missing}, alias=alias):
            _marks[alias, lane] = Mark(*band)
    return [mark for lane in lanes if (mark := _marks.get((alias, lane))) is not None]


def _tell(alias: str, marks: frozenset[Mark]) -> None:
    for hearer in tuple(_hearers):
        hearer(alias, marks)
