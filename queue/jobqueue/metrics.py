"""What each shard's work looks like on `/metrics`: ages first, then counts; the queues that matter most by name.

Every number is read within a bound: at most `LANES_MAX` lanes are looked into and `JOBS_MAX` jobs of a band counted,
however many there are (`jobsplatform_metrics_lanes_beyond` says what was left out). Gauges name the `QUEUES_MAX`
queues nearest to their age objectives, then those whose work is oldest, and `other`. Counters name the queues with most
starts; their sum is a family of its own, as a changing `other` would fall and be read as a restart.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import prometheus_client
from django.db import DatabaseError, InterfaceError
from prometheus_client.metrics_core import Metric

from jobqueue.models import Lease, Queue, ReadyJob, ScheduledJob
from jobsplatform import events, metrics
from jobsplatform.metrics import OTHER, Ask, Labels, counter, gauge
from tenants.models import Tenant

QUEUES_MAX: Final = 50  # by name; five bands of each in six families are about 150 KB
TENANTS_MAX: Final = 20
DEPENDENCIES_MAX: Final = 50
LANES_MAX: Final = 10_000  # looked into: two index probes each, about 50 ms
JOBS_MAX: Final = 2_000  # of a band that are counted
LEASES_MAX: Final = 200_000
SHARE_SECONDS: Final = 300.0  # over which shares of starts are reckoned
SHARE_STARTS_MIN: Final = 50  # of a queue within it; fewer say nothing

_PLACES: Final = {
    ReadyJob._meta.db_table: "ready",
    ScheduledJob._meta.db_table: "scheduled",
    Lease._meta.db_table: "running",
}
# Family → description, and its place in a row of `metrics_tallies` after queue and band.
_TALLIES: Final = {
    "starts": ("Jobs that were started.", 0),
    "first_starts": ("Jobs that were started for the first time.", 1),
    "retries_promoted": ("Retries that the retry budget let through.", 2),
    "successes": ("Attempts that succeeded.", 3),
    "failures": ("Attempts that failed.", 4),
    "retries": ("Failed attempts that will be tried again.", 5),
    "lease_losses": ("Leases that lapsed while a worker held them.", 6),
    "deaths": ("Jobs that became dead letters.", 7),
}

Band = tuple[int, int]  # queue id, priority


@dataclass(slots=True)
class _Shard:
    """What one shard told."""

    ages: list[tuple[int | None, int | None, int | None, float]]
    running: list[tuple[int | None, int | None, int | None, float]]
    tallies: list[tuple[Any, ...]]
    places: list[tuple[str, float, float, float]]
    due_s: float
    lapsed_s: float
    dead_rows: float
    breakers: list[tuple[str, str]]


@dataclass(slots=True)
class _Picture:
    """All shards together: ages in seconds, counts of jobs; what tallies say by band since the beginning."""

    ages: dict[Band, float] = field(default_factory=dict)
    tenant_ages: dict[int, float] = field(default_factory=dict)
    running: Counter[Band] = field(default_factory=Counter)
    tenant_running: Counter[int] = field(default_factory=Counter)
    tallies: dict[Band, list[int]] = field(default_factory=dict)
    total: list[int] = field(default_factory=lambda: [0] * len(_TALLIES))
    shards: dict[str, _Shard] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Name:
    """A queue by name: its bands' names, weights of those that take turns, objectives in seconds by band."""

    name: str
    bands: tuple[str, ...]
    weights: tuple[float, ...]
    objectives: Mapping[str, float]

    def band(self, priority: int) -> str:
        return self.bands[priority] if priority < len(self.bands) else str(priority)


@metrics.add_source
def of_work() -> Iterator[Metric]:
    """Every family that shards tell of."""
    picture = _picture()
    judged = _objectives(picture.ages)
    chosen = _most_pressing(picture, judged)
    names = _names_of({*chosen, *(queue for queue, _ in picture.tallies)})
    yield from _ages(picture, chosen, names, judged)
    yield from _counts(picture, chosen, names)
    yield from _tenants(picture)
    yield from _tallied(picture, names)
    yield gauge(
        "share_ratio",
        f"Share of a queue's starts that a band had in {SHARE_SECONDS:.0f} s, of what its weight is worth among those "
        "that started.",
        ("queue", "band"),
        _shares.ratios(picture.tallies, names),
    )
    yield from _upkeep(picture)


# Reading


def _picture() -> _Picture:
    picture = _Picture()
    for alias in metrics.shards():
        shard = metrics.asked(alias, _read)
        if shard is not None:
            picture.shards[alias] = shard
            _add(picture, shard)
    return picture


