"""Asks every shard. One that cannot be reached holds up nobody: `reach` refuses it at once, once it is known.

Who can show that a part is missing passes a list that is filled with the numbers of those shards; without one the
first failure is raised, after all the others had their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from jobsplatform import database
from jobsplatform.errors import JobsPlatformError, Unavailable, UnknownOutcome

T = TypeVar("T")

AWAY = (Unavailable, UnknownOutcome, OperationalError, InterfaceError)


def ask(one: Callable[[str], T], unknown: list[int] | None = None) -> list[T]:
    """What `one(alias)` answers for each shard that can be reached. Raises Unavailable when none can."""
    return [answer for _, answer in numbered(one, unknown)]


def numbered(one: Callable[[str], T], unknown: list[int] | None = None) -> Iterator[tuple[int, T]]:
    """As `ask`, with the number of each shard."""
    answers, failure = [], None
    for number, alias in database.aliases().items():
        try:
            answers.append((number, one(alias)))
        except AWAY as error:
            failure = failure or error
            if unknown is not None:
                unknown.append(number)
    if failure is not None and (unknown is None or not answers):
        raise failure if isinstance(failure, JobsPlatformError) else Unavailable() from failure
    return iter(answers)


def upkeep(one: Callable[[str], int]) -> int:
    """Work on every shard; the failure of one is its own, unless there is no other. Returns the sum.

    A pass that raised for one shard that is away would make its loop wait, and all other shards with it.
    """
    return sum(ask(one, unknown=[]))


def first(one: Callable[[str], T]) -> T:
    """What the first shard answers that can be reached. Raises Unavailable when none can."""
    failure: Exception | None = None
    for alias in database.aliases().values():
        try:
            return one(alias)
        except AWAY as error:
            failure = error
    raise failure if isinstance(failure, JobsPlatformError) else Unavailable() from failure


def mark(unknown: list[int]) -> dict[str, object]:
    """The members of a reply that say what is missing."""
    return {"partial": True, "unknown_shards": sorted(set(unknown))} if unknown else {}
