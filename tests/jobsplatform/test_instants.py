"""Instants on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsplatform.instants import format_instant, format_optional, parse_instant


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T00:00:00+14:00", datetime(2025, 12, 31, 10, tzinfo=UTC)),
        ("2026-01-01t00:00:00.5z", datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-01-01T00:00:00.000001-00:00", datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        ("2024-02-29T23:59:59Z", datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_an_instant_with_an_offset_is_read_in_utc(text: str, instant: datetime) -> None:
    assert parse_instant(text) == instant
    assert parse_instant(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        *("2026-01-01T00:00:00", "2026-01-01", "1767225600", "2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z"),
        *("2026-01-01T00:00:00.1234567Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+01:00"),
        *("0000-01-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T00:60:00Z"),
        *(
            "2026-01-01T00:00Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00+24:00",
        ),
        *(
            "2026-01-01T00:00:00+01:60",
            "2026-01-01T00:00:00.Z",
            " 2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z\n",
        ),
        *("٢٠٢٦-01-01T00:00:00Z", "+2026-01-01T00:00:00Z", "", "now", "2026-W01-1T00:00:00Z"),
    ],
)
def test_whatever_is_not_exactly_one_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_instant(text)


def test_an_instant_is_written_in_utc_with_six_digits() -> None:
    local = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert format_instant(local) == "2026-01-01T00:00:00.000000Z"
    assert format_optional(None) is None


def test_a_naive_datetime_is_never_written() -> None:
    with pytest.raises(ValueError):
        format_instant(datetime(2026, 1, 1))


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_back(instant: datetime) -> None:
    assert parse_instant(format_instant(instant)) == instant