def _read(ask: Ask) -> _Shard:
    due = ask("jobqueue/doctor_work", {"hot": list(_PLACES), "now": None})[0]
    bands = {"bands_max": QUEUES_MAX * 5}
    return _Shard(
        tallies=ask("jobqueue/metrics_tallies", bands),
        running=ask("jobqueue/metrics_running", {"bound": LEASES_MAX}),
        ages=ask("jobqueue/metrics_lanes", {"lanes_max": LANES_MAX, "now": None}),
        places=ask("jobqueue/metrics_places", {"tables": list(_PLACES), "lanes_max": LANES_MAX, "now": None}),
        due_s=due[0] or 0.0,
        lapsed_s=due[1] or 0.0,
        dead_rows=due[3] or 0,
        breakers=ask("jobqueue/metrics_breakers", {"most": DEPENDENCIES_MAX}),
    )


def _add(picture: _Picture, shard: _Shard) -> None:
    for queue_id, priority, tenant_id, age_s in shard.ages:
        if tenant_id is not None:
            picture.tenant_ages[tenant_id] = max(age_s, picture.tenant_ages.get(tenant_id, 0.0))
        elif queue_id is not None and priority is not None:
            band = (queue_id, priority)
            picture.ages[band] = max(age_s, picture.ages.get(band, 0.0))
    for queue_id, priority, tenant_id, jobs in shard.running:
        if tenant_id is not None:
            picture.tenant_running[tenant_id] += int(jobs)
        elif queue_id is not None and priority is not None:
            picture.running[queue_id, priority] += int(jobs)
    for queue_id, priority, *counts in shard.tallies:
        if queue_id is None:
            picture.total = [a + b for a, b in zip(picture.total, counts, strict=False)]
        else:
            held = picture.tallies.setdefault((queue_id, priority), [0] * len(_TALLIES))
            picture.tallies[queue_id, priority] = [a + b for a, b in zip(held, counts, strict=False)]


def _most_pressing(picture: _Picture, judged: Mapping[Band, tuple[float, float]]) -> list[int]:
    """Ids of the queues that gauges name: nearest to their objectives, then with the oldest work, then the busiest."""
    ratio, age, busy = defaultdict[int, float](float), defaultdict[int, float](float), Counter[int]()
    for (queue_id, _), (_, share) in judged.items():
        ratio[queue_id] = max(ratio[queue_id], share)
    for (queue_id, _), age_s in picture.ages.items():
        age[queue_id] = max(age[queue_id], age_s)
    for (queue_id, _), jobs in picture.running.items():
        busy[queue_id] += jobs
    for (queue_id, _), counts in picture.tallies.items():
        busy[queue_id] += counts[0]
    every = {*ratio, *age, *busy}
    return sorted(every, key=lambda one: (-ratio[one], -age[one], -busy[one], one))[:QUEUES_MAX]


# Names and objectives: of the control database, and remembered while it is away.

_names: dict[int, _Name] = {}
_slugs: dict[int, str] = {}
_aims: dict[int, _Name] = {}


def _objectives(ages: Mapping[Band, float]) -> dict[Band, tuple[float, float]]:
    """Of every band with an age objective: the seconds, and the share of them that its oldest work has waited."""
    try:
        queues = Queue.objects.exclude(age_objective_s=None).only("name", "bands", "age_objective_s")
        found = {queue.pk: _named(queue) for queue in queues}
        _aims.clear()
        _aims.update(found)
    except (DatabaseError, InterfaceError):
        pass
    judged: dict[Band, tuple[float, float]] = {}
    for queue_id, named in _aims.items():
        for priority, band in enumerate(named.bands):
            aim_s = named.objectives.get(band)
            if aim_s:
                judged[queue_id, priority] = (aim_s, ages.get((queue_id, priority), 0.0) / aim_s)
    return judged


def _names_of(queue_ids: Iterable[int]) -> Mapping[int, _Name]:
    wanted = list(queue_ids)
    try:
        queues = Queue.objects.filter(pk__in=wanted).only("name", "bands", "age_objective_s")
        found = {queue.pk: _named(queue) for queue in queues}
        _names.clear()
        _names.update(found)
    except (DatabaseError, InterfaceError):
        pass
    return {one: _names.get(one) or _Name(f"#{one}", (), (), {}) for one in wanted}


