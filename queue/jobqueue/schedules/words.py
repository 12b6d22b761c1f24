"""A cron expression in words, for people who look at a schedule."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from jobqueue.policy.cron import Fields
from jobqueue.schedules import expressions

TIMES_MAX: Final = 6  # more times of the day are told as minutes and hours
MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_STEP = re.compile(r"\*/([0-9]+)")


def words(text: str) -> str:
    """`At 02:30 on Monday to Friday in January`. Raises Invalid for what is no expression."""
    fields = expressions.fields(text)
    parts = expressions.normal(text).split(" ")
    said = [_time(parts, fields), _days(parts, fields), _months(parts, fields)]
    sentence = " ".join(part for part in said if part)
    return sentence[0].upper() + sentence[1:]


def _time(parts: Sequence[str], fields: Fields) -> str:
    minute, hour = parts[0], parts[1]
    if not fields.is_elapsed and len(fields.hours) * len(fields.minutes) <= TIMES_MAX:
        times = [f"{h:02}:{m:02}" for h in fields.hours for m in fields.minutes]
        return f"at {_listed(times)}"
    minutes = _minutes(minute, fields)
    if hour == "*":
        return minutes if minutes.startswith("every") else f"{minutes} of every hour"
    if (step := _STEP.fullmatch(hour)) is not None:
        return f"{minutes} of every {_ordinal(int(step[1]))} hour from midnight"
    many = "s" if len(fields.hours) > 1 else ""
    return f"{minutes} of the hour{many} {_runs(fields.hours, str)}"


def _minutes(minute: str, fields: Fields) -> str:
    if minute == "*" or minute == "*/1":
        return "every minute"
    step = _STEP.fullmatch(minute)
    if step is not None and 60 % int(step[1]) == 0 and len(fields.minutes) > 1:
        return f"every {step[1]} minutes"
    many = "s" if len(fields.minutes) > 1 else ""
    return f"at minute{many} {_runs(fields.minutes, str)}"


def _days(parts: Sequence[str], fields: Fields) -> str:
    by_date = _dates(parts[2], fields)
    by_week = "" if parts[4] == "*" else f"on {_runs(fields.weekdays, WEEKDAYS.__getitem__)}"
    if by_date and by_week:
        return f"{by_date} {'or' if fields.either_day else 'if it is'} {by_week.removeprefix('on ')}"
    if not by_date and not by_week and parts[3] == "*":
        return "every day" if not fields.is_elapsed else ""
    return by_date or by_week


def _dates(day: str, fields: Fields) -> str:
    if day == "*":
        return ""
    if (step := _STEP.fullmatch(day)) is not None:
        return f"on every {_ordinal(int(step[1]))} day from the 1st"
    return f"on the {_runs(fields.days, _ordinal)}"


def _months(parts: Sequence[str], fields: Fields) -> str:
    return "" if parts[3] == "*" else f"in {_runs(fields.months, lambda number: MONTHS[number - 1])}"


def _runs(values: Sequence[int], name: Callable[[int], str]) -> str:
    """`1, 3 to 5 and 9`: three or more in a row are told as a range."""
    said: list[str] = []
    rest = list(values)
    while rest:
        length = 1
        while length < len(rest) and rest[length] == rest[0] + length:
            length += 1
        if length > 2:
            said.append(f"{name(rest[0])} to {name(rest[length - 1])}")
        else:
            said.extend(name(value) for value in rest[:length])
        rest = rest[length:]
    return _listed(said)


def _listed(said: Sequence[str]) -> str:
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _ordinal(number: int) -> str:
    tail = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{tail}"
