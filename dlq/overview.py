"""What the operators' first page says of the whole platform: what needs attention, who waits, what was done.

One set of bounded reads a shard, at once; a shard that does not answer is unknown, and the rest is shown without it.
All is read along indexes or from the ledger by minute: as quick with ten million jobs as with ten.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Final

from django.db import DatabaseError
from django.utils import timezone

from dlq import groups, snoozes
from dlq.groups import GROWTH_FACTOR, RECENT_SECONDS
from dlq.models import Handling
from jobqueue import processes, usage
from jobqueue.models import Process, Queue
from jobqueue.policies import Band
from jobsplatform import asking, database, sql
from jobsplatform.errors import JobsPlatformError
from jobsplatform.wording import one_line, span
from tenants.models import AuditEntry, Quota, Tenant

LANES_MAX: Final = 2_000  # active lanes of a shard that are looked at: about 30 ms
TENANTS_MAX: Final = 5  # of a band that are named
MINUTES: Final = 30
ROWS_MAX: Final = 10_000  # of the ledger by minute, a shard
COUNT_MAX: Final = 1_000  # jobs of a place and shard that are counted
SHARE_MINUTES: Final = 15  # over which the actual shares are taken
RECENT_MINUTES: Final = RECENT_SECONDS // 60
CACHE_SECONDS: Final = 1.0
LATE_SECONDS: Final = 10.0  # the dispatcher and the reaper come several times a second
CLOCK_SECONDS: Final = 1.0
LOST_MIN: Final = 5  # lease losses in five minutes that alarm nobody
ACTIONS: Final = 10
NO_PEOPLE: Final = ("platform", "upkeep", "demo", "migration")
NOTE_CHARS: Final = 140
STARVING_CHECKED_MAX: Final = 20  # tenants at a limit that are asked for


@dataclass(frozen=True, slots=True)
class Wait:
    """How long the oldest ready job of a tenant in a band has waited. `objective_s`: how long it should at most."""

    queue: str
    band: str
    priority: int
    tenant: str
    tenant_id: int
    age_s: float
    is_held: bool
    is_limited: bool
    objective_s: float | None

    @property
    def is_starving(self) -> bool:
        return not self.is_held and self.objective_s is not None and self.age_s > self.objective_s

    @property
    def share(self) -> float | None:
        """Of the objective that is used up."""
        return None if self.objective_s is None else self.age_s / self.objective_s

    @property
    def level(self) -> str:
        share = self.share or 0.0
        return "bad" if share > 1 else "warning" if share > 0.5 else "ok"


@dataclass(frozen=True, slots=True)
class Share:
    """What a band should have of its queue's weighted starts, and had. None: it is strict, or nothing was started."""

    queue: str
    band: str
    target: float | None
    actual: float | None
    started: int


