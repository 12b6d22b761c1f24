"""What differs between two payloads, line by line, as people read JSON; or between two messages. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dlq import patching

LINES_MAX: Final = 800  # of each side: comparing costs their product
_INDENT: Final = "  "


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a comparison: `sign` is "-" (old), "+" (new) or " " (both)."""

    sign: str
    text: str


def diff(old: str, new: str) -> list[Line] | None:
    """The lines of two JSON texts that differ, with what stands around them; None: they are too long to compare.

    Members keep their order and numbers their digits. Two texts that differ in white space alone have no lines.
    """
    return _compared(list(_lines(old)), list(_lines(new)), around=3)


def diff_texts(old: str, new: str) -> list[Line] | None:
    """The lines of two texts, those that differ marked; [] when they are the same, None when they are too long."""
    return _compared(_ended(old), _ended(new), around=LINES_MAX)


def _ended(text: str) -> list[str]:
    """Lines as a terminal ends them: other ends of Unicode are part of a message."""
    return text.replace("\r\n", "\n").rstrip("\n").split("\n")


def _compared(before: list[str], after: list[str], *, around: int) -> list[Line] | None:
    if len(before) > LINES_MAX or len(after) > LINES_MAX:
        return None
    found: list[Line] = []
    for line in difflib.unified_diff(before, after, lineterm="", n=around):
        if line.startswith(("--- ", "+++ ")) and not found:
            continue
        found.append(Line(" ", "…") if line.startswith("@@") else Line(line[0], line[1:]))
    return found[1:] if around == LINES_MAX else found  # nothing is left out: no mark of it


def _lines(text: str) -> Iterator[str]:
    """A JSON text over several lines; a text that is none, as it stands."""
    try:
        value = patching.parsed(text)
    except (ValueError, RecursionError):
        return iter(text.splitlines())
    return _told("", value, 0, "")


def _told(name: str, value: object, depth: int, end: str) -> Iterator[str]:
    space = _INDENT * depth
    if isinstance(value, dict) and value:
        yield f"{space}{name}{{"
        yield from _members([(f"{json.dumps(key)}: ", item) for key, item in value.items()], depth)
        yield f"{space}}}{end}"
    elif isinstance(value, list) and value:
        yield f"{space}{name}["
        yield from _members([("", item) for item in value], depth)
        yield f"{space}]{end}"
    else:
        yield f"{space}{name}{value if isinstance(value, patching.Digits) else json.dumps(value)}{end}"


def _members(members: list[tuple[str, object]], depth: int) -> Iterator[str]:
    for place, (name, item) in enumerate(members, 1):
        yield from _told(name, item, depth + 1, "," if place < len(members) else "")
