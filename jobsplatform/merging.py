"""One list out of several databases: each is read along its ids, newest first, and the page is what is newest of all.

A place in such a list names, for each database, the id below which it goes on there.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, TypeVar

from jobsplatform.errors import Invalid

T = TypeVar("T")

# Number of a database → the id below which the list goes on there, 0 where nothing is left. One that is not named
# begins with its newest row.
Place = Mapping[int, int]

ID_MAX: Final = (1 << 63) - 1
DATABASES_MAX: Final = 1_000

_PLACE = re.compile(r"([0-9]{1,5})\.([0-9]{1,19})", re.ASCII).fullmatch


@dataclass(frozen=True)  # no slots: a generic class writes itself into its instances
class Part(Generic[T]):
    """What one database has: `place` is where it goes on after all its rows (0: nothing is left; None: it did not
    answer, and goes on where it `began`).
    """

    number: int
    rows: Sequence[T]
    place: int | None
    searched_back_to: datetime | None = None
    began: int | None = None


@dataclass(frozen=True)
class Page(Generic[T]):
    """Rows, newest first. `searched_back_to`: a search ended there before the page was full."""

    rows: list[T]
    following: Place | None
    searched_back_to: datetime | None = None
    unknown: list[int] = field(default_factory=list)


def merged(
    parts: Sequence[Part[T]], *, limit: int, at: Callable[[T], datetime], id_of: Callable[[T], int]
) -> Page[T]:
    """The newest rows of all parts, and where each database goes on. A part without a place did not answer."""
    numbered = ([(row, part.number) for row in part.rows] for part in parts)
    together = list(heapq.merge(*numbered, key=lambda pair: at(pair[0]), reverse=True))
    shown, rest = together[:limit], together[limit:]
    places: dict[int, int] = {part.number: part.place for part in parts if part.place is not None}
    left = {number for _, number in rest}
    for number in left:
        ids = [id_of(row) for row, whose in shown if whose == number]
        # Where nothing of it is shown yet, it begins with its first row again.
        first = next(id_of(row) for row, whose in rest if whose == number)
        places[number] = ids[-1] if ids else first + 1
    unknown = [part.number for part in parts if part.place is None]
    places |= {part.number: part.began for part in parts if part.place is None and part.began is not None}
    is_over = not unknown and all(place == 0 for place in places.values())
    backs = [part.searched_back_to for part in parts if part.searched_back_to and part.number not in left]
    return Page(
        [row for row, _ in shown],
        None if is_over else places,
        max(backs, default=None) if len(shown) < limit else None,
        unknown,
    )


def place_text(place: Place) -> str:
    """A place as an address carries it."""
    return "~".join(f"{number}.{row_id}" for number, row_id in sorted(place.items()))


def parse_place(text: str) -> Place:
    """Raises Invalid for a text that is no place."""
    found: dict[int, int] = {}
    for part in text.split("~")[:DATABASES_MAX]:
        match = _PLACE(part)
        if match is None or int(match[2]) > ID_MAX:
            raise Invalid.at("/before", "This is no place in a list.")
        found[int(match[1])] = int(match[2])
    return found
