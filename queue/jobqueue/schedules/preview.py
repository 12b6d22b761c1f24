"""When a schedule fires next, with a note wherever the clocks change, and its expression in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from jobqueue.policy.cron import Rule


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A fire: when (UTC), what the zone's clock shows then, and what a change of that clock means for it, or ""."""

    at: datetime
    wall: datetime
    note: str


def upcoming(rule: Rule, after: datetime, count: int) -> list[Upcoming]:
    """The next fires after an instant; fewer when there are no more within fifty years."""
    return [_upcoming(rule, at) for at in islice(rule.fires(after), count)]


def _upcoming(rule: Rule, at: datetime) -> Upcoming:
    wall = at.astimezone(rule.zone).replace(tzinfo=None, fold=0)
    return Upcoming(at, wall, _note(rule, at, wall))


def _note(rule: Rule, at: datetime, wall: datetime) -> str:
    if not rule.fields.has_wall(wall):
        return "the clock skips its time on this day: fires at the first instant after the gap"
    both = rule.occurrences(wall)
    if len(both) < 2:
        return ""
    if not rule.fields.is_elapsed:
        return "the clock shows this time twice: fires at the first, and not again"
    return f"the clock shows this time twice: this is the {'first' if at == both[0] else 'second'}"


def offset_words(upcoming: Upcoming) -> str:
    """How far the zone's clock is from UTC at a fire: `+01:00`."""
    minutes = round((upcoming.wall.replace(tzinfo=UTC) - upcoming.at).total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
