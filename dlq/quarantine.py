"""Takes in jobs that left the schedule, with a fingerprint that groups like errors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jobqueue.types import DeadTicket
from jobsplatform import sql

# What differs between two occurrences of one fault: ids, addresses, long tokens, numbers, quoted values. The order of
# the alternatives matters: a number is the rest of none of the others.
_VARIABLE = re.compile(
    r"""0x[0-9a-f]+
    | [0-9a-f]{8}-[0-9a-f-]{27,}
    | \b(?=[a-f]*[0-9])[0-9a-f]{8,}\b
    | \b(?=[a-z_-]*[0-9])[0-9a-z_-]{20,}\b
    | \d+
    | "[^"]*" | '[^']*' | `[^`]*` | «[^»]*» | “[^”]*”
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Where a program was: Python's `File "…/name.py", line 3, in function`, and `at place (file:3)` of Java and JavaScript.
_PYTHON_FRAME = re.compile(r'^\s*File "(?:[^"]*[/\\])?([^"/\\]+)", line \d+, in (\S+)')
_AT_FRAME = re.compile(r"^\s*at ([^\s(]+)")
_TRACEBACK = "Traceback (most recent call last)"


def quarantine(tickets: Sequence[DeadTicket], *, alias: str) -> None:
    """Insert the dead letters of `tickets` in the caller's transaction on `alias`."""
    rows = [_row(ticket) for ticket in tickets]
    sql.rows("dlq/quarantine", {"tickets": json.dumps(rows, default=str)}, alias=alias)


def _row(ticket: DeadTicket) -> dict[str, Any]:
    values = asdict(ticket)
    message = ticket.message or ""
    values |= {"failed_at": values.pop("at"), "message": message}
    return values | {"fingerprint": fingerprint(ticket.error_class, message)}


def fingerprint(error_class: str | None, message: str) -> str:
    """16 hex digits, equal for errors of one class that say the same at the same place, but for variable parts.

    Of the message count the first and the last line, and the frame in which it was raised, where it names one.
    """
    lines = [line for line in message.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_TRACEBACK)]
    shape = "\n".join(_VARIABLE.sub("?", " ".join(line.split())) for line in _telling(lines, said))
    frame = _top_frame(lines)
    parts = (str(error_class), shape) if frame is None else (str(error_class), shape, frame)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def _telling(lines: list[str], said: list[str]) -> list[str]:
    """The first and the last line; of a traceback the last alone, which is the error's own."""
    if lines and lines[0].startswith(_TRACEBACK):
        return said[-1:]
    return said[:1] + said[-1:]


def _top_frame(lines: list[str]) -> str | None:
    """The function and file where the error was raised: Python names it last, others first."""
    python = [match for line in lines if (match := _PYTHON_FRAME.match(line))]
    if python:
        return f"{python[-1][1]} {python[-1][2]}"
    at = next((match for line in lines if (match := _AT_FRAME.match(line))), None)
    return None if at is None else _VARIABLE.sub("?", at[1])
