"""Cron expressions at random, and when another implementation fires them: cronsim, which is written to follow Debian's.

It knows nothing of our rule: what both say alike, two people have thought of.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim

from jobqueue.schedules import expressions
from jobsplatform.errors import Invalid

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
YEARS = 5
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def expression(seed: int) -> str:
    """An expression that fires at most some thousand times a year. Equal seeds give equal expressions."""
    chance = random.Random(seed)
    minute = chance.choice(
        [_some(chance, 0, 59, 3), _some(chance, 0, 59, 1), f"*/{chance.choice((15, 20, 25, 30))}"]
    )
    is_dense = minute.startswith("*") or "," in minute
    hour = chance.choice(
        [_some(chance, 0, 4, 2), _some(chance, 0, 23, 3), "1-3", f"*/{chance.randint(2, 7)}", "*"]
    )
    day = chance.choice(["*", "*", _some(chance, 1, 31, 3), f"*/{chance.randint(2, 9)}", "24-31"])
    month = chance.choice(["*", "*", _some(chance, 1, 12, 4), chance.choice(MONTHS), "3,4,9-11"])
    weekday = chance.choice(["*", "*", _some(chance, 0, 7, 3), chance.choice(WEEKDAYS), "mon-fri", "6-7"])
    if is_dense and hour.startswith("*") and day == month == weekday == "*":
        weekday = "sun"  # when most clocks change
    return f"{minute} {hour} {day} {month} {weekday}"


def _some(chance: random.Random, low: int, high: int, most: int) -> str:
    first, second = sorted(chance.sample(range(low, high + 1), 2))
    if most > 1 and chance.random() < 0.3:
        step = chance.choice(("", f"/{chance.randint(1, 9)}"))
        return f"{first}-{min(second, first + 6)}{step}"
    values = sorted(chance.sample(range(low, high + 1), chance.randint(1, most)))
    return ",".join(map(str, values))


def expressions_from(first_seed: int, count: int) -> Iterator[str]:
    """`count` expressions that fire at all, from consecutive seeds."""
    seed, found = first_seed, 0
    while found < count:
        text = expression(seed)
        seed += 1
        if not _never_fires(text):
            found += 1
            yield text


LOST_SECONDS: Final = 1.0
LOSES_IT: Final = {"Pacific/Chatham"}  # zones in which cronsim gets lost (docs/schedules.md)


def _never_fires(text: str) -> bool:
    try:
        expressions.fields(text)
    except Invalid as refusal:
        if "never fires" not in refusal.detail:
            raise
        return True
    return False


def ours(text: str, zone: str, years: int = YEARS) -> list[datetime]:
    """Our fires of some years, in UTC."""
    found = []
    for at in expressions.rule(text, zone).fires(SINCE):
        if at.year >= SINCE.year + years:
            break
        found.append(at)
    return found


class Lost(Exception):
    """cronsim looks for its next fire for ever, or goes in circles; `found` came before."""

    def __init__(self, found: list[datetime]) -> None:
        super().__init__()
        self.found = found


def theirs(text: str, zone: str, years: int = YEARS) -> list[datetime]:
    """cronsim's. Raises Lost where one of them takes longer than a second of the processor, or is no later one."""
    found: list[datetime] = []

    def give_up(number: int, frame: object) -> None:
        raise Lost(found)

    before = signal.signal(signal.SIGVTALRM, give_up)
    try:
        fires = iter(CronSim(text, SINCE.astimezone(ZoneInfo(zone))))
        while True:
            signal.setitimer(signal.ITIMER_VIRTUAL, LOST_SECONDS)
            at = next(fires).astimezone(UTC)
            if at.year >= SINCE.year + years:
                return found
            if found and at <= found[-1]:
                raise Lost(found)
            found.append(at)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def agree(text: str, zone: str) -> bool:
    """Whether cronsim's fires of five years are ours; where it gets lost, those until then."""
    mine = ours(text, zone)
    try:
        return mine == theirs(text, zone)
    except Lost as lost:
        return zone in LOSES_IT and mine[: len(lost.found)] == lost.found
