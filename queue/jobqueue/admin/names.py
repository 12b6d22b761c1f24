"""What the control database knows by number: names of queues, tenants and lanes, for a page's rows at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jobqueue.models import (
    Job,
    Queue,
)
from jobsplatform import database
from jobsplatform.adminsite import (
    NOTHING,
)
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Place:
    """Whose a job is and where: names for its numbers, looked up for a whole page at once."""

    tenant: str
    queue: str
    band: str
    kind: str


class Names:
    """The names of some tenants and queues."""

    def __init__(self, tenant_ids: Iterable[int], queue_ids: Iterable[int]) -> None:
        self._tenants = dict(Tenant.objects.filter(pk__in=set(tenant_ids)).values_list("pk", "slug"))
        rows = Queue.objects.filter(pk__in=set(queue_ids)).values_list("pk", "name", "bands")
        self._queues = {pk: (name, [band["name"] for band in bands]) for pk, name, bands in rows}

    def tenant(self, tenant_id: int | None) -> str:
        return NOTHING if tenant_id is None else self._tenants.get(tenant_id, f"#{tenant_id}")

    def queue(self, queue_id: int) -> str:
        return self._queues.get(queue_id, (f"#{queue_id}", []))[0]

    def band(self, queue_id: int, index: int) -> str:
        bands = self._queues.get(queue_id, ("", []))[1]
        return bands[index] if 0 <= index < len(bands) else str(index)

    def place(self, job: Any) -> Place:
        """Of a job, or of what has a job's columns."""
        band = self.band(job.queue_id, job.priority)
        return Place(self.tenant(job.tenant_id), self.queue(job.queue_id), band, job.kind)


def places_of_jobs(job_ids: Sequence[int]) -> dict[int, Place]:
    """Job id → its place, for jobs of any shard: one query a shard and two to control."""
    found: list[Job] = []
    for alias in {database.alias_of(job_id) for job_id in job_ids} - {None}:
        ids = [job_id for job_id in job_ids if database.alias_of(job_id) == alias]
        jobs = Job.objects.using(alias).filter(pk__in=ids)
        found += jobs.only("tenant_id", "queue_id", "priority", "kind")
    known = Names((job.tenant_id for job in found), (job.queue_id for job in found))
    return {job.pk: known.place(job) for job in found}
