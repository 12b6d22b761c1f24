"""Errors that somebody knows of and has put off: they call for no attention until their time is over or they grow.

A snooze names an instant and a number: when so many more dead letters came since, it holds no longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.db.models.functions import Now

from dlq.models import Handling
from jobqueue.types import FLEET
from jobsplatform import everywhere, sql

SHOWN_MAX: Final = 100  # snoozes in force that are looked at
LANES_MAX: Final = 1_500  # that one look counts in: about 3 µs each and error
COUNT_CAP: Final = 10_000  # dead letters of an error that are counted in a lane
RECENT_SECONDS: Final = 300  # "lately", as growth has it


@dataclass(frozen=True, slots=True)
class Quiet:
    """What snoozes in force keep quiet: recent dead letters by queue, how many came since by fingerprint."""

    held: dict[str, Handling] = field(default_factory=dict)
    recent: dict[int, int] = field(default_factory=dict)
    more: dict[str, int] = field(default_factory=dict)

    def holds(self, fingerprint: str) -> bool:
        """Whether that error is put off now."""
        return fingerprint in self.held and not self.has_grown(fingerprint)

    def has_grown(self, fingerprint: str) -> bool:
        """Whether more of it came than its snooze bears."""
        held = self.held.get(fingerprint)
        return held is not None and self.more.get(fingerprint, 0) > (held.wakes_after or 0)

    def grown(self) -> list[tuple[Handling, int]]:
        """The snoozes that their errors have outgrown, with how many came since."""
        return [(held, self.more[name]) for name, held in self.held.items() if self.has_grown(name)]


def in_force(now: datetime | None = None) -> list[Handling]:
    """The snoozes whose time is not over, the newest first."""
    held = Handling.objects.filter(snoozed_until__gt=now or Now()).order_by("-snoozed_at")
    return list(held[:SHOWN_MAX])


def counted(alias: str, held: Sequence[Handling], now: datetime | None = None) -> list[sql.Row]:
    """What came of these on a shard; asks nothing when there are none."""
    if not held:
        return []
    params = {
        "fingerprints": [one.fingerprint for one in held],
        "since": [one.snoozed_at for one in held],
        "caps": [max(one.wakes_after or 0, COUNT_CAP) for one in held],
        "recent_s": RECENT_SECONDS,
        "lanes_max": LANES_MAX,
        "now": now,
        **FLEET.params(),
    }
    return sql.rows("dlq/snoozed", params, alias=alias)


def summed(held: Sequence[Handling], shards: Iterable[Sequence[sql.Row]]) -> Quiet:
    """Add up what `counted` said of all shards."""
    rows = [row for shard in shards for row in shard]
    more: Counter[str] = Counter()
    for fingerprint, _, _, since in rows:
        more[fingerprint] += since
    quiet = Quiet({one.fingerprint: one for one in held}, {}, dict(more))
    for fingerprint, queue_id, lately, _ in rows:
        if quiet.holds(fingerprint):
            quiet.recent[queue_id] = quiet.recent.get(queue_id, 0) + lately
    return quiet


def look(now: datetime | None = None) -> Quiet:
    """The snoozes in force and what they keep quiet, over all shards that answer."""
    held = in_force(now)
    return summed(held, everywhere.ask(lambda alias: counted(alias, held, now), unknown=[]))
