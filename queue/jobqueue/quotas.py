"""A tenant's limits beside what is used of them, and what a change of them would do. Nothing here decides anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobqueue import policies, usage
from jobqueue.schedules import reads as schedules
from jobsplatform import database, sql
from jobsplatform.errors import Invalid, NotFound
from tenants import measures, registry
from tenants.admission import QUEUE_FULL, WARNING_SHARE
from tenants.measures import Place
from tenants.models import Quota

WORDS: Final[Mapping[str, str]] = {
    "max_running": "running at once",
    "max_depth": "waiting",
    "enqueue_rate_per_s": "new jobs a second",
    "enqueue_burst": "new jobs at once",
    "max_payload_bytes": "bytes a payload",
    "max_schedules": "schedules",
    "weight": "weight among tenants",
}
LOOKED_AT_MAX: Final = 20_000  # newest jobs of a tenant and shard that a look at its rate reads: about 20 ms
NOW_SECONDS: Final = 60
HOUR_SECONDS: Final = 3_600


@dataclass(frozen=True, slots=True)
class Line:
    """One limit; None: not counted for this kind of limit, or not yet."""

    place: Place
    name: str
    value: float
    used: float | None
    peak: int | None
    refused: int | None

    @property
    def words(self) -> str:
        return WORDS[self.name]

    @property
    def where(self) -> str:
        return where(self.place)

    @property
    def share(self) -> float | None:
        """How much of the limit is used, 1: all of it; a limit of nothing is used up."""
        if self.used is None:
            return None
        return self.used / self.value if self.value else 1.0

    @property
    def is_near(self) -> bool:
        return self.share is not None and self.share >= WARNING_SHARE


def where(place: Place) -> str:
    """A place in words."""
    if not place.queue:
        return "all queues"
    return place.queue if place.band is None else f"{place.queue}, {_band_name(place)}"


def check_place(queue: str, band: int | None) -> None:
    """Raises Invalid for a queue or band that there is not."""
    if band is not None and not queue:
        raise Invalid.at("/band", "A band needs its queue.")
    if not queue:
        return
    try:
        bands = len(policies.by_name(queue).bands)
    except NotFound:
        raise Invalid.at("/queue", f"There is no queue {queue!r}.") from None
    if band is not None and not 0 <= band < bands:
        raise Invalid.at("/band", f"Queue {queue} has the bands 0 to {bands - 1}.")


def turned_away_by_queues(tenant_id: int, *, now: datetime | None = None) -> int:
    """How many of its jobs were refused in the last day because a whole queue was full."""
    found = measures.refusals(tenant_id, now=now)
    return sum(jobs for (_, cause), jobs in found.items() if cause == QUEUE_FULL)


def told(limits: Mapping[str, Any]) -> str:
    """Limits as `key=value`, those that are set."""
    return (
        ", ".join(f"{name}={value:g}" for name, value in limits.items() if value is not None) or "no limits"
    )


def lines(tenant_id: int, *, now: datetime | None = None) -> list[Line]:
    """Every limit of a tenant: its use now, the most of it in the last day, and how many jobs it turned away."""
    quotas = Quota.objects.filter(tenant_id=tenant_id).order_by("queue", "band")
    peaks = measures.peaks(tenant_id, now=now)
    refused = measures.refusals(tenant_id, now=now)
    found = []
    for quota in quotas:
        place = Place(quota.queue, quota.band)
        for name, value in registry.limits_of(quota).items():
            if value is not None:
                peak = peaks.get(place)
                most = {"max_running": peak and peak.running, "max_depth": peak and peak.waiting}.get(name)
                turned_away = refused[place, name] if name in registry.INTAKE else None
                found.append(Line(place, name, value, _used(tenant_id, place, name, now), most, turned_away))
    return found


def _used(tenant_id: int, place: Place, name: str, now: datetime | None) -> float | None:
    if name == "max_running":
        return usage.running(tenant_id, queue=place.queue, band=place.band)
    if name == "max_depth":
        return usage.waiting(tenant_id, queue=place.queue, band=place.band)
    if name == "max_schedules":
        return schedules.count(tenant_id, queue=place.queue, band=place.band)
    if name == "enqueue_rate_per_s":
        return round(sum(jobs for jobs, _ in _arrivals(tenant_id, place, NOW_SECONDS, now).values()) / 60, 1)
    return None


# What a change would do


def effects(
    slug: str,
    limits: Mapping[str, Any],
    *,
    queue: str = "",
    band: int | None = None,
    now: datetime | None = None,
) -> list[str]:
    """A sentence for each limit that would change: what stays, and what would be refused at today's use.

    Nothing is stored. Raises NotFound for a tenant that there is not.
    """
    tenant = registry.get(slug)
    quota = Quota.objects.filter(tenant=tenant, queue=queue, band=band).first() or Quota()
    changed = {name: value for name, value in limits.items() if value != getattr(quota, name)}
    look = _Look(
        tenant.pk, Place(queue, band), registry.limits_of(quota), {**registry.limits_of(quota), **limits}, now
    )
    return [sentence for name in registry.LIMITS if name in changed for sentence in look.sentences(name)]


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at what a tenant does, for the sentences about a change."""

    tenant_id: int
    place: Place
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    now: datetime | None

    def sentences(self, name: str) -> Iterable[str]:
        value = self.after[name]
        if value is None:
            return [f"No limit on {WORDS[name]} any more."]
        return {
            "max_running": self._running,
            "max_depth": self._depth,
            "enqueue_rate_per_s": self._rate,
            "enqueue_burst": self._burst,
            "max_payload_bytes": self._bytes,
            "max_schedules": self._schedules,
            "weight": self._weight,
        }[name](value)

    def _count(self, name: str) -> int:
        return int(_used(self.tenant_id, self.place, name, self.now) or 0)

    def _running(self, value: int) -> list[str]:
        over = self._count("max_running") - value
        if over > 0:
            return [
                f"{_jobs(over)} above the new limit run{_s(over)} on; none starts before {_they(over)} ended."
            ]
        return [f"{_jobs(self._count('max_running'))} run now: room for {-over} more."]

    def _depth(self, value: int) -> list[str]:
        over = self._count("max_depth") - value
        if over > 0:
            until = f"new ones are refused until fewer than {value:,} wait"
            return [f"{_jobs(over)} above the new depth stay{_s(over)}; {until}."]
        return [f"{_jobs(self._count('max_depth'))} wait now: room for {-over:,} more."]

    def _rate(self, value: float) -> list[str]:
        burst = self.after["enqueue_burst"] or math.ceil(value)
        minutes = self._minutes()
        refused = would_refuse(minutes, value, burst)
        if not sum(minutes):
            return ["No job came in within the last hour: nothing would have been refused."]
        if not refused:
            return ["At the rate of the last hour nothing would have been refused."]
        a_minute = refused / len(minutes)
        shown = f"{a_minute:,.0f}" if a_minute >= 1 else "less than 1"
        return [f"At the rate of the last hour it would have refused {shown} a minute."]

    def _burst(self, value: int) -> list[str]:
        if self.after["enqueue_rate_per_s"] is None:
            return ["A burst has no effect without a rate."]
        return [f"{value:,} jobs may come in at once, then {self.after['enqueue_rate_per_s']:g} a second."]

    def _bytes(self, value: int) -> list[str]:
        found = _arrivals(self.tenant_id, self.place, HOUR_SECONDS, self.now, size=value)
        larger = sum(larger for _, larger in found.values())
        jobs = sum(jobs for jobs, _ in found.values())
        return [f"Of {_jobs(jobs)} of the last hour it would have refused {larger:,}."]

    def _schedules(self, value: int) -> list[str]:
        have = self._count("max_schedules")
        return [
            f"{have} schedules stay; {'no more can be made' if have >= value else f'{value - have} more can be made'}."
        ]

    def _weight(self, value: int) -> list[str]:
        return [f"Where tenants wait beside each other it gets {value} turns for 1 of a tenant of weight 1."]

    def _minutes(self) -> list[int]:
        """Jobs that asked to come in, by each of the last sixty minutes: those that did, and a share of the refused."""
        counts = [jobs for jobs, _ in _arrivals(self.tenant_id, self.place, HOUR_SECONDS, self.now).values()]
        refused = measures.refusals(self.tenant_id, seconds=HOUR_SECONDS, now=self.now)
        turned_away = refused[self.place, "enqueue_rate_per_s"]
        minutes = [0] * max(0, 60 - len(counts)) + counts
        return [jobs + turned_away // len(minutes) for jobs in minutes]


def would_refuse(minutes: Sequence[int], rate_per_s: float, burst: float) -> int:
    """How many jobs a rate would have turned away, of those that came in each minute. Pure.

    Within a minute they are taken as spread evenly: a burst of seconds is not seen.
    """
    tokens, refused = float(burst), 0.0
    for jobs in minutes:
        room = tokens + rate_per_s * 60
        admitted = min(room, jobs)
        refused += jobs - admitted
        tokens = min(float(burst), room - admitted)
    return round(refused)


def _arrivals(
    tenant_id: int, place: Place, seconds: int, now: datetime | None, *, size: int | None = None
) -> dict[datetime, tuple[int, int]]:
    """Minute → how many jobs came in, and how many of them with a larger payload than `size`."""
    try:
        queue_id = policies.by_name(place.queue).id if place.queue else None
    except NotFound:
        return {}
    params = {
        "tenant_id": tenant_id,
        "queue_id": queue_id,
        "priority": place.band,
        "bytes": size,
        "since_s": seconds,
        "bound": LOOKED_AT_MAX,
        "now": now,
    }
    jobs: Counter[datetime] = Counter()
    larger: Counter[datetime] = Counter()
    for alias in database.aliases().values():
        for minute, count, over in sql.rows("jobqueue/arrivals", params, alias=alias):
            jobs[minute] += count
            larger[minute] += over
    return {minute: (jobs[minute], larger[minute]) for minute in sorted(jobs)}


def _band_name(place: Place) -> str:
    assert place.band is not None
    try:
        bands = policies.by_name(place.queue).bands
    except NotFound:
        bands = ()
    return bands[place.band].name if place.band < len(bands) else f"band {place.band}"


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _s(count: int) -> str:
    return "s" if count == 1 else ""


def _they(count: int) -> str:
    return "it has" if count == 1 else "they have"
