"""What the platform keeps for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils.safestring import SafeString

from jobqueue.admin.jobs import job_link
from jobqueue.admin.names import Names
from jobqueue.models import (
    Horizon,
    IdSpace,
    Lane,
    LaneDelta,
    PolicyRow,
    RequestKey,
    SchedulerState,
)
from jobsplatform.adminsite import (
    ReadOnlyAdmin,
    ShardAdmin,
    ago,
)


class NamedRowsAdmin(ShardAdmin):
    """Rows that carry numbers of tenants and queues."""

    def prepare(self, rows: Sequence[Any]) -> None:
        tenant_ids = [row.tenant_id for row in rows if getattr(row, "tenant_id", None) is not None]
        known = Names(tenant_ids, [row.queue_id for row in rows])
        for row in rows:
            row.names = known

    @admin.display
    def tenant(self, row: Any) -> str:
        return str(row.names.tenant(row.tenant_id))

    @admin.display
    def queue(self, row: Any) -> str:
        return str(row.names.queue(row.queue_id))


@admin.register(Lane)
class LaneAdmin(NamedRowsAdmin):
    list_display = (
        "id",
        "queue",
        "band",
        "tenant",
        "kind",
        "dependency",
        "is_active",
        "gated_until",
        "bound",
        "used_at",
    )
    fields = readonly_fields = (
        "queue",
        "band",
        "tenant",
        "kind",
        "dependency",
        "is_active",
        "gated_until",
        "bound",
        "used_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The bound may be minus infinity, which Python's instants do not know: as text."""
        rows = super().get_queryset(request).defer("low")
        shown: QuerySet[Any] = rows.annotate(low_text=Cast("low", TextField()))
        return shown

    @admin.display
    def band(self, row: Any) -> str:
        return str(row.names.band(row.queue_id, row.priority))

    @admin.display(description="low")
    def bound(self, row: Any) -> str:
        return str(row.low_text)


@admin.register(RequestKey)
class RequestKeyAdmin(NamedRowsAdmin):
    list_display = ("key", "tenant", "queue", "job", "accepted", "is_purged")
    fields = readonly_fields = ("key", "tenant", "queue", "job", "accepted_at", "job_purged_at")

    @admin.display
    def job(self, row: RequestKey) -> SafeString:
        return job_link(row.job_id)

    @admin.display
    def accepted(self, row: RequestKey) -> SafeString | str:
        return ago(row.accepted_at)

    @admin.display(description="job purged", boolean=True)
    def is_purged(self, row: RequestKey) -> bool:
        return row.job_purged_at is not None


@admin.register(SchedulerState)
class SchedulerStateAdmin(NamedRowsAdmin):
    list_display = ("id", "queue", "part", "policy_version", "at")
    fields = readonly_fields = ("queue", "part", "policy_version", "state", "at")


@admin.register(PolicyRow)
class PolicyRowAdmin(ShardAdmin):
    list_display = ("name", "version", "lease_s", "max_attempts", "is_dispatch_paused", "is_intake_paused")


@admin.register(LaneDelta)
class LaneDeltaAdmin(ShardAdmin):
    list_display = ("id", "lane_id", "at", "started", "succeeded", "failed", "retried", "lease_lost", "dead")


@admin.register(Horizon)
class HorizonAdmin(ShardAdmin):
    list_display = ("at", "next_xid")


@admin.register(IdSpace)
class IdSpaceAdmin(ReadOnlyAdmin):
    list_display = ("space", "shard", "reason", "created_at")