@dataclass(frozen=True, slots=True)
class Minute:
    """What happened in a minute, everywhere."""

    at: datetime
    started: int
    succeeded: int
    failed: int
    lease_lost: int
    dead: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that an operator should look at. `page`: the name and the arguments of where to look on."""

    level: str  # bad or warning
    title: str
    text: str
    page: tuple[str, tuple[Any, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """What an operator did."""

    at: datetime
    actor: str
    action: str
    target: str
    reason: str


@dataclass(slots=True)
class Overview:
    """The platform at an instant."""

    at: datetime
    attention: list[Attention] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    minutes: list[Minute] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    is_capped: dict[str, bool] = field(default_factory=dict)
    unknown_shards: list[int] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    has_more_lanes: bool = False

    @property
    def oldest(self) -> list[Wait]:
        """The longest wait of each band, queues by name and bands by urgency."""
        first: dict[tuple[str, int], Wait] = {}
        for wait in self.waits:
            held = first.get((wait.queue, wait.priority))
            if held is None or (held.is_held, -held.age_s) > (wait.is_held, -wait.age_s):
                first[wait.queue, wait.priority] = wait
        return [first[key] for key in sorted(first)]


_cache: tuple[float, Overview] | None = None
_lock = Lock()


def present(now: datetime | None = None) -> Overview:
    """The platform now, at most a second old; asked for at once by several, it is read once."""
    global _cache
    if now is not None:
        return _read(now)
    with _lock:
        if _cache is None or _cache[0] <= time.monotonic():
            overview = _read(None)
            _cache = (time.monotonic() + CACHE_SECONDS, overview)
        return _cache[1]


def forget() -> None:
    """Read it anew."""
    global _cache
    _cache = None
    asking.forget()


# Reading


@dataclass(frozen=True, slots=True)
class _Shard:
    """What one shard said."""

    heads: Sequence[sql.Row]
    minutes: Sequence[sql.Row]
    growth: Sequence[sql.Row]
    snoozed: Sequence[sql.Row]
    standing: sql.Row
    off_s: float  # between its clock and this machine's


def _read(now: datetime | None) -> Overview:
    held = snoozes.in_force(now)
    answers = asking.all_shards(lambda alias: _shard(alias, held, now))
    known = {number: answer for number, answer in answers.items() if answer is not None}
    overview = Overview(now or timezone.now())
    overview.unknown_shards = [number for number in answers if number not in known]
    queues = {queue.pk: queue for queue in Queue.objects.order_by("name")}
    shards = list(known.values())
    overview.waits = _waits(shards, queues)
    overview.has_more_lanes = any(row[6] for shard in shards for row in shard.heads)
    overview.minutes = _minutes(shards, overview.at)
    overview.shares = list(_shares(shards, queues, overview.at))
    for place, name in enumerate(("ready", "scheduled", "running", "dead"), start=4):
        counts = [int(shard.standing[place]) for shard in shards]
        overview.places[name] = sum(min(count, COUNT_MAX) for count in counts)
        overview.is_capped[name] = any(count > COUNT_MAX for count in counts)
    overview.processes = processes.living()
    overview.attention = sorted(_attention(overview, known, queues, held), key=lambda one: one.level)
    return overview


def _shard(alias: str, held: Sequence[Handling], now: datetime | None) -> _Shard:
    heads = {"lanes_max": LANES_MAX, "tenants_max": TENANTS_MAX, "now": now}
    minutes = {"minutes": MINUTES, "rows_max": ROWS_MAX, "now": now}
    growth = {"recent_s": RECENT_SECONDS, "usual_s": MINUTES * 60, "now": now}
    asked_at = time.time()
    (standing,) = sql.rows("jobqueue/overview_standing", {"bound": COUNT_MAX + 1, "now": now}, alias=alias)
    answered_at = time.time()
    at = standing[0].timestamp()
    return _Shard(
        sql.rows("jobqueue/overview_heads", heads, alias=alias),
        sql.rows("jobqueue/overview_minutes", minutes, alias=alias),
        sql.rows("dlq/growth", growth, alias=alias),
        snoozes.counted(alias, held, now),
        standing,
        max(asked_at - at, at - answered_at, 0.0) if now is None else 0.0,
    )


def _waits(shards: Sequence[_Shard], queues: Mapping[int, Queue]) -> list[Wait]:
    rows = [row for shard in shards for row in shard.heads if row[0] in queues]
    slugs = dict(Tenant.objects.filter(pk__in={row[2] for row in rows}).values_list("pk", "slug"))
    longest: dict[tuple[int, int, int, bool], sql.Row] = {}
    for row in rows:
        key = (row[0], row[1], row[2], row[4])
        if key not in longest or longest[key][3] < row[3]:
            longest[key] = row
    found = []
    for queue_id, priority, tenant_id, age_s, is_held, is_limited, _ in longest.values():
        queue = queues[queue_id]
        band = _band_name(queue, priority)
        found.append(
            Wait(
                queue.name,
                band,
                priority,
                slugs.get(tenant_id, f"#{tenant_id}"),
                tenant_id,
                max(0.0, age_s),
                is_held,
                is_limited,
                (queue.age_objective_s or {}).get(band),
            )
        )
    return sorted(found, key=lambda wait: wait.age_s, reverse=True)


def _band_name(queue: Queue, priority: int) -> str:
    bands = queue.bands
    return str(bands[priority]["name"]) if priority < len(bands) else str(priority)


def _minutes(shards: Sequence[_Shard], now: datetime) -> list[Minute]:
    """Every minute of the time that is looked at, with nothing where nothing was done; without the present one."""
    counts: dict[datetime, list[int]] = {}
    for row in (row for shard in shards for row in shard.minutes):
        held = counts.setdefault(row[0], [0] * 5)
        counts[row[0]] = [held[place] + int(row[3 + place]) for place in range(5)]
    present = now.replace(second=0, microsecond=0)
    instants = [present - timedelta(minutes=back) for back in range(MINUTES - 1, 0, -1)]
    return [Minute(at, *counts.get(at, [0] * 5)) for at in instants]


def _shares(shards: Sequence[_Shard], queues: Mapping[int, Queue], now: datetime) -> Iterator[Share]:
    """Of queues in which something was started lately."""
    since = now - timedelta(minutes=SHARE_MINUTES)
    started: dict[tuple[int, int], int] = {}
    for minute, queue_id, priority, count, *_ in (row for shard in shards for row in shard.minutes):
        if minute >= since:
            started[queue_id, priority] = started.get((queue_id, priority), 0) + int(count)
    for queue_id, queue in queues.items():
        bands = [Band(**band) for band in queue.bands]
        counts = [started.get((queue_id, index), 0) for index in range(len(bands))]
        weights = sum(band.weight for band in bands if not band.strict)
        weighted = sum(count for count, band in zip(counts, bands, strict=True) if not band.strict)
        if not sum(counts):
            continue
        for band, count in zip(bands, counts, strict=True):
            target = None if band.strict else band.weight / weights
            actual = None if band.strict or not weighted else count / weighted
            yield Share(queue.name, band.name, target, actual, count)


# What needs attention


def _attention(
    overview: Overview,
    known: Mapping[int, _Shard],
    queues: Mapping[int, Queue],
    held: Sequence[Handling],
) -> Iterator[Attention]:
    for number in overview.unknown_shards:
        text = "It does not answer. Its work goes on or waits unseen; what is shown here is without it."
        yield Attention("bad", f"Shard {number} is unknown", text, ("shards", ()))
    yield from _starving(overview)
    yield from _upkeep(overview, known)
    yield from _growth(known, queues, snoozes.summed(held, [shard.snoozed for shard in known.values()]))
    yield from _losses(overview)
    for number, shard in known.items():
        for name, _, word in (text.rpartition(" (") for text in shard.standing[8]):
            title = f"Breaker of {name} is {word.replace('_', ' ')}"
            where = f" on shard {number}" if len(known) > 1 else ""
            page = ("queue_dependency_changelist", ())
            yield Attention("warning", title + where, "Jobs that need it wait.", page)
        yield from _clock(number, shard)


def _starving(overview: Overview) -> Iterator[Attention]:
    """Bands and tenants whose eligible work has waited longer than its queue's objective; a full limit is no fault."""
    starving = [wait for wait in overview.waits if wait.is_starving]
    asked = [wait for wait in starving if wait.is_limited][:STARVING_CHECKED_MAX]
    full = {(wait.tenant_id, wait.queue, wait.priority) for wait in asked if _is_full(wait)}
    for wait in starving:
        if (wait.tenant_id, wait.queue, wait.priority) in full:
            continue
        text = f"Its oldest ready job has waited {span(wait.age_s)}; the objective is {span(wait.objective_s or 0)}."
        yield Attention(
            "bad", f"{wait.tenant} starves in {wait.queue} / {wait.band}", text, ("queue", (wait.queue,))
        )


