"""Instants on the wire: RFC 3339 in with any offset, UTC with `Z` and microseconds out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)


def parse_instant(text: str) -> datetime:
    """An aware datetime in UTC. Raises ValueError for what is not one instant of the years 1 to 9999 in UTC.

    Refused are texts without an offset, dates alone, hour 24, leap seconds and more than six fraction digits.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not RFC 3339 with an offset and at most six fraction digits")
    year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
    microsecond = int((match[7] or "").ljust(6, "0"))
    try:
        local = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=_offset(match))
        return local.astimezone(UTC)
    except OverflowError:
        raise ValueError("before the year 1 or after the year 9999 in UTC") from None


def _offset(match: re.Match[str]) -> timezone:
    if match[8] is None:
        return UTC
    hours, minutes = int(match[9]), int(match[10])
    if hours > 23 or minutes > 59:
        raise ValueError("not an offset from UTC")
    size = timedelta(hours=hours, minutes=minutes)
    return timezone(-size if match[8] == "-" else size)


def format_instant(instant: datetime) -> str:
    """RFC 3339 in UTC with `Z` and six fraction digits. Raises ValueError for a naive datetime."""
    if instant.tzinfo is None:
        raise ValueError("a naive datetime is no instant")
    return instant.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def format_optional(instant: datetime | None) -> str | None:
    """As format_instant; None stays None."""
    return None if instant is None else format_instant(instant)
