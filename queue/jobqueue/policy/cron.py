"""When a cron expression fires in a time zone: the rule of the contract, on fields that are expanded already.

An expression whose minute or hour field starts with `*` follows elapsed time: it fires at each minute that passes and
whose wall clock matches, so twice in an hour that is repeated and never in one that is skipped. All others follow
local time: a wall time that is skipped fires at the first instant after the gap (several of one gap: once), one that
occurs twice fires at its first occurrence.

Instants come and go in UTC; *wall* times are naive. Every search is bounded: `YEARS_MAX` ahead, by days.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

YEARS_MAX: Final = 50  # 29 February on a given weekday comes within 40 years, also over the year 2100
DAYS_IN_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # at most
MINUTE: Final = timedelta(minutes=1)
STEP: Final = timedelta(hours=24)  # no zone changes its offset twice within it


@dataclass(frozen=True, slots=True)
class Fields:
    """An expression's values, each field sorted; weekdays count from Sunday, 0 to 6.

    `is_elapsed`: minute or hour starts with `*`. `either_day`: day and weekday are both restricted, and one is enough
    (as in Vixie's cron); else both must match.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    is_elapsed: bool = True
    either_day: bool = False

    @property
    def ever_fires(self) -> bool:
        """Whether some day of some year matches. Each date that exists falls on each weekday some year."""
        return self.either_day or any(self.days[0] <= DAYS_IN_MONTH[month - 1] for month in self.months)

    def has_day(self, day: date) -> bool:
        """Whether a day matches."""
        if day.month not in self.months:
            return False
        by_date, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_week if self.either_day else by_date and by_week

    def has_wall(self, wall: datetime) -> bool:
        """Whether a wall time matches."""
        return wall.minute in self.minutes and wall.hour in self.hours and self.has_day(wall.date())

    def first_wall(self, wall: datetime) -> datetime | None:
        """The first matching wall time that is not before `wall`; None when `YEARS_MAX` years hold none."""
        moment = self._in_day(wall.time()) if self.has_day(wall.date()) else None
        if moment is not None:
            return datetime.combine(wall.date(), moment)
        day = self._next_day(wall.date())
        return None if day is None else datetime.combine(day, time(self.hours[0], self.minutes[0]))

    def _in_day(self, earliest: time) -> time | None:
        minute = earliest.minute + (earliest.second or earliest.microsecond) / 60
        if earliest.hour in self.hours:
            index = bisect_left(self.minutes, minute)
            if index < len(self.minutes):
                return time(earliest.hour, self.minutes[index])
        index = bisect_left(self.hours, earliest.hour + 1)
        return time(self.hours[index], self.minutes[0]) if index < len(self.hours) else None

    def _next_day(self, day: date) -> date | None:
        last_year = min(day.year + YEARS_MAX, date.max.year)
        while day < date.max:
            day += timedelta(days=1)
            while day.month not in self.months:
                if day.year >= last_year and day.month == 12:
                    return None
                day = _next_month(day)
            if day.year > last_year:
                return None
            if self.has_day(day):
                return day
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """An expression in a time zone."""

    fields: Fields
    zone: tzinfo

    def next(self, after: datetime) -> datetime | None:
        """The first fire after an instant; None when there is none within the bound, or before the year 9999 ends."""
        try:
            if self.fields.is_elapsed:
                return self._next_elapsed(after)
            return self._next_local(after)
        except OverflowError:
            return None

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Every fire after an instant, in order."""
        found = self.next(after)
        while found is not None:
            yield found
            found = self.next(found)

    # Elapsed time: walk along stretches of one offset.

    def _next_elapsed(self, after: datetime) -> datetime | None:
        at = after.astimezone(UTC)
        offset = self._offset(at)
        wall = self.fields.first_wall(_after_minute(at + offset))
        while wall is not None:
            found = _utc(wall - offset)
            end = min(found, at + STEP)
            if self._offset(end) == offset:
                if found == end:
                    return found
                at = end
                continue
            change = self._change(at, end)
            if found < change:
                return found
            at, offset = change, self._offset(change)
            wall = self.fields.first_wall(_wall(at + offset))
        return None

    # Local time: walk along the wall clock.

    def _next_local(self, after: datetime) -> datetime | None:
        wall = self.fields.first_wall(_after_minute(_wall(after.astimezone(self.zone))))
        while wall is not None:
            found = self.instant_of(wall)
            if found > after:
                return found
            wall = self.fields.first_wall(wall + MINUTE)
        return None

    def instant_of(self, wall: datetime) -> datetime:
        """When a wall time is: its first occurrence, or the first instant after the gap that it lies in."""
        found = wall.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        if _wall(found.astimezone(self.zone)) == wall:
            return found
        return self._change(wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC), found)

    def occurrences(self, wall: datetime) -> list[datetime]:
        """The instants at which the wall clock shows this time: none, one or two."""
        both = {wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return sorted(at for at in both if _wall(at.astimezone(self.zone)) == wall)

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self.zone).utcoffset() or timedelta(0)

    def _change(self, low: datetime, high: datetime) -> datetime:
        """The first instant after `low` that has the offset of `high`; the two differ, by one change between them."""
        before, seconds = self._offset(low), int((high - low).total_seconds())
        first, last = 0, seconds  # the offset is the old one at `first`, the new one at `last`
        while last - first > 1:
            middle = (first + last) // 2
            if self._offset(low + timedelta(seconds=middle)) == before:
                first = middle
            else:
                last = middle
        return low + timedelta(seconds=last)


def _wall(at: datetime) -> datetime:
    return at.replace(tzinfo=None, fold=0)


def _utc(wall: datetime) -> datetime:
    return wall.replace(tzinfo=UTC)


def _after_minute(at: datetime) -> datetime:
    """The wall time of the whole minute after."""
    return _wall(at).replace(second=0, microsecond=0) + MINUTE


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)
