"""The register of schedules: made, changed, paused and removed in the control database, and told to their shard.

A schedule's jobs are made on one shard, chosen when it is made. What that shard must know is pushed, with a version, by
the verb that changes it; `sync` repeats what a push could not tell.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, InterfaceError, transaction

from jobqueue import kinds
from jobqueue.models import Queue
from jobqueue.policies import QueuePolicy
from jobqueue.schedule_models import Schedule
from jobqueue.schedules import answers, expressions, reads
from jobqueue.schedules.reads import SETTABLE, ScheduleView, Standing
from jobqueue.shards import map as shard_map
from jobqueue.types import Scope, short_hash
from jobsplatform import database, sql, strictjson
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, NotFound, QuotaExceeded, Unavailable
from tenants import audit
from tenants.models import Quota, Tenant

QUOTA_RETRY_SECONDS: Final = 60  # only a removed schedule or another quota makes room


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule that is asked for. `payload` is JSON text, `priority` a band's index of the queue."""

    tenant_id: int
    queue: QueuePolicy
    name: str
    kind: str
    cron: str
    timezone: str = "UTC"
    payload: str = "null"
    priority: int
    missed: str = "one"
    overlap: str = "allow"
    is_enabled: bool = True


# Making


def create(new: NewSchedule, *, actor: str, key: str | None = None) -> ScheduleView:
    """Make a schedule. A repeat with the same key within a day gets the first answer.

    Raises Invalid, KeyConflict (the key was used for another one), QuotaExceeded. A shard that cannot be reached is
    told later: nothing fires there before it is back.
    """
    expressions.rule(new.cron, new.timezone)
    fingerprint = _fingerprint(new)
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update().get(pk=new.tenant_id)  # counts and keys one by one
        first = None if key is None else answers.first_answer(tenant.pk, key, fingerprint)
        if first is not None:
            return first
        row = _made(new, tenant)
        details = {"after": _described(row)}
        audit.record("schedule.create", _target(row), actor=actor, tenant_id=tenant.pk, details=details)
        made = _as_made(row)
        if key is not None:
            answers.keep(tenant.pk, key, fingerprint, made)
    with suppress(NotFound, DatabaseError, InterfaceError):  # removed in the meantime; or `sync` tells it
        tell_again(row.pk)
    return made


def _made(new: NewSchedule, tenant: Tenant) -> Schedule:
    shard = random.choice(shard_map.current().shards_of(new.queue.id, tenant.pk))
    row = Schedule(tenant=tenant, shard=shard)
    row.queue = Queue.objects.get(pk=new.queue.id)
    _assign(row, {name: getattr(new, name) for name in SETTABLE})
    _require_room(row)
    row.save(force_insert=True)
    row.refresh_from_db(fields=["created_at"])
    return row


def _as_made(row: Schedule) -> ScheduleView:
    """The answer to a creation: it stands at its first fire."""
    next_at = expressions.rule(row.cron, row.timezone).next(row.created_at)
    return reads.view(row, Standing(row.version, next_at))


def _assign(row: Schedule, values: Mapping[str, Any]) -> None:
    """Set and check, the payload by its kind's schema too. Raises Invalid naming each value that cannot be."""
    for name, value in values.items():
        setattr(row, name, expressions.normal(value) if name == "cron" else value)
    expressions.rule(row.cron, row.timezone)
    if "payload" in values or "kind" in values:
        kinds.check_ahead(row.kind, row.payload)
    try:
        row.full_clean(exclude=["tenant", "queue", "shard"])
    except ValidationError as error:
        faults = error.message_dict.items()
        raise Invalid(
            errors=[FieldError(f"/{key}", "invalid", f"{key}: {texts[0]}") for key, texts in faults]
        ) from error


def _fingerprint(new: NewSchedule) -> bytes:
    """Equal for equal requests; in the payload, member order and white space do not count."""
    asked = [getattr(new, name) for name in SETTABLE if name != "payload"]
    return short_hash(new.queue.id, *asked, strictjson.canonical(new.payload))


def _require_room(row: Schedule) -> None:
    """Raises QuotaExceeded where one more schedule is one too many. Its tenant is locked."""
    for quota in Quota.objects.filter(tenant_id=row.tenant_id, max_schedules__isnull=False):
        if quota.queue not in ("", row.queue.name) or quota.band not in (None, row.priority):
            continue
        there = reads.count(row.tenant_id, queue=quota.queue, band=quota.band, beside=row.pk)
        if quota.max_schedules is not None and there >= quota.max_schedules:
            where = f" in queue {quota.queue}" if quota.queue else ""
            raise QuotaExceeded(
                f"The tenant may have {quota.max_schedules} schedules{where}.",
                retry_after=QUOTA_RETRY_SECONDS,
            )


# Changing


def change(
    schedule_id: int,
    changes: Mapping[str, Any],
    *,
    queue: QueuePolicy | None = None,
    scope: Scope,
    actor: str,
    reason: str = "",
) -> ScheduleView:
    """Change fields of `SETTABLE`, or the queue. A new queue without a priority means that queue's own.

    Raises NotFound, Invalid, QuotaExceeded; Unavailable when the change is stored and the shard could not be told: it
    holds there once it is repeated, or within seconds of the shard's return.
    """
    with transaction.atomic():
        row = _locked(schedule_id, scope)
        before = _described(row)
        if queue is not None and queue.id != row.queue_id:
            row.queue = Queue.objects.get(pk=queue.id)
            changes = {"priority": queue.default_priority, **changes}
        _assign(row, changes)
        after = _described(row)
        if after != before:
            _store_change(row, before, after, actor=actor, reason=reason)
    if not tell_again(row.pk):
        raise Unavailable(f"The change is stored, but shard {row.shard} was not reached. Repeat it.")
    return reads.views([row])[0]


