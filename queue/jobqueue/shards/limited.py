"""What is limited over several shards: a tenant's running and waiting jobs and its rate, a dependency's calls and rate.

Each says which row of control makes its changes one after the other, which rows hold what was granted, and by which
statements a shard tells what it has and uses, gives back and is given more. `shares` does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from jobqueue.models import Dependency
from jobqueue.policy.limit import burst_of
from jobqueue.shard_models import DependencyGrant, Shard
from jobqueue.shards import register
from jobsplatform import sql
from tenants.models import LimitGrant, Quota, Tenant

RUNNING: Final = "running"
DEPTH: Final = "depth"
RATE: Final = "rate"

Grant = LimitGrant | DependencyGrant
Connection = psycopg.Connection[sql.Row]


@dataclass(frozen=True, slots=True)
class OfTenant:
    """One limit of a tenant, in a queue (empty: all), in a band (-1: all)."""

    tenant_id: int
    queue: str
    band: int
    resource: str
    limit: int

    lower = "jobqueue/share_lower"
    put = "jobqueue/share_put"

    @property
    def use(self) -> str:
        """The statement that tells what a shard has and uses."""
        return "jobqueue/rate_use" if self.resource == RATE else "jobqueue/share_use"

    @property
    def key(self) -> dict[str, Any]:
        names = ("tenant_id", "queue", "band", "resource")
        return {name: getattr(self, name) for name in names}

    @property
    def params(self) -> dict[str, Any]:
        return self.key | {"bound": self.limit + 1, "now": None}

    def lock(self) -> None:
        """Let one change its grants at a time."""
        Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=self.tenant_id)

    def grants(self) -> list[Grant]:
        return list(LimitGrant.objects.filter(**self.key))

    def grant(self, shard: int) -> Grant:
        return LimitGrant(shard=shard, **self.key)

    def among(self) -> list[int]:
        """The shards that take its new work."""
        return register.shards_of_tenant(self.tenant_id)

    def hold(self, connection: Connection) -> None:
        """Let nobody count against the limit until the transaction's end; a rate's tokens are those of now."""
        if self.resource != RUNNING:  # the row that admissions lock must be there
            one = {"tenant_ids": [self.tenant_id], "queues": [self.queue], "bands": [self.band]}
            sql.send(connection, "tenants/allowance_make", one)
        sql.send(connection, "jobqueue/share_hold", self.params).fetchall()
        if self.resource == RATE:
            sql.send(connection, "jobqueue/rate_settle", self.params)

    def moved(self, connection: Connection, by: int) -> None:
        """The share was changed by so much: its tokens go with it."""
        if self.resource == RATE and by:
            sql.send(connection, "jobqueue/rate_move", self.params | {"moved": by})


@dataclass(frozen=True, slots=True)
class OfDependency:
    """How many calls of a dependency run at once, or start within one window of its rate."""

    pk: int
    name: str
    resource: str
    limit: int

    lower = "jobqueue/dependency_share_lower"
    put = "jobqueue/dependency_share_put"
    use = "jobqueue/dependency_share_use"

    @property
    def key(self) -> dict[str, Any]:
        return {"dependency_id": self.pk, "resource": self.resource}

    @property
    def params(self) -> dict[str, Any]:
        return {"name": self.name, "resource": self.resource, "bound": self.limit + 1, "now": None}

    def lock(self) -> None:
        """Let one change its grants at a time."""
        Dependency.objects.select_for_update(no_key=True).get(pk=self.pk)

    def grants(self) -> list[Grant]:
        return list(DependencyGrant.objects.filter(**self.key))

    def grant(self, shard: int) -> Grant:
        return DependencyGrant(shard=shard, **self.key)

    def among(self) -> list[int]:
        """The shards that take new work."""
        active = Shard.objects.filter(state=Shard.State.ACTIVE)
        return list(active.values_list("number", flat=True))

    def hold(self, connection: Connection) -> None:
        """Let nobody count against the limit until the transaction's end."""
        sql.send(connection, "jobqueue/dependency_wait", {"name": self.name}).fetchall()

    def moved(self, connection: Connection, by: int) -> None:
        """Starts within the window are counted as they are: nothing goes along."""


Limited = OfTenant | OfDependency


def of_quota(quota: Quota) -> Iterator[Limited]:
    """What of a quota is shared, and how much of it there is."""
    where = (quota.tenant_id, quota.queue, -1 if quota.band is None else quota.band)
    if quota.max_running is not None:
        yield OfTenant(*where, RUNNING, quota.max_running)
    if quota.max_depth is not None:
        yield OfTenant(*where, DEPTH, quota.max_depth)
    if quota.enqueue_rate_per_s is not None:
        yield OfTenant(*where, RATE, quota.enqueue_burst or math.ceil(quota.enqueue_rate_per_s))


def of_dependency(dependency: Dependency) -> Iterator[Limited]:
    """The same of a dependency."""
    who = (dependency.pk, dependency.name)
    if dependency.max_running is not None:
        yield OfDependency(*who, RUNNING, dependency.max_running)
    if dependency.rate_per_s is not None:
        yield OfDependency(*who, RATE, burst_of(dependency.rate_per_s, dependency.rate_burst))
