"""Queues as policies: presets, changes, pauses, and their push to the shards.

The control database owns a `Queue`; each shard has the newest version that it was told (`PolicyRow`), which the
statements read. So a change holds on a shard from the moment its push commits there.

How a queue shares its starts is a numbered `PolicyVersion`, named by every lease and attempt. A version is in force,
or on trial: a share of claims uses it, until it is rolled out in full or taken back. Names and order of the bands are
the queue's for ever, because jobs wait in them: so every version can be returned to.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import F, Max
from django.db.models.functions import Now

from jobqueue.models import PolicyRow, PolicyVersion, Queue, QueuePause
from jobqueue.policy.types import BandPolicy, Policy
from jobqueue.types import Scope
from jobsplatform import database, sql
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, NotFound, Unavailable
from tenants import audit

BANDS_MAX: Final = 100
PAUSE_SECONDS_MAX: Final = 366 * 24 * 3_600
PAUSES_MAX: Final = 500  # shown, or ended by one pass
BAND_NAME_CHARS_MAX: Final = 64
WEIGHT_MAX: Final = 1_000_000
VERSIONED: Final = ("bands", "reserved_share", "ageing_s", "cost_model")  # what a PolicyVersion says
AWAY_SECONDS: Final = 1.0  # until control is asked again after it could not be read
CACHE_SECONDS: Final = 5.0  # the contract's bound for changes; absent names are never remembered


@dataclass(frozen=True, slots=True)
class Band:
    """A priority class of a queue. Weight counts opportunities a cycle; a strict band is served first."""

    name: str
    weight: int = 1
    strict: bool = False
    bulk: bool = False


PRESETS: Final[Mapping[str, tuple[tuple[Band, ...], int]]] = {
    "five": (
        (
            Band("P0", strict=True),
            Band("P1", weight=25),
            Band("P2", weight=13),
            Band("P3", weight=7, bulk=True),
            Band("P4", weight=5, bulk=True),
        ),
        2,
    ),
    "hnl": ((Band("H", weight=3), Band("N", weight=2), Band("L", weight=1)), 1),
    "high-normal": ((Band("high", weight=7), Band("normal", weight=3)), 1),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A version of the policy that a share of claims uses (0 to 1)."""

    scheduling: Policy
    share: float


@dataclass(frozen=True, kw_only=True)
class QueuePolicy:
    """A queue as the verbs use it. Times in seconds."""

    id: int
    name: str
    version: int
    bands: tuple[Band, ...]
    default_priority: int
    lease_s: int
    max_run_s: int
    max_attempts: int
    max_crashes: int
    max_releases: int | None
    backoff_base_s: float
    backoff_cap_s: float
    max_redrives: int
    depth_limit: int | None
    key_window_s: int
    dedup_window_s: int
    retention_s: int
    reserved_share: float
    ageing_s: int | None
    cost_model: str
    policy_number: int
    is_intake_paused: bool
    is_dispatch_paused: bool
    trial: Trial | None = None

    @cached_property
    def scheduling(self) -> Policy:
        """The policy that is in force."""
        return scheduling_of(self, self.bands)

    def drawn(self) -> Policy:
        """The policy of one claim: mostly the one in force, at random the one on trial."""
        if self.trial is not None and random.random() < self.trial.share:
            return self.trial.scheduling
        return self.scheduling

    def priority(self, asked: int | str | None) -> int:
        """The index of a band asked for by index or name. Raises Invalid at /priority for one it does not have."""
        if asked is None:
            return self.default_priority
        if isinstance(asked, str):
            for index, band in enumerate(self.bands):
                if band.name == asked:
                    return index
        elif not isinstance(asked, bool) and 0 <= asked < len(self.bands):
            return asked
        names = ", ".join(band.name for band in self.bands)
        raise Invalid.at(
            "/priority", f"Queue {self.name} has the bands 0 to {len(self.bands) - 1} ({names})."
        )


def scheduling_of(queue: QueuePolicy, bands: Sequence[Band]) -> Policy:
    """The queue's policy with these bands."""
    return Policy(
        queue.policy_number,
        [BandPolicy(**asdict(band)) for band in bands],
        reserved_share=queue.reserved_share,
        ageing_s=queue.ageing_s,
        cost_model=queue.cost_model,
    )


_POLICY_FIELDS = [field.name for field in fields(QueuePolicy) if field.name not in ("id", "bands", "trial")]
_PUSHED_FIELDS = [field.name for field in PolicyRow._meta.concrete_fields if field.name != "queue_id"]
SETTABLE = frozenset(
    field.name
    for field in Queue._meta.concrete_fields
    if field.name not in ("id", "name", "preset", "bands", "default_priority")
    and not field.name.startswith("is_")
    and field.editable
)