def _store_change(
    row: Schedule, before: dict[str, Any], after: dict[str, Any], *, actor: str, reason: str
) -> None:
    if any(before[name] != after[name] for name in ("queue", "priority")):
        _require_room(row)
    row.version += 1
    row.save()
    details = {
        "before": {name: value for name, value in before.items() if value != after[name]},
        "after": {name: value for name, value in after.items() if value != before[name]},
    }
    audit.record(
        "schedule.change",
        _target(row),
        actor=actor,
        tenant_id=row.tenant_id,
        reason=reason,
        details=details,
    )


def pause(schedule_id: int, *, scope: Scope, actor: str, reason: str = "") -> ScheduleView:
    """Fire no more until `resume`; what falls due meanwhile is not made up."""
    return change(schedule_id, {"is_enabled": False}, scope=scope, actor=actor, reason=reason)


def resume(schedule_id: int, *, scope: Scope, actor: str, reason: str = "") -> ScheduleView:
    """Undo `pause`: go on with the next instant from now."""
    return change(schedule_id, {"is_enabled": True}, scope=scope, actor=actor, reason=reason)


def remove(schedule_id: int, *, scope: Scope, actor: str, reason: str = "") -> None:
    """Remove a schedule; jobs that it made stay. Raises NotFound, and Unavailable when its shard cannot be reached.

    The shard forgets it first, under the lock that a push needs: it cannot fire once it is gone from the register.
    """
    with transaction.atomic():
        row = _locked(schedule_id, scope)
        alias = database.aliases().get(row.shard)
        if alias is not None:
            _forget(alias, [row.pk])
        details = {"before": _described(row)}
        audit.record(
            "schedule.delete",
            _target(row),
            actor=actor,
            tenant_id=row.tenant_id,
            reason=reason,
            details=details,
        )
        row.delete()


def _locked(schedule_id: int, scope: Scope) -> Schedule:
    """The schedule, and its tenant, against changes at the same time. Raises NotFound."""
    found = reads.visible(scope).select_for_update(of=("self", "tenant")).filter(pk=schedule_id).first()
    if found is None:
        raise NotFound
    return found


def _described(row: Schedule) -> dict[str, Any]:
    """A schedule for the audit: its payload by hash alone."""
    settings = {name: getattr(row, name) for name in SETTABLE if name != "payload"}
    return {**settings, "queue": row.queue.name, "payload_hash": short_hash(row.payload).hex()}


def _target(row: Schedule) -> str:
    return f"schedule:{row.pk}"


# Telling the shards


def clock() -> datetime:
    """Now, by a shard's clock. Raises Unavailable when none can be reached."""
    failure: JobsPlatformError = Unavailable()
    for alias in database.aliases().values():
        try:
            return _clock(alias)
        except JobsPlatformError as error:
            failure = error
    raise failure


def _clock(alias: str) -> datetime:
    at: datetime = sql.rows("jobqueue/clock", {}, alias=alias)[0][0]
    return at


def tell(row: Schedule) -> bool:
    """Push a schedule to its shard; whether the shard was reached. It begins with its next instant by that clock."""
    alias = database.aliases().get(row.shard)
    if alias is None:
        return False
    try:
        settings = {name: getattr(row, name) for name in SETTABLE if name != "name"}
        params = {
            **settings,
            "schedule_id": row.pk,
            "version": row.version,
            "tenant_id": row.tenant_id,
            "queue_id": row.queue_id,
            "next_at": expressions.rule(row.cron, row.timezone).next(_clock(alias)),
        }
        sql.rows("jobqueue/schedule_put", params, alias=alias, writes=True)
    except JobsPlatformError:
        return False
    return True


def sync() -> int:
    """Tell each shard what it missed: new versions, and schedules that are gone. Returns how many differed.

    While the register cannot be read, nothing is done: the shards go on with what they know.
    """
    differed = 0
    for number, alias in database.aliases().items():
        try:
            there = reads.on_shard(alias)  # first: what is there and not in the register afterwards is gone
            versions = dict(Schedule.objects.filter(shard=number).values_list("pk", "version"))
        except (DatabaseError, InterfaceError, JobsPlatformError):
            continue
        gone = sorted(there.keys() - versions.keys())
        behind = [pk for pk, version in versions.items() if pk not in there or there[pk].version < version]
        if gone:
            _forget(alias, gone)
        for pk in behind:
            with suppress(NotFound):
                tell_again(pk)
        differed += len(gone) + len(behind)
    return differed


def tell_again(schedule_id: int) -> bool:
    """As `tell`, under the lock that a removal takes: a schedule that is gone must not come back. Raises NotFound."""
    with transaction.atomic():
        row = Schedule.objects.select_for_update(of=("self",)).filter(pk=schedule_id).first()
        if row is None:
            raise NotFound
        return tell(row)


def _forget(alias: str, ids: list[int]) -> None:
    sql.rows("jobqueue/schedule_forget", {"schedule_ids": ids}, alias=alias, writes=True)
