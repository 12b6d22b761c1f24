"""Dependencies as operators see and change them: settings in control, told to the shards; where each stands.

A name that nobody has set is made on its shard at its first use, with defaults: no limit, no rate, a breaker. Over
several shards each starts by its share of a limit or a rate, and the shares together are what was set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction

from jobqueue import judging
from jobqueue.models import Dependency, DependencySettings
from jobqueue.policy.limit import window_s
from jobsplatform import database, everywhere, sql
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, NotFound, Unavailable
from tenants import audit

SETTINGS: Final = tuple(f.name for f in DependencySettings._meta.get_fields() if f.name != "is_held_open")
RATE_WINDOW_SECONDS_MAX: Final = 3_600  # calls are kept that long
HOLD_SECONDS_MAX: Final = 30 * 86_400  # longer ones are held by hand
ADOPTED_MAX: Final = 1_000  # names that one pass makes known to control


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a dependency stands on one shard. `calls` and `failures` are those of the breaker's window."""

    shard: int
    name: str
    version: int
    breaker: str
    probe_at: datetime | None
    probe_job_id: int | None
    ramp_from: datetime | None
    limit_now: float | None
    is_held_open: bool
    running: int
    calls: int
    failures: int
    at: datetime


# Reading


def standings(
    name: str | None = None, now: datetime | None = None, *, unknown: list[int] | None = None
) -> list[Standing]:
    """Where every dependency (or one) stands, by name and shard; `unknown` gets the shards that do not answer."""
    params = {"name": name, "now": now}
    answers = everywhere.numbered(
        lambda alias: sql.rows("jobqueue/dependency_states", params, alias=alias), unknown
    )
    found = [Standing(shard, *row) for shard, rows in answers for row in rows]
    return sorted(found, key=lambda standing: (standing.name, standing.shard))


# Changing


def set_dependency(name: str, settings: Mapping[str, Any], *, actor: str, reason: str = "") -> Dependency:
    """Change settings, making the dependency where it is new; each shard that was reached uses them. Raises Invalid."""
    unknown = [key for key in settings if key not in SETTINGS]
    if unknown:
        raise Invalid.at(f"/{unknown[0]}", f"{unknown[0]} is not a setting; there are {', '.join(SETTINGS)}.")
    with transaction.atomic():
        dependency = _locked(name)
        before = {key: getattr(dependency, key) for key in settings}
        for key, value in settings.items():
            setattr(dependency, key, value)
        _clean(dependency)
        _save(dependency)
        details = {"before": before, "after": dict(settings)}
        audit.record("dependency.set", f"dependency:{name}", actor=actor, reason=reason, details=details)
    _require_reached(push(dependency))
    return dependency


def open_breaker(name: str, *, actor: str, reason: str = "", seconds: int | None = None) -> None:
    """Start nothing that needs it, and probe nothing, until `close_breaker`; with `seconds`: for so long at most.

    Raises Invalid for a time that is none.
    """
    if seconds is not None and not 1 <= seconds <= HOLD_SECONDS_MAX:
        raise Invalid.at("/seconds", f"A hold lasts 1 to {HOLD_SECONDS_MAX} seconds.")
    _hold(name, held=True, actor=actor, reason=reason, seconds=seconds)


def close_breaker(name: str, *, actor: str, reason: str = "", now: datetime | None = None) -> None:
    """Let it go on, ramping up; its breaker judges again by calls from now on."""
    dependency = _hold(name, held=False, actor=actor, reason=reason)
    _close_on_shards(dependency.name, now)


def end_holds(now: datetime | None = None) -> int:
    """Close the breakers whose hold has come to its end. Returns how many; any number of processes may look."""
    at = now or _clock()
    due = Dependency.objects.filter(is_held_open=True, held_until__lte=at).values_list("name", flat=True)
    return sum(_end_hold(name, at, now) for name in list(due))


def _end_hold(name: str, at: datetime, now: datetime | None) -> int:
    """0: somebody else was first, or it was opened anew."""
    with transaction.atomic():
        due = Dependency.objects.select_for_update().filter(name=name, is_held_open=True, held_until__lte=at)
        dependency = due.first()
        if dependency is None:
            return 0
        dependency.is_held_open, dependency.held_until = False, None
        _save(dependency)
        reason = "The hold has come to its end."
        audit.record("dependency.close", f"dependency:{name}", actor="upkeep", reason=reason)
    _require_reached(push(dependency))
    _close_on_shards(name, now)
    return 1


def _close_on_shards(name: str, now: datetime | None) -> None:
    for alias in database.aliases().values():
        judging.close(alias, name, now=now)


def _clock() -> datetime:
    at: datetime = sql.rows("jobqueue/clock", {}, alias="default")[0][0]
    return at