_cache: dict[str, tuple[float, QueuePolicy]] = {}
_names: dict[int, str] = {}


def _policy(queue: Queue) -> QueuePolicy:
    values = {name: getattr(queue, name) for name in _POLICY_FIELDS}
    policy = QueuePolicy(id=queue.pk, bands=tuple(Band(**band) for band in queue.bands), **values)
    return replace(policy, trial=_trial(queue))


def _version_on_trial(queue: Queue) -> PolicyVersion | None:
    if queue.trial_number is None:
        return None
    return PolicyVersion.objects.filter(queue=queue, number=queue.trial_number).first()


def _trial(queue: Queue) -> Trial | None:
    version = _version_on_trial(queue)
    if version is None:
        return None
    bands = [BandPolicy(**band) for band in version.bands]
    return Trial(
        Policy(version.number, bands, version.reserved_share, version.ageing_s, version.cost_model),
        queue.trial_share,
    )


# Reading


def by_name(name: str) -> QueuePolicy:
    """The queue of that name, at most five seconds old; without control as it was. Raises NotFound, Unavailable."""
    held = _cache.get(name)
    if held is not None and held[0] > time.monotonic():
        return held[1]
    try:
        queue = Queue.objects.get(name=name)
        return _remember(queue)
    except Queue.DoesNotExist:
        _cache.pop(name, None)
        raise NotFound from None
    except (OperationalError, InterfaceError) as error:
        if held is None:
            raise Unavailable("The queue's policy cannot be read.") from error
        _cache[name] = (time.monotonic() + AWAY_SECONDS, held[1])
        return held[1]


def _remember(queue: Queue) -> QueuePolicy:
    policy = _policy(queue)
    _cache[queue.name] = (time.monotonic() + CACHE_SECONDS, policy)
    return policy


def visible(scope: Scope) -> tuple[QueuePolicy, ...]:
    """Every queue that a caller may use, by id; while control is away, of those that this process has used."""
    queues = Queue.objects.order_by("pk")
    if scope.queue_ids is not None:
        queues = queues.filter(pk__in=scope.queue_ids)
    try:
        return tuple(_remember(queue) for queue in queues)
    except (OperationalError, InterfaceError) as error:
        held = [
            policy for _, policy in _cache.values() if scope.queue_ids is None or policy.id in scope.queue_ids
        ]
        if not held:
            raise Unavailable("The queues cannot be read.") from error
        return tuple(sorted(held, key=lambda policy: policy.id))


def unknown(names: Sequence[str]) -> list[str]:
    """Which of these names are no queue's."""
    known = set(Queue.objects.filter(name__in=names).values_list("name", flat=True))
    return [name for name in names if name not in known]


def names(queue_ids: set[int]) -> dict[int, str]:
    """Queue id → name, for those that exist. A queue keeps its name, so each process asks once."""
    missing = queue_ids - _names.keys()
    if missing:
        try:
            _names.update(Queue.objects.filter(pk__in=missing).values_list("pk", "name"))
        except (OperationalError, InterfaceError):
            _names.update((policy.id, name) for name, (_, policy) in _cache.items())
    return {queue_id: _names[queue_id] for queue_id in queue_ids if queue_id in _names}


def forget() -> None:
    """Drop what is remembered."""
    _cache.clear()
    _names.clear()


# Changing


def create_queue(
    name: str, *, preset: str = "five", settings: Mapping[str, Any] | None = None, actor: str
) -> QueuePolicy:
    """Make a queue and tell every shard. Raises Invalid naming each bad value; a taken name is one of them."""
    if preset not in PRESETS:
        raise Invalid.at("/preset", f"There is no preset {preset!r}; there are {', '.join(PRESETS)}.")
    bands, default_priority = PRESETS[preset]
    described = [asdict(band) for band in bands]
    queue = Queue(name=name, preset=preset, bands=described, default_priority=default_priority)
    _assign(queue, settings or {})
    with transaction.atomic():
        queue.save(force_insert=True)
        _put_in_force(queue, _new_version(queue, actor, ""))
        queue.save()
        audit.record(
            "queue.create", f"queue:{name}", actor=actor, details={"preset": preset, **(settings or {})}
        )
    _require_reached(push(queue))
    return _remember(queue)