def _named(queue: Queue) -> _Name:
    bands = queue.bands
    weights = tuple(0.0 if band.get("strict") else float(band.get("weight") or 0) for band in bands)
    return _Name(queue.name, tuple(band["name"] for band in bands), weights, queue.age_objective_s or {})


def _slugs_of(tenant_ids: Sequence[int]) -> Mapping[int, str]:
    with contextlib.suppress(DatabaseError, InterfaceError):
        _slugs.update(Tenant.objects.filter(pk__in=tenant_ids).values_list("pk", "slug"))
    return {one: _slugs.get(one, f"#{one}") for one in tenant_ids}


# Families


def _labelled(
    values: Mapping[Band, float], chosen: Iterable[int], names: Mapping[int, _Name]
) -> dict[Labels, float]:
    kept = set(chosen)
    return {
        (names[queue_id].name, names[queue_id].band(priority)): float(value)
        for (queue_id, priority), value in values.items()
        if queue_id in kept
    }


def _rest(values: Mapping[Band, float], chosen: Iterable[int]) -> Iterator[float]:
    kept = set(chosen)
    return (value for (queue_id, _), value in values.items() if queue_id not in kept)


def _ages(
    picture: _Picture,
    chosen: Sequence[int],
    names: Mapping[int, _Name],
    judged: Mapping[Band, tuple[float, float]],
) -> Iterator[Metric]:
    label = ("queue", "band")
    ages = _labelled(picture.ages, chosen, names)
    ages[OTHER, ""] = max(_rest(picture.ages, chosen), default=0.0)
    yield gauge("oldest_ready_seconds", "For how long the oldest runnable job waits.", label, ages)
    aims = {band: aim_s for band, (aim_s, _) in judged.items()}
    yield gauge(
        "age_objective_seconds",
        "The queue's own objective of that age.",
        label,
        _labelled(aims, chosen, names),
    )
    ratios = {band: ratio for band, (_, ratio) in judged.items()}
    shown = _labelled(ratios, chosen, names)
    shown[OTHER, ""] = max(_rest(ratios, chosen), default=0.0)
    yield gauge("age_objective_ratio", "The age, of its objective: above 1 it is missed.", label, shown)


def _counts(picture: _Picture, chosen: Sequence[int], names: Mapping[int, _Name]) -> Iterator[Metric]:
    label = ("queue", "band")
    ready = _ready([band for band in picture.ages if band[0] in set(chosen)], picture)
    text = f"Runnable jobs, counted up to {JOBS_MAX:,} a band and shard."
    yield gauge("ready_jobs", text, label, _labelled(ready, chosen, names))
    running = _labelled(picture.running, chosen, names)
    running[OTHER, ""] = sum(_rest(picture.running, chosen))
    yield gauge("running_jobs", "Jobs that run.", label, running)


def _ready(bands: Sequence[Band], picture: _Picture) -> Counter[Band]:
    """Runnable jobs of these bands over the shards that answer."""
    params = {
        "queue_ids": [queue for queue, _ in bands],
        "priorities": [priority for _, priority in bands],
        "bound": JOBS_MAX,
    }
    found: Counter[Band] = Counter()
    for alias in picture.shards:
        rows = metrics.asked(alias, lambda ask: ask("jobqueue/metrics_ready", params))
        for queue_id, priority, jobs in rows or ():
            found[queue_id, priority] += jobs
    return found


def _tenants(picture: _Picture) -> Iterator[Metric]:
    for name, text, values, how in (
        ("tenant_oldest_ready_seconds", "For how long the oldest runnable job of a tenant waits.",
         picture.tenant_ages, max),
        ("tenant_running_jobs", "Jobs of a tenant that run.", picture.tenant_running, sum),
    ):  # fmt: skip
        shown = sorted(values, key=lambda one: (-values[one], one))[:TENANTS_MAX]
        slugs = _slugs_of(shown)
        labelled: dict[Labels, float] = {(slugs[one],): float(values[one]) for one in shown}
        rest = [float(value) for one, value in values.items() if one not in slugs]
        labelled[OTHER,] = float(how(rest)) if rest else 0.0
        yield gauge(name, text, ("tenant",), labelled)


def _tallied(picture: _Picture, names: Mapping[int, _Name]) -> Iterator[Metric]:
    """Counters: in all, and of the queues with most starts."""
    starts = Counter[int]()
    for (queue_id, _), counts in picture.tallies.items():
        starts[queue_id] += counts[0]
    most = [queue_id for queue_id, _ in starts.most_common(QUEUES_MAX)]
    for name, (text, place) in _TALLIES.items():
        yield counter(name, text, (), {(): picture.total[place]})
        by_band = {band: float(counts[place]) for band, counts in picture.tallies.items()}
        text = f"{text} By queue and band, of the busiest queues."
        yield counter(f"queue_{name}", text, ("queue", "band"), _labelled(by_band, most, names))


