"""Keeps limits exact over shards: each starts and admits by a share, and the shares never exceed the limit.

The one invariant: what control has granted to a shard is never less than what the shard may use, and all grants
together are no more than the limit (but for what was used before the limit was set). So a share is lowered on its
shard first, under the lock of those who count against it and no further than it is used, and then in control; it is
raised in control first, and then on its shard. Whatever breaks off in between leaves the shard with less. No clocks:
a shard that does not answer keeps its share until it answers, or an operator says that it runs nothing (`fence`).

What is shared of a rate is its burst, and the rate with it. A tenant's tokens go where their share goes, so that at no
instant more than the burst is at hand anywhere, and all refill together as fast as the limit says; of a dependency's
rate each shard starts no more than its share within a window.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import psycopg
from django.db import transaction
from django.db.models import Q

from jobqueue.models import Dependency
from jobqueue.policy.shares import Use, targets
from jobqueue.shard_models import Shard
from jobqueue.shards import limited
from jobqueue.shards.limited import Grant, Limited
from jobsplatform import database, everywhere, sql
from jobsplatform.errors import JobsPlatformError, Unavailable
from tenants.models import Quota

LIMITS_MAX: Final = 500  # quotas, and dependencies, that one pass looks at; the next goes on behind them

_quotas_to = _dependencies_to = 0


def balance() -> int:
    """Bring the shares of limits to where they are needed. Returns how many were changed."""
    global _quotas_to, _dependencies_to
    if len(database.aliases()) == 1:
        return 0
    set_limits = Quota.objects.exclude(max_running=None, max_depth=None, enqueue_rate_per_s=None)
    quotas = list(set_limits.filter(pk__gt=_quotas_to).order_by("pk")[:LIMITS_MAX])
    _quotas_to = quotas[-1].pk if len(quotas) == LIMITS_MAX else 0
    limiting = Q(max_running__isnull=False) | Q(rate_per_s__isnull=False)
    named = Dependency.objects.filter(limiting, pk__gt=_dependencies_to)
    dependencies = list(named.order_by("pk")[:LIMITS_MAX])
    _dependencies_to = dependencies[-1].pk if len(dependencies) == LIMITS_MAX else 0
    found = [one for quota in quotas for one in limited.of_quota(quota)]
    found += [one for dependency in dependencies for one in limited.of_dependency(dependency)]
    return sum(map(_balance, found))


def balance_tenant(tenant_id: int) -> None:
    """The same for one tenant, at once: its limits were changed. What cannot be done now a pass does."""
    quotas = Quota.objects.filter(tenant_id=tenant_id).order_by("pk")
    _balance_now([one for quota in quotas for one in limited.of_quota(quota)])


def balance_dependency(dependency: Dependency) -> None:
    """The same for one dependency."""
    _balance_now(list(limited.of_dependency(dependency)))


def _balance_now(found: Sequence[Limited]) -> None:
    if len(database.aliases()) == 1:
        return
    try:
        for one in found:
            _balance(one)
    except everywhere.AWAY:
        return


def _balance(scope: Limited) -> int:
    raised: list[Grant] = []
    with transaction.atomic():
        scope.lock()
        grants = _grants(scope)
        uses = _uses(scope, grants)
        for number, grant in grants.items():  # one that was never asked hears first of its even part
            if number not in uses and grant._state.adding:
                grant.granted = scope.limit // len(grants)
        fixed = sum(grant.granted for number, grant in grants.items() if number not in uses)
        spare = max(0, scope.limit - fixed)
        wanted = targets(spare, uses, random.choice([*uses, 0]), scope.among())
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


def _grants(scope: Limited) -> dict[int, Grant]:
    """What every shard has been granted; a fenced one nothing."""
    found = {grant.shard: grant for grant in scope.grants()}
    fenced = set(Shard.objects.filter(is_fenced=True).values_list("number", flat=True))
    for number in database.aliases():
        if number not in found:
            found[number] = scope.grant(number)
        elif number in fenced and found[number].granted:
            found[number].granted = 0
            found[number].version += 1
    return found


def _uses(scope: Limited, grants: dict[int, Grant]) -> dict[int, Use]:
    """What the shards that answer have and use; grants are set right by what they say."""
    fenced = set(Shard.objects.filter(is_fenced=True).values_list("number", flat=True))
    uses: dict[int, Use] = {}
    answers = everywhere.numbered(lambda alias: sql.rows(scope.use, scope.params, alias=alias)[0], unknown=[])
    for number, (share, version, used, wanted) in answers:
        grant = grants[number]
        if share is not None and version > grant.version:  # it was lowered, and control did not hear of that
            grant.granted, grant.version = share, version
        elif grant.granted and (share is None or version < grant.version):
            _put(scope, grant)  # it was raised, and the shard did not hear of that
        if number not in fenced:
            uses[number] = Use(grant.granted, used, wanted)
    return uses


def _lower(scope: Limited, grant: Grant, target: int) -> None:
    """Let a shard give back what it does not use; the grant is then what it has kept."""
    params = scope.params

    def action(connection: psycopg.Connection[sql.Row]) -> Sequence[sql.Row]:
        scope.hold(connection)
        share, _, used, _ = sql.send(connection, scope.use, params).fetchall()[0]
        more = {"target": target, "used": used, "version": grant.version}
        after = sql.send(connection, scope.lower, params | more).fetchall()
        if not after:
            raise Unavailable("The shard does not know what is limited.")
        scope.moved(connection, after[0][0] - (share or 0))
        return after

    try:
        rows = sql.short_transaction(database.aliases()[grant.shard], action)
    except JobsPlatformError:
        return  # it keeps its share; what it may have given back becomes known when it answers
    grant.granted, grant.version = rows[0]


def _put(scope: Limited, grant: Grant) -> None:
    """Tell a shard its share; a later pass does if this one cannot."""
    params = scope.params | {"share": grant.granted, "version": grant.version}

    def action(connection: psycopg.Connection[sql.Row]) -> None:
        scope.hold(connection)
        share = sql.send(connection, scope.use, params).fetchall()[0][0]
        if sql.send(connection, scope.put, params).fetchall():
            scope.moved(connection, grant.granted - (share or 0))

    try:
        sql.short_transaction(database.aliases()[grant.shard], action)
    except JobsPlatformError:
        return