def change_queue(name: str, settings: Mapping[str, Any], *, actor: str, reason: str = "") -> QueuePolicy:
    """Change settings of a queue; from then on each shard that was reached uses them. Raises NotFound, Invalid.

    Settings of its policy make a new version, which is in force at once.
    """
    with transaction.atomic():
        queue = _locked(name)
        before = {key: getattr(queue, key, None) for key in settings}
        _assign(queue, settings)
        if any(before[key] != getattr(queue, key) for key in VERSIONED if key in before):
            _put_in_force(queue, _new_version(queue, actor, reason))
        _save(queue)
        details = {"before": before, "after": dict(settings)}
        audit.record("queue.change", f"queue:{name}", actor=actor, reason=reason, details=details)
    _require_reached(push(queue))
    return _remember(queue)


def pause(
    name: str,
    *,
    intake: bool = False,
    actor: str,
    reason: str = "",
    until: datetime | None = None,
) -> None:
    """Stop starting a queue's jobs (or, with `intake`, accepting them) until `resume`, or until an instant.

    Pausing what is paused says who, why and until when anew. Raises NotFound, Invalid for an instant that has passed.
    """
    what = QueuePause.What.INTAKE if intake else QueuePause.What.DISPATCH
    with transaction.atomic():
        queue = _locked(name)
        if until is not None and until <= _clock():
            raise Invalid.at("/until", "The pause would end in the past.")
        QueuePause.objects.filter(queue=queue, what=what).delete()
        QueuePause.objects.create(queue=queue, what=what, actor=actor, reason=reason, until=until)
        details = {} if until is None else {"until": until}
        _switch(queue, intake=intake, paused=True, actor=actor, reason=reason, details=details)
    _require_reached(push(queue))
    _remember(queue)


def resume(name: str, *, intake: bool = False, actor: str, reason: str = "") -> None:
    """Undo `pause`."""
    with transaction.atomic():
        queue = _locked(name)
        what = QueuePause.What.INTAKE if intake else QueuePause.What.DISPATCH
        QueuePause.objects.filter(queue=queue, what=what).delete()
        _switch(queue, intake=intake, paused=False, actor=actor, reason=reason, details={})
    _require_reached(push(queue))
    _remember(queue)


def after(seconds: float) -> datetime:
    """The instant that many seconds from now, for `until`. Raises Invalid beyond a year."""
    if not 0 < seconds <= PAUSE_SECONDS_MAX:
        raise Invalid.at("/for", f"A pause lasts up to {PAUSE_SECONDS_MAX:,} seconds, or until it is ended.")
    return _clock() + timedelta(seconds=seconds)


def resume_due(now: datetime | None = None) -> int:
    """End the pauses whose time is up; a pass of the dispatcher. Returns how many ended.

    A pause's row stays until every shard was told, so that the next pass tries again where one was away.
    """
    now = now or _clock()
    due = QueuePause.objects.filter(until__lte=now).select_related("queue").order_by("queue_id", "what")
    return sum(_end_pause(one, now) for one in due[:PAUSES_MAX])


def _end_pause(one: QueuePause, now: datetime) -> int:
    """Another dispatcher may have ended it meanwhile, or a person prolonged it: then its row is gone."""
    still = QueuePause.objects.filter(pk=one.pk, until__lte=now)
    intake = one.what == QueuePause.What.INTAKE
    with transaction.atomic():
        queue = _locked(one.queue.name)
        if not still.exists():
            return 0
        if queue.is_intake_paused if intake else queue.is_dispatch_paused:
            _switch(
                queue, intake=intake, paused=False, actor="platform", reason="its time was up", details={}
            )
    if push(queue):
        return 0
    _remember(queue)
    return min(still.delete()[0], 1)


def pauses(queue_ids: Iterable[int] | None = None) -> list[QueuePause]:
    """The pauses that last, with their queues, of these queues or of all (at most `PAUSES_MAX`)."""
    found = QueuePause.objects.select_related("queue").order_by("queue__name", "what")
    if queue_ids is not None:
        found = found.filter(queue_id__in=list(queue_ids))
    return list(found[:PAUSES_MAX])


def _switch(
    queue: Queue, *, intake: bool, paused: bool, actor: str, reason: str, details: Mapping[str, Any]
) -> None:
    setattr(queue, "is_intake_paused" if intake else "is_dispatch_paused", paused)
    _save(queue)
    verb = ("pause" if paused else "resume") + ("_intake" if intake else "")
    audit.record(f"queue.{verb}", f"queue:{queue.name}", actor=actor, reason=reason, details=details)


def _clock() -> datetime:
    """The control database's clock."""
    at: datetime = sql.rows("jobqueue/clock", {}, alias="default")[0][0]
    return at


def _locked(name: str) -> Queue:
    try:
        return Queue.objects.select_for_update().get(name=name)
    except Queue.DoesNotExist:
        raise NotFound(f"There is no queue {name!r}.") from None