def _is_full(wait: Wait) -> bool:
    """Whether a limit of running jobs holds the tenant back there."""
    quotas = Quota.objects.filter(
        tenant_id=wait.tenant_id, max_running__isnull=False, queue__in=("", wait.queue)
    )
    try:
        return any(
            usage.running(wait.tenant_id, queue=quota.queue, band=quota.band) >= (quota.max_running or 0)
            for quota in quotas
            if quota.band in (None, wait.priority)
        )
    except (DatabaseError, JobsPlatformError):
        return False


def _upkeep(overview: Overview, known: Mapping[int, _Shard]) -> Iterator[Attention]:
    """Nobody says that it promotes or takes back, or what should be promoted and taken back waits."""
    silent = processes.silent_before(overview.at)
    alive = {one.kind for one in overview.processes if one.beat_at >= silent}
    for kind, duty, place in (
        (Process.Kind.DISPATCHER, "Due jobs are not promoted, schedules do not fire.", 2),
        (Process.Kind.REAPER, "Lost leases are not taken back, nothing expires.", 3),
    ):
        waits = [shard.standing[place] for shard in known.values() if shard.standing[place] is not None]
        if kind not in alive:
            text = f"{duty} Start manage.py run{kind}."
            yield Attention("bad", f"No {kind} is seen", text, ("processes", ()))
        elif waits and max(waits) > LATE_SECONDS:
            text = f"The oldest of what it should have moved has waited {span(max(waits))}."
            yield Attention("bad", f"The {kind} is late", text, ("processes", ()))
    if Process.Kind.WORKER not in alive and overview.places.get("ready"):
        text = "Jobs are ready, and no worker of the platform says that it lives (workers over HTTP do not say so)."
        yield Attention("warning", "No worker is seen", text, ("processes", ()))