def _upkeep(picture: _Picture) -> Iterator[Metric]:
    label, shards = ("shard",), picture.shards
    yield gauge(
        "promotion_late_seconds",
        "For how long the oldest due job waits for a dispatcher.",
        label,
        {(alias,): shard.due_s for alias, shard in shards.items()},
    )
    yield gauge(
        "reaping_late_seconds",
        "For how long the oldest lapsed lease waits for a reaper.",
        label,
        {(alias,): shard.lapsed_s for alias, shard in shards.items()},
    )
    yield gauge(
        "dead_rows",
        "Dead rows of the hot table that has most.",
        label,
        {(alias,): float(shard.dead_rows) for alias, shard in shards.items()},
    )
    yield gauge(
        "place_jobs",
        "About how many jobs stand in a place, as the server's statistics have it.",
        ("shard", "place"),
        {
            (alias, _PLACES[table]): rows
            for alias, shard in shards.items()
            for table, rows, *_ in shard.places
        },
    )
    yield gauge(
        "metrics_lanes_beyond",
        "Active lanes that were not looked into for this page.",
        label,
        {(alias,): shard.places[0][2] for alias, shard in shards.items() if shard.places},
    )
    yield gauge(
        "ledger_late_seconds",
        "How far counters are behind what happened.",
        label,
        {(alias,): shard.places[0][3] for alias, shard in shards.items() if shard.places},
    )
    yield gauge(
        "breaker_open",
        "1: the dependency's breaker is open, 0.5: half open; closed ones are not listed.",
        ("shard", "dependency"),
        {
            (alias, name): 1.0 if breaker == "open" else 0.5
            for alias, shard in shards.items()
            for name, breaker in shard.breakers
        },
    )


# Shares


class Shares:
    """Remembers what tallies said, so that starts of the last minutes are a difference."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[Band, int]]] = deque()
        self._lock = threading.Lock()

    def ratios(
        self,
        tallies: Mapping[Band, Sequence[int]],
        names: Mapping[int, _Name],
        *,
        now: float | None = None,
    ) -> dict[Labels, float]:
        """By queue and band; a queue with few starts, and its strict bands, are left out."""
        at = time.monotonic() if now is None else now
        starts = {band: counts[0] for band, counts in tallies.items()}
        with self._lock:
            self._seen.append((at, starts))
            while len(self._seen) > 1 and self._seen[1][0] <= at - SHARE_SECONDS:
                self._seen.popleft()
            before = self._seen[0][1]
        moved = {band: count - before.get(band, count) for band, count in starts.items()}
        return _ratios({band: count for band, count in moved.items() if count > 0}, names)


def _ratios(moved: Mapping[Band, int], names: Mapping[int, _Name]) -> dict[Labels, float]:
    queues = defaultdict[int, dict[int, int]](dict)
    for (queue_id, priority), count in moved.items():
        queues[queue_id][priority] = count
    found: dict[Labels, float] = {}
    for queue_id, counts in queues.items():
        named = names[queue_id]
        turns = {p: c for p, c in counts.items() if p < len(named.weights) and named.weights[p] > 0}
        weight, total = sum(named.weights[p] for p in turns), sum(turns.values())
        if total >= SHARE_STARTS_MIN:
            for p, c in turns.items():
                found[named.name, named.band(p)] = (c / total) / (named.weights[p] / weight)
    return dict(list(found.items())[: QUEUES_MAX * 10])


_shares: Final = Shares()


# Counters of processes: what leaves no row behind

_refused = prometheus_client.Counter(
    "jobsplatform_admission_refusals", "Jobs that were not accepted, by queue and reason.", ("queue", "code")
)
_stale = prometheus_client.Counter(
    "jobsplatform_stale_calls",
    "Calls for leases that were no longer the caller's, by call and reason.",
    ("call", "code"),
)


def count(name: str, fields: dict[str, Any]) -> None:
    """A subscriber of events."""
    if name == "refused":
        _refused.labels(events.bounded_queue(str(fields["queue"])), fields["outcome"]).inc(fields["count"])
    elif name == "call_refused":
        _stale.labels(fields["call"], fields["outcome"]).inc(fields["count"])


events.subscribe(count)