def _save(queue: Queue) -> None:
    queue.version = F("version") + 1
    queue.save()
    queue.refresh_from_db()


def _assign(queue: Queue, settings: Mapping[str, Any]) -> None:
    unknown = [key for key in settings if key not in SETTABLE]
    if unknown:
        raise Invalid.at(
            f"/{unknown[0]}", f"{unknown[0]} is not a setting; there are {', '.join(sorted(SETTABLE))}."
        )
    for key, value in settings.items():
        setattr(queue, key, value)
    _clean(queue)


def _clean(queue: Queue) -> None:
    """Raises Invalid naming each setting that is out of its bounds."""
    try:
        queue.full_clean()
    except ValidationError as error:
        raise Invalid(
            errors=[
                FieldError(f"/{key}", "invalid", f"{key}: {texts[0]}")
                for key, texts in error.message_dict.items()
            ]
        ) from error


# Versions of the policy


def set_policy(
    name: str, changes: Mapping[str, Any], *, share: float = 1, actor: str, reason: str = ""
) -> PolicyVersion:
    """Make the next version of a queue's policy: the one in force with `changes` of `VERSIONED` (bands: all of them).

    `share` of claims use it (0 to 1); at 1 it is in force. A version on trial is given up. Raises NotFound, Invalid.
    """
    _check_share(share)
    with transaction.atomic():
        queue = _locked(name)
        wanted = _wanted(queue, changes)
        version = _new_version(wanted, actor, reason)
        if share == 1:
            _put_in_force(queue, version)
        else:
            queue.trial_number, queue.trial_share = version.number, share
        _save(queue)
        _record("policy.set", queue, version.number, actor, reason, share=share, **_content(version))
    return _told(queue, version)


def roll_out(name: str, share: float, *, actor: str, reason: str = "") -> PolicyVersion:
    """Let `share` of claims use the version on trial; 1 puts it in force. Raises NotFound, Invalid."""
    _check_share(share)
    with transaction.atomic():
        queue = _locked(name)
        version = _version_on_trial(queue)
        if version is None:
            raise Invalid.at("/share", f"Queue {name} has no version on trial.")
        before = queue.trial_share
        if share == 1:
            _put_in_force(queue, version)
        else:
            queue.trial_share = share
        _save(queue)
        _record("policy.roll_out", queue, version.number, actor, reason, before=before, share=share)
    return _told(queue, version)


def return_policy(name: str, *, actor: str, reason: str = "") -> PolicyVersion:
    """Give up the version on trial; without one, return to what was in force before (as a new version).

    So a second return undoes the first. Returns the version in force. Raises NotFound, Invalid when there is no
    earlier one.
    """
    with transaction.atomic():
        queue = _locked(name)
        versions = PolicyVersion.objects.filter(queue=queue)
        left = queue.trial_number or queue.policy_number
        if queue.trial_number is not None:
            queue.trial_number, queue.trial_share = None, 0
            version = versions.get(number=queue.policy_number)
        else:
            earlier = versions.filter(number__lt=queue.policy_number, in_force_from__isnull=False)
            before = earlier.order_by("-number").first()
            if before is None:
                raise Invalid.at("", f"Queue {name} has had no other policy.")
            version = _new_version(_assigned(queue, _content(before)), actor, reason)
            _put_in_force(queue, version)
        _save(queue)
        _record("policy.return", queue, version.number, actor, reason, left=left)
    return _told(queue, version)


def versions(name: str, limit: int = 50) -> list[PolicyVersion]:
    """The newest versions of a queue's policy, newest first. Raises NotFound."""
    found = PolicyVersion.objects.filter(queue_id=by_name(name).id)
    return list(found.order_by("-number")[:limit])


def _wanted(queue: Queue, changes: Mapping[str, Any]) -> Queue:
    """The queue as `changes` would have it, not saved. Raises Invalid."""
    unknown = [key for key in changes if key not in VERSIONED]
    if unknown:
        raise Invalid.at(f"/{unknown[0]}", f"A policy has {', '.join(VERSIONED)}, not {unknown[0]}.")
    values = dict(changes)
    if "bands" in values:
        values["bands"] = [asdict(band) for band in values["bands"]]
        _check_bands(changes["bands"], [band["name"] for band in queue.bands])
    wanted = _assigned(queue, values)
    _clean(wanted)
    return wanted


def _assigned(queue: Queue, values: Mapping[str, Any]) -> Queue:
    """A copy of the queue with these values."""
    copied = Queue(**{field.attname: getattr(queue, field.attname) for field in Queue._meta.concrete_fields})
    copied._state.adding = False  # a check of its name must not meet the queue itself
    for key, value in values.items():
        setattr(copied, key, value)
    return copied


