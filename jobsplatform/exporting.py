"""Rows as CSV or JSON lines, one at a time: inert in a spreadsheet, in a terminal and in whatever reads them later.

A spreadsheet takes a text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return for a formula: such a text
gets an apostrophe before it. Numbers stay numbers. Control characters are written as escapes.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from jobsplatform.errors import Invalid
from jobsplatform.instants import format_instant

FORMATS: Final = {"csv": "text/csv; charset=utf-8; header=present", "jsonl": "application/x-ndjson"}
LINES_AT_ONCE: Final = 200  # that one piece of an answer holds

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "＝", "＋", "－", "＠")
_KEPT: Final = ("\n", "\t")  # control characters that a quoted cell may hold

Cell = str | int | float | bool | datetime | None


def written(form: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    """The rows in a form, piece by piece. Raises Invalid for a form that there is not, before anything is read."""
    if form not in FORMATS:
        raise Invalid.at("/format", f"The format is one of {', '.join(FORMATS)}.")
    lines = _csv(columns, rows) if form == "csv" else _json_lines(columns, rows)
    return _in_pieces(lines)


def _in_pieces(lines: Iterator[str]) -> Iterator[bytes]:
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) >= LINES_AT_ONCE:
            yield "".join(held).encode()
            held.clear()
    if held:
        yield "".join(held).encode()


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\r\n")  # RFC 4180
    yield _taken(writer, line, columns)
    for row in rows:
        yield _taken(writer, line, [csv_cell(cell) for cell in row])


def _taken(writer: Any, line: io.StringIO, row: Sequence[object]) -> str:
    writer.writerow(row)
    text = line.getvalue()
    line.seek(0)
    line.truncate()
    return text


def csv_cell(cell: Cell) -> str | int | float:
    """A cell that no spreadsheet takes for a formula."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, (int, float)):
        return cell
    if isinstance(cell, datetime):
        return format_instant(cell)
    text = visible(cell)
    return (
        f"'{text}" if text.lstrip(" \u00a0\ufeff").startswith(_FORMULA) or text.startswith(_FORMULA) else text
    )


def visible(text: str) -> str:
    """Text with control characters and marks of direction written as escapes; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char in _KEPT or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else f"\\u{ord(char):04x}"
        if ord(char) < 0x10000
        else f"\\U{ord(char):08x}"
        for char in text
    )


def _json_lines(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    for row in rows:
        members = {
            name: format_instant(cell) if isinstance(cell, datetime) else cell
            for name, cell in zip(columns, row, strict=True)
        }
        yield json.dumps(members) + "\n"  # ASCII alone: nothing in it can move a terminal's cursor
