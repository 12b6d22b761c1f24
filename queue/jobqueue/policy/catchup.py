"""What a schedule does with the fires that are due: the pure part of `missed` and of pacing."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from jobqueue.policy.cron import Rule

CATCH_UP_MAX: Final = 10  # of the missed fires, `all` makes up the newest ten
COUNTED_MAX: Final = 1_000  # missed fires are counted up to here; beyond, the count says "at least"
ON_TIME: Final = timedelta(seconds=60)  # an older fire is missed; two fires are at least as far apart
# How far back the newest fires are looked for, when there are more than are counted.
LOOK_BACK: Final = tuple(
    timedelta(minutes=m) for m in (15, 180, 2_880, 44_640, 527_040, 5_270_400, 26_352_000)
)


class Missed(Enum):
    """What becomes of fires that nobody could fire in time."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Due:
    """The fires that are due: the newest in order, how many there are (at most `COUNTED_MAX`), and what follows."""

    newest: tuple[datetime, ...]
    count: int
    following: datetime | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Which due fire to make now (None: none), how many are passed over for good, and which comes next.

    `is_paced`: the next one is due already and must keep its distance.
    """

    fire: datetime | None
    skipped: int
    following: datetime | None
    is_paced: bool = False


def due(rule: Rule, first: datetime, now: datetime) -> Due:
    """The fires from `first` (which is one) to `now`. `first` is not after `now`."""
    newest, count, following = deque([first], CATCH_UP_MAX), 1, rule.next(first)
    while following is not None and following <= now:
        if count == COUNTED_MAX:
            return Due(_newest(rule, first, now), count, rule.next(now))
        newest.append(following)
        count, following = count + 1, rule.next(following)
    return Due(tuple(newest), count, following)


def _newest(rule: Rule, first: datetime, now: datetime) -> tuple[datetime, ...]:
    """The newest fires of many, found from the end."""
    for span in LOOK_BACK:
        newest: deque[datetime] = deque(maxlen=CATCH_UP_MAX)
        for at in rule.fires(max(first, now - span)):
            if at > now:
                break
            newest.append(at)
        if len(newest) == CATCH_UP_MAX or now - span <= first:
            break
    return tuple(newest)


def decide(missed: Missed, fires: Due, now: datetime) -> Decision:
    """What to do about due fires. One that is due for less than a minute is on time, and never missed."""
    newest = fires.newest[-1]
    if missed is Missed.ALL:
        return _all(fires)
    if missed is Missed.SKIP and now - newest > ON_TIME:
        return Decision(None, fires.count, fires.following)
    return Decision(newest, fires.count - 1, fires.following)


def _all(fires: Due) -> Decision:
    """The oldest of the newest ten; the next of them comes after a pause."""
    rest: Sequence[datetime] = fires.newest[1:]
    skipped = fires.count - len(fires.newest)
    if rest:
        return Decision(fires.newest[0], skipped, rest[0], is_paced=True)
    return Decision(fires.newest[0], skipped, fires.following)