def _content(version: PolicyVersion) -> dict[str, Any]:
    return {key: getattr(version, key) for key in VERSIONED}


def _new_version(queue: Queue, actor: str, reason: str) -> PolicyVersion:
    """The next version, as the queue's settings say. Its queue is locked or not yet seen by others."""
    last = PolicyVersion.objects.filter(queue_id=queue.pk).aggregate(last=Max("number"))["last"] or 0
    values = {key: getattr(queue, key) for key in VERSIONED}
    return PolicyVersion.objects.create(
        queue_id=queue.pk, number=last + 1, actor=actor, reason=reason, **values
    )


def _put_in_force(queue: Queue, version: PolicyVersion) -> None:
    """From now on every claim uses this version; the caller saves the queue."""
    for key, value in _content(version).items():
        setattr(queue, key, value)
    queue.policy_number, queue.trial_number, queue.trial_share = version.number, None, 0
    version.in_force_from = Now()
    version.save(update_fields=["in_force_from"])
    version.refresh_from_db()


def _check_share(share: float) -> None:
    if isinstance(share, bool) or not math.isfinite(share) or not 0 <= share <= 1:
        raise Invalid.at("/share", "The share of claims is a number from 0 to 1.")


def _check_bands(bands: Sequence[Band], names: list[str]) -> None:
    """Raises Invalid naming each band that cannot be, and bands that are not the queue's."""
    faults = [
        FieldError(f"/bands/{index}", "invalid", fault)
        for index, band in enumerate(bands)
        if (fault := _band_fault(band, bands[:index])) is not None
    ]
    if not faults and [band.name for band in bands] != names:
        text = f"The bands of a queue stay, in their order: {', '.join(names)}."
        faults = [FieldError("/bands", "invalid", text)]
    if faults or len(bands) > BANDS_MAX:
        raise Invalid(errors=faults or [FieldError("/bands", "length", f"More than {BANDS_MAX} bands.")])


def _band_fault(band: Band, before: Sequence[Band]) -> str | None:
    whole = isinstance(band.weight, int) and not isinstance(band.weight, bool)
    if not 1 <= len(band.name) <= BAND_NAME_CHARS_MAX:
        return f"A band's name has 1 to {BAND_NAME_CHARS_MAX} characters."
    if any(other.name == band.name for other in before):
        return f"There are two bands {band.name}."
    if not whole or not 1 <= band.weight <= WEIGHT_MAX:
        return f"The weight of {band.name} is a whole number from 1 to {WEIGHT_MAX:,}."
    if band.strict and any(not other.strict for other in before):
        return f"{band.name} is strict and stands behind a band that is not: strict bands come first."
    if band.strict and band.bulk:
        return f"{band.name} is strict and bulk: the reserved share is kept from strict bands for bulk ones."
    return None


def _record(action: str, queue: Queue, number: int, actor: str, reason: str, **details: Any) -> None:
    audit.record(
        action, f"queue:{queue.name}", actor=actor, reason=reason, details={"policy": number, **details}
    )


def _told(queue: Queue, version: PolicyVersion) -> PolicyVersion:
    _require_reached(push(queue))
    _remember(queue)
    return version


# Telling the shards


def push(queue: Queue) -> list[int]:
    """Write the queue's policy to every shard, never an older version over a newer. Returns shards not reached."""
    values = {name: getattr(queue, name) for name in _PUSHED_FIELDS}
    unreached = []
    shards, depth = len(database.aliases()), queue.depth_limit
    for place, (number, alias) in enumerate(database.aliases().items()):
        if depth is not None:  # every shard its even part of the queue's depth
            values["depth_limit"] = max(1, depth // shards + (place < depth % shards))
        try:
            with transaction.atomic(using=alias):
                rows = PolicyRow.objects.using(alias)
                if not rows.filter(queue_id=queue.pk, version__lte=queue.version).update(**values):
                    rows.bulk_create([PolicyRow(queue_id=queue.pk, **values)], ignore_conflicts=True)
        except (DatabaseError, JobsPlatformError):
            unreached.append(number)
    return unreached


def push_by_name(name: str) -> None:
    """Push a queue's policy again, for a shard that does not have it; what this process knew of it is dropped."""
    queue = Queue.objects.filter(name=name).first()
    _cache.pop(name, None)
    if queue is not None:
        push(queue)


def _require_reached(unreached: list[int]) -> None:
    if unreached:
        shards = ", ".join(map(str, unreached))
        raise Unavailable(f"The change is stored, but these shards were not reached: {shards}. Repeat it.")
