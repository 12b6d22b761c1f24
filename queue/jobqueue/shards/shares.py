"""Keeps a tenant's limits exact over shards: each starts and admits by a share, and the shares never exceed the limit.

The one invariant: what control has granted to a shard is never less than what the shard may use, and all grants
together are no more than the limit (but for what was used before the limit was set). So a share is lowered on its
shard first, under the lock of those who count against it and no further than it is used, and then in control; it is
raised in control first, and then on its shard. Whatever breaks off in between leaves the shard with less. No clocks:
a shard that does not answer keeps its share until it answers, or an operator says that it runs nothing (`fence`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from django.db import transaction

from jobqueue.policy.shares import Use, targets
from jobqueue.shard_models import Shard
from jobsplatform import database, everywhere, sql
from jobsplatform.errors import JobsPlatformError
from tenants.models import LimitGrant, Quota, Tenant

RESOURCES: Final = {"running": "max_running", "depth": "max_depth"}


@dataclass(frozen=True, slots=True)
class Scope:
    """One limit: of a tenant, in a queue (empty: all), in a band (-1: all)."""

    tenant_id: int
    queue: str
    band: int
    resource: str
    limit: int

    @property
    def params(self) -> dict[str, Any]:
        return {
            "tenant_id": self.tenant_id,
            "queue": self.queue,
            "band": self.band,
            "resource": self.resource,
            "bound": self.limit + 1,
        }

    @property
    def key(self) -> dict[str, Any]:
        names = ("tenant_id", "queue", "band", "resource")
        return {name: getattr(self, name) for name in names}


QUOTAS_MAX: Final = 500  # rows that one pass looks at; the next goes on behind them

_balanced_to = 0


def balance() -> int:
    """Bring the shares of limits to where they are needed. Returns how many were changed."""
    global _balanced_to
    if len(database.aliases()) == 1:
        return 0
    limited = Quota.objects.exclude(max_running=None, max_depth=None)
    quotas = list(limited.filter(pk__gt=_balanced_to).order_by("pk")[:QUOTAS_MAX])
    _balanced_to = quotas[-1].pk if len(quotas) == QUOTAS_MAX else 0
    return sum(_balance(scope) for scope in _scopes(quotas))


def balance_tenant(tenant_id: int) -> None:
    """The same for one tenant, at once: its limits were changed. What cannot be done now a pass does."""
    if len(database.aliases()) == 1:
        return
    try:
        for scope in _scopes(Quota.objects.filter(tenant_id=tenant_id).order_by("pk")):
            _balance(scope)
    except everywhere.AWAY:
        return


def _scopes(quotas: Iterable[Quota]) -> list[Scope]:
    return [
        Scope(quota.tenant_id, quota.queue, -1 if quota.band is None else quota.band, resource, limit)
        for quota in quotas
        for resource, name in RESOURCES.items()
        if (limit := getattr(quota, name)) is not None
    ]


def _balance(scope: Scope) -> int:
    raised: list[LimitGrant] = []
    with transaction.atomic():
        Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=scope.tenant_id)
        grants = _grants(scope)
        uses = _uses(scope, grants)
        for number, grant in grants.items():  # one that was never asked hears first of its even part
            if number not in uses and grant._state.adding:
                grant.granted = scope.limit // len(grants)
        fixed = sum(grant.granted for number, grant in grants.items() if number not in uses)
        wanted = targets(max(0, scope.limit - fixed), uses, random.choice([*uses, 0]))
        lowered = [number for number in uses if wanted[number] < grants[number].granted]
        for number in lowered:
            _lower(scope, grants[number], wanted[number])
        free = scope.limit - sum(grant.granted for grant in grants.values())
        for number in sorted(uses, key=lambda number: -uses[number].wanted):
            more = min(free, wanted[number] - grants[number].granted)
            if more > 0:
                grants[number].granted += more
                grants[number].version += 1
                free -= more
                raised.append(grants[number])
        for grant in grants.values():
            grant.save()
    for grant in raised:
        _put(scope, grant)
    return len(lowered) + len(raised)


def _grants(scope: Scope) -> dict[int, LimitGrant]:
    """What every shard has been granted; a fenced one nothing."""
    found = {grant.shard: grant for grant in LimitGrant.objects.filter(**scope.key)}
    fenced = set(Shard.objects.filter(is_fenced=True).values_list("number", flat=True))
    for number in database.aliases():
        if number not in found:
            found[number] = LimitGrant(shard=number, **scope.key)
        elif number in fenced and found[number].granted:
            found[number].granted = 0
            found[number].version += 1
    return found


def _uses(scope: Scope, grants: dict[int, LimitGrant]) -> dict[int, Use]:
    """What the shards that answer have and use; grants are set right by what they say."""
    fenced = set(Shard.objects.filter(is_fenced=True).values_list("number", flat=True))
    uses: dict[int, Use] = {}
    answers = everywhere.numbered(
        lambda alias: sql.rows("jobqueue/share_use", scope.params, alias=alias)[0], unknown=[]
    )
    for number, (share, version, used, wanted) in answers:
        grant = grants[number]
        if share is not None and version > grant.version:  # it was lowered, and control did not hear of that
            grant.granted, grant.version = share, version
        elif grant.granted and (share is None or version < grant.version):
            _put(scope, grant)  # it was raised, and the shard did not hear of that
        if number not in fenced:
            uses[number] = Use(grant.granted, used, wanted)
    return uses


def _lower(scope: Scope, grant: LimitGrant, target: int) -> None:
    """Let a shard give back what it does not use; the grant is then what it has kept."""
    params = scope.params

    def action(connection: psycopg.Connection[sql.Row]) -> Sequence[sql.Row]:
        if scope.resource == "depth":  # the row that admissions lock must be there
            one = {"tenant_ids": [scope.tenant_id], "queues": [scope.queue], "bands": [scope.band]}
            sql.send(connection, "tenants/allowance_make", one)
        sql.send(connection, "jobqueue/share_hold", params).fetchall()
        *_, used, _ = sql.send(connection, "jobqueue/share_use", params).fetchall()[0]
        more = {"target": target, "used": used, "version": grant.version}
        return sql.send(connection, "jobqueue/share_lower", params | more).fetchall()

    try:
        rows = sql.short_transaction(database.aliases()[grant.shard], action)
    except JobsPlatformError:
        return  # it keeps its share; what it may have given back becomes known when it answers
    grant.granted, grant.version = rows[0]


def _put(scope: Scope, grant: LimitGrant) -> None:
    """Tell a shard its share; a later pass does if this one cannot."""
    params = scope.params | {"share": grant.granted, "version": grant.version}
    try:
        sql.rows("jobqueue/share_put", params, alias=database.aliases()[grant.shard], writes=True)
    except JobsPlatformError:
        return
