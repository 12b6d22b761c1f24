"""Refusals, ages and sizes in the words that people read: on a command's line, in the admin's messages."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.utils import timezone

from jobsplatform.errors import FieldError, Invalid, JobsPlatformError

_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def describe(error: JobsPlatformError) -> str:
    """A refusal as one line: where it was found, and what the platform said."""
    if not isinstance(error, Invalid) or not error.errors:
        return one_line(error.detail)
    return "; ".join(dict.fromkeys(_fault(fault) for fault in error.errors))


def _fault(fault: FieldError) -> str:
    place = fault.pointer.strip("/").replace("__all__", "")
    detail = one_line(fault.detail).removeprefix("__all__: ")
    return detail if not place or place.split("/")[0] in detail else f"{place}: {detail}"


def one_line(text: object) -> str:
    """Text without line breaks or runs of white space."""
    return " ".join(str(text).split())


def printable(text: object) -> str:
    """Text from outside for a terminal: one line, and no character that would move its cursor or colour it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in one_line(text))


def span(seconds: float) -> str:
    """A length of time in its two largest units: `2 h 5 min`, `4.2 s`."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    for size, unit, part_size, part in _UNITS:
        if seconds >= size:
            rest = int(seconds % size // part_size)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{seconds:.1f} s"


def age(since: datetime) -> str:
    """How long ago that was, by this machine's clock."""
    return span((timezone.now() - since).total_seconds())


def size(count: int) -> str:
    """A number of bytes."""
    return f"{count:,} bytes"
