"""Exports: no cell is a formula, no control character gets through, numbers stay numbers, and pieces are small."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsplatform import exporting
from jobsplatform.errors import Invalid
from jobsplatform.exporting import csv_cell, visible, written

HOSTILE = [
    "=cmd|'/c calc'!A1",
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "  =1",
    "＝1",
    "\u00a0=1",
    "\ufeff=1",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_a_cell_that_a_spreadsheet_takes_for_a_formula(text: str) -> None:
    """An apostrophe stands before it, or the written-out form of a character that is not shown."""
    assert str(csv_cell(text)).startswith(("'", "\\u"))


def test_numbers_stay_numbers_and_nothing_is_nothing() -> None:
    assert [csv_cell(cell) for cell in (-5, 0, 2.5, None, True, "a")] == [-5, 0, 2.5, "", "true", "a"]


def test_control_characters_are_written_out() -> None:
    assert visible("a\x1b[31m\u202e\x00\u2028b\n\tc") == "a\\u001b[31m\\u202e\\u0000\\u2028b\n\tc"
    assert visible("äöü €") == "äöü €"


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_what_is_written_as_csv_is_read_again(cells: list[str]) -> None:
    columns = [f"c{place}" for place in range(len(cells))]
    text = b"".join(written("csv", columns, [cells])).decode()
    read = list(csv.reader(io.StringIO(text, newline="")))
    assert read == [columns, [str(csv_cell(cell)) for cell in cells]]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_json_lines_hold_the_texts_as_they_are_in_ascii(cells: list[str]) -> None:
    columns = [f"c{place}" for place in range(len(cells))]
    line = b"".join(written("jsonl", columns, [cells]))
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert list(json.loads(line).values()) == cells


def test_rows_are_asked_for_piece_by_piece() -> None:
    asked = 0

    def rows() -> Iterator[list[int]]:
        nonlocal asked
        for asked in range(1, 1_001):
            yield [asked]

    pieces = written("csv", ["n"], rows())
    next(pieces)
    assert asked <= exporting.LINES_AT_ONCE


def test_a_form_that_there_is_not_is_refused_before_anything_is_read() -> None:
    with pytest.raises(Invalid):
        written("xls", ["n"], iter([]))