def _growth(
    known: Mapping[int, _Shard], queues: Mapping[int, Queue], quiet: snoozes.Quiet
) -> Iterator[Attention]:
    """Queues in which more die than usual, without what somebody knows of; and what has outgrown its snooze."""
    recent: dict[int, float] = {}
    usual: dict[int, float] = {}
    for queue_id, lately, usually in (row for shard in known.values() for row in shard.growth):
        recent[queue_id] = recent.get(queue_id, 0) + lately
        usual[queue_id] = usual.get(queue_id, 0) + usually
    for queue_id, count in sorted(recent.items()):
        left_out = quiet.recent.get(queue_id, 0)
        if groups.is_alarming(count - left_out, usual[queue_id]):
            name = queues[queue_id].name if queue_id in queues else f"#{queue_id}"
            text = f"{count:,.0f} jobs died in five minutes; usually {usual[queue_id]:,.0f} do."
            text += f" {left_out:,} of them have snoozed errors." if left_out else ""
            page = ("dlq_deadletter_groups", ())
            yield Attention("bad", f"Dead letters of {name} grow", text, page)

    for held, more in quiet.grown():
        since = f"{held.snoozed_at:%Y-%m-%d %H:%M} UTC"
        note = one_line(held.snooze_note)[:NOTE_CHARS]
        text = f"{more:,} or more since {since}, when {held.snoozed_by} put it off: {note}"
        title = f"Error {held.fingerprint} has outgrown its snooze"
        yield Attention("warning", title, text, ("dlq_deadletter_group", (held.fingerprint,)))


def _losses(overview: Overview) -> Iterator[Attention]:
    """A spike of lost leases: workers die, hang, or are cut off."""
    lately = overview.minutes[-RECENT_MINUTES:]
    before = overview.minutes[:-RECENT_MINUTES]
    recent = sum(minute.lease_lost for minute in lately)
    usual = sum(minute.lease_lost for minute in before) * len(lately) / max(1, len(before))
    if recent > LOST_MIN and recent >= GROWTH_FACTOR * usual:
        text = f"{recent:,} leases lapsed in five minutes; usually {usual:,.0f} do. Workers die, hang or are cut off."
        yield Attention("bad", "Leases are lost", text, ("processes", ()))


def _clock(number: int, shard: _Shard) -> Iterator[Attention]:
    behind_s = shard.standing[1]
    if behind_s is not None and behind_s > CLOCK_SECONDS:
        text = f"It shows {span(behind_s)} less than it did before: leases and due times are late by that."
        yield Attention("bad", f"The clock of shard {number} was set back", text, ("shards", ()))
    elif shard.off_s > CLOCK_SECONDS:
        text = f"It is {span(shard.off_s)} off this machine's. Leases are judged by the shard's."
        yield Attention("warning", f"The clock of shard {number} is off", text, ("shards", ()))


# What was done


def actions(limit: int = ACTIONS) -> list[Action]:
    """The newest acts of people and their programs, from every database that can be reached."""
    shards = asking.all_shards(_actions)
    found = [one for some in shards.values() if some is not None for one in some]
    if "default" not in database.aliases().values():
        found += _actions("default")
    return sorted(found, key=lambda one: one.at, reverse=True)[:limit]


def _actions(alias: str) -> list[Action]:
    """The newest rows are looked at alone: an audit may be long."""
    rows = AuditEntry.objects.using(alias).order_by("-pk").only("at", "actor", "action", "target", "reason")
    return [
        Action(row.at, row.actor, row.action, row.target, row.reason)
        for row in rows[: 10 * ACTIONS]
        if row.actor not in NO_PEOPLE
    ]