def _hold(name: str, *, held: bool, actor: str, reason: str, seconds: int | None = None) -> Dependency:
    with transaction.atomic():
        dependency = _locked(name)
        if dependency._state.adding and not standings(name):
            raise NotFound(f"There is no dependency {name!r}.")
        _clean(dependency)
        dependency.is_held_open = held
        dependency.held_until = None if seconds is None else _clock() + timedelta(seconds=seconds)
        _save(dependency)
        verb = "open" if held else "close"
        details = {} if seconds is None else {"seconds": seconds}
        audit.record(f"dependency.{verb}", f"dependency:{name}", actor=actor, reason=reason, details=details)
    _require_reached(push(dependency))
    return dependency


def _locked(name: str) -> Dependency:
    """The row, locked; for a name without one a new row, not saved."""
    return Dependency.objects.select_for_update().filter(name=name).first() or Dependency(
        name=name, version=0
    )


def _save(dependency: Dependency) -> None:
    """Save the locked row as its next version."""
    dependency.version += 1
    dependency.save(force_insert=dependency._state.adding)


def _clean(dependency: Dependency) -> None:
    """Raises Invalid naming each setting that is out of its bounds."""
    try:
        dependency.full_clean(validate_unique=False)
    except ValidationError as error:
        raise Invalid(
            errors=[
                FieldError(f"/{key}", "invalid", f"{key}: {texts[0]}")
                for key, texts in error.message_dict.items()
            ]
        ) from error
    _check_rate(dependency)


def _check_rate(dependency: Dependency) -> None:
    if dependency.rate_per_s is None:
        if dependency.rate_burst is not None:
            raise Invalid.at("/rate_burst", "rate_burst needs rate_per_s.")
        return
    if window_s(dependency.rate_per_s, dependency.rate_burst) > RATE_WINDOW_SECONDS_MAX:
        detail = (
            f"rate_burst / rate_per_s is at most {RATE_WINDOW_SECONDS_MAX} s: so far back calls are counted."
        )
        raise Invalid.at("/rate_burst", detail)


# Telling the shards

_after_push: Callable[[Dependency], None] = lambda dependency: None  # noqa: E731


def after_pushes(after_push: Callable[[Dependency], None]) -> None:
    """Who hears that shards were told of limits, which may be shared."""
    global _after_push
    _after_push = after_push


def push(dependency: Dependency) -> list[int]:
    """Tell every shard, never an older version over a newer. Returns shards that were not reached.

    Its limits over several shards count by shares (`jobqueue.shards.shares`), which are put right at once.
    """
    unreached = []
    aliases = database.aliases()
    for index, (number, alias) in enumerate(sorted(aliases.items())):
        try:
            params = told(dependency, index, len(aliases))
            sql.rows("jobqueue/dependency_push", params, alias=alias, writes=True)
        except (DatabaseError, JobsPlatformError):
            unreached.append(number)
    _after_push(dependency)
    return unreached


def told(dependency: Dependency, index: int, shards: int) -> dict[str, Any]:
    """What one of so many shards is told: the ramp after an outage is split evenly, with the rest to the first."""
    params = {name: getattr(dependency, name) for name in (*SETTINGS, "name", "version", "is_held_open")}
    if dependency.ramp_per_s is not None:
        whole, rest = divmod(dependency.ramp_per_s, shards)
        params["ramp_per_s"] = max(1, whole + (index < rest))
    return params | {"is_shared": shards > 1}


def _take_permits_back() -> None:
    """Free permits to probe whose shards do not need them any more; there are seldom any."""
    if Dependency.objects.exclude(probe_shard=None).exists():
        judging.take_permits_back({(one.name, one.shard): one.breaker for one in standings(unknown=[])})


def adopt() -> int:
    """Make names that shards met known to control, and tell shards what they missed. Returns how many of both.

    What a shard made at a name's first use is version 0, with the same defaults as here: there is nothing to tell.
    Names that nobody has set are forgotten when every shard has forgotten them.
    """
    _take_permits_back()
    away: list[int] = []
    answers = everywhere.ask(
        lambda alias: sql.rows("jobqueue/dependency_versions", {}, alias=alias), unknown=away
    )
    found = [(name, version) for rows in answers for name, version in rows]
    versions = dict(Dependency.objects.values_list("name", "version"))
    new = sorted({name for name, _ in found} - versions.keys())[:ADOPTED_MAX]
    Dependency.objects.bulk_create([Dependency(name=name, version=0) for name in new], ignore_conflicts=True)
    if not away:
        _forget(sorted(name for name in versions.keys() - {name for name, _ in found} if versions[name] == 0))
    behind = {name for name, version in found if version < versions.get(name, 0)}
    for dependency in Dependency.objects.filter(name__in=behind):
        push(dependency)
    return len(new) + len(behind)


def _forget(names: list[str]) -> None:
    """Delete names that nobody has set, up to now."""
    Dependency.objects.filter(name__in=names[:ADOPTED_MAX], version=0).delete()


def _require_reached(unreached: list[int]) -> None:
    if unreached:
        shards = ", ".join(map(str, unreached))
        raise Unavailable(f"The change is stored, but these shards were not reached: {shards}. Repeat it.")
