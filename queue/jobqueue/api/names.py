"""The names that the outside knows tenants and queues by, for lists that hold their numbers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from django.db import InterfaceError, OperationalError

from jobqueue import policies
from jobqueue.api import wire
from jobqueue.api.wire import Members
from jobqueue.reads import JobView
from jobsplatform import database, sql
from jobsplatform.errors import JobsPlatformError
from tenants.models import Tenant

SLUG_SECONDS: Final = 60.0  # how long a renamed tenant may go by its old slug
CACHE_MAX: Final = 100_000

_slugs: dict[int, tuple[float, str]] = {}


def slugs(tenant_ids: Iterable[int]) -> dict[int, str]:
    """Tenant id → slug, for those that exist. Without control: as it was, or as the shards were told."""
    wanted = set(tenant_ids)
    now = time.monotonic()
    missing = [tenant_id for tenant_id in wanted if _slugs.get(tenant_id, (0.0, ""))[0] <= now]
    if missing:
        if len(_slugs) > CACHE_MAX:
            _slugs.clear()
        try:
            found = list(Tenant.objects.filter(pk__in=missing).values_list("pk", "slug"))
            until = now + SLUG_SECONDS
        except (OperationalError, InterfaceError):
            found = _told_to_shards([one for one in missing if one not in _slugs])
            until = now  # control is asked again at the next need
        _slugs.update((tenant_id, (until, slug)) for tenant_id, slug in found)
    return {tenant_id: _slugs[tenant_id][1] for tenant_id in wanted if tenant_id in _slugs}


def _told_to_shards(tenant_ids: list[int]) -> list[tuple[int, str]]:
    database.give_connections_back()  # control's is lost, and may be that of a shard too
    found: dict[int, str] = {}
    for alias in database.aliases().values():
        if left := [one for one in tenant_ids if one not in found]:
            with suppress(JobsPlatformError):
                found.update(sql.rows("tenants/tenant_slugs", {"tenant_ids": left}, alias=alias))
    return list(found.items())


def forget() -> None:
    """Drop what is remembered."""
    _slugs.clear()


def jobs(views: list[JobView]) -> Iterator[Members]:
    """Jobs as wire."""
    tenants = slugs(view.tenant_id for view in views)
    queues = policies.names({view.queue_id for view in views})
    for view in views:
        queue = queues.get(view.queue_id, "")
        yield wire.job(view, tenants.get(view.tenant_id, ""), queue, effective_priority(view, queue))


def effective_priority(view: JobView, queue: str) -> int:
    """The band that a job counts as by its age."""
    if not view.waited_s or not queue:
        return view.priority
    return policies.by_name(queue).scheduling.effective_band(view.priority, view.waited_s)
