"""Reads cron expressions: five fields in plain ASCII, checked here, expanded by croniter.

croniter knows more than the contract allows (seconds, `@daily`, `L`, `W`, `#`, `?`, `H`, `R`, ranges that fall), and
finds fires by another rule than ours; so it is given only what passed the check, and asked only for the values.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from croniter import croniter

from jobqueue.policy.cron import Fields, Rule
from jobsplatform.errors import Invalid

CHARS_MAX: Final = 500
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
RULES_REMEMBERED: Final = 20_000

# Field, its least and greatest value, and its names.
_FIELDS: Final[tuple[tuple[str, int, int, dict[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(MONTHS, 1)}),
    ("day of the week", 0, 7, {name: number for number, name in enumerate(WEEKDAYS)}),
)
_ITEM = re.compile(r"(?:\*|([a-z]+|[0-9]{1,2})(?:-([a-z]+|[0-9]{1,2}))?)(?:/([0-9]{1,3}))?", re.ASCII)
_BLANK = re.compile(r"[ \t]+")


def fields(text: str) -> Fields:
    """The values of an expression. Raises Invalid at /cron, also for one that never fires."""
    parts = _BLANK.split(normal(text).lower())
    checked = [
        ",".join(_checked_item(item, *field) for item in part.split(","))
        for part, field in zip(parts, _FIELDS, strict=True)
    ]
    minutes, hours, days, months, weekdays = _expanded(" ".join(checked))
    found = Fields(
        minutes,
        hours,
        days,
        months,
        tuple(sorted({day % 7 for day in weekdays})),
        is_elapsed=parts[0].startswith("*") or parts[1].startswith("*"),
        either_day=not (parts[2].startswith("*") or parts[4].startswith("*")),
    )
    if not found.ever_fires:
        raise _invalid("The expression never fires: none of its months has such a day.")
    return found


def normal(text: str) -> str:
    """An expression with single spaces. Raises Invalid at /cron for what has not five fields in plain characters."""
    if len(text) > CHARS_MAX:
        raise _invalid(f"An expression has at most {CHARS_MAX} characters.")
    if not text.isascii():
        raise _invalid("An expression has only the digits 0 to 9, letters and signs of ASCII.")
    if text.lstrip().startswith("@"):
        raise _invalid("Words such as @daily are not known here; write the five fields.")
    parts = _BLANK.split(text.strip(" \t"))
    if len(parts) != len(_FIELDS):
        raise _invalid(
            f"An expression has five fields (minute, hour, day, month, weekday; no seconds), not {len(parts)}."
        )
    return " ".join(parts)


def zone(name: str) -> ZoneInfo:
    """The time zone of that name. Raises Invalid at /timezone unless it is exactly one that is known."""
    if name not in _zones():
        raise Invalid.at("/timezone", "There is no such time zone.", "unknown_timezone")
    return ZoneInfo(name)


@lru_cache(RULES_REMEMBERED)
def rule(text: str, timezone: str) -> Rule:
    """When an expression fires in a time zone. Raises Invalid."""
    return Rule(fields(text), zone(timezone))


@lru_cache(1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _checked_item(item: str, field: str, low: int, high: int, names: dict[str, int]) -> str:
    """An item as croniter is given it, which takes a range of one value, `5-5`, for the whole field.

    A step from the end of a field has nowhere to go: it is that value alone.
    """
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _invalid(f"{item!r} is nothing that the {field} can be.")
    first, last, step = match.groups()
    numbers = [_number(word, field, low, high, names) for word in (first, last) if word is not None]
    if len(numbers) == 2 and numbers[0] > numbers[1]:
        raise _invalid(f"The range {item!r} of the {field} must rise.")
    if step is not None and int(step) < 1:
        raise _invalid(f"The step of {item!r} must be at least 1.")
    is_one = len(numbers) == 2 and numbers[0] == numbers[1]
    is_end = len(numbers) == 1 and numbers[0] == high and step is not None  # it takes `7/2` for `0/2`
    return str(numbers[0]) if is_one or is_end else item


def _number(word: str, field: str, low: int, high: int, names: dict[str, int]) -> int:
    number = names.get(word, -1) if word.isalpha() else int(word)
    if not low <= number <= high:
        known = f" or a name such as {next(iter(names))}" if names else ""
        raise _invalid(f"{word!r} is no {field}: {low} to {high}{known}.")
    return number


def _expanded(text: str) -> list[tuple[int, ...]]:
    """The values of each field, sorted. croniter writes `*` for all of them."""
    expanded, _ = croniter.expand(text)
    return [
        tuple(range(low, high + 1)) if "*" in values else tuple(sorted(int(value) for value in values))
        for values, (_, low, high, _) in zip(expanded, _FIELDS, strict=True)
    ]


def _invalid(detail: str) -> Invalid:
    return Invalid.at("/cron", detail, "cron")
