"""Where jobs stand: ready, scheduled, running, finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.contrib import admin
from django.utils.safestring import SafeString

from jobqueue.admin.filters import due_filter, since_filter
from jobqueue.admin.jobs import JobKeyedAdmin, job_url
from jobqueue.admin.names import places_of_jobs
from jobqueue.ids import format_id
from jobqueue.models import (
    Lease,
    ReadyJob,
    Result,
    ScheduledJob,
)
from jobsplatform.adminsite import (
    NOTHING,
    ShardFilter,
    ago,
    badge,
    masked,
    until,
)
from jobsplatform.exporting import visible


class PlaceAdmin(JobKeyedAdmin):
    """Jobs in one place. A row leads to the job."""

    def prepare(self, rows: Sequence[Any]) -> None:
        places = places_of_jobs([row.pk for row in rows])
        for row in rows:
            row.place = places.get(row.pk)

    def url_of(self, row: Any) -> str | None:
        return job_url(row.pk)

    @admin.display
    def job(self, row: Any) -> SafeString | str:
        return format_id(row.pk)

    @admin.display
    def kind(self, row: Any) -> str:
        return row.place.kind if row.place else NOTHING

    @admin.display
    def tenant(self, row: Any) -> str:
        return row.place.tenant if row.place else NOTHING

    @admin.display
    def queue(self, row: Any) -> str:
        return row.place.queue if row.place else NOTHING

    @admin.display
    def band(self, row: Any) -> str:
        return row.place.band if row.place else NOTHING

    @admin.display(description="attempts")
    def tries(self, row: Any) -> str:
        return f"{row.attempt} of {row.max_attempts}"

    @admin.display(description="waits since")
    def waits_since(self, row: Any) -> SafeString | str:
        return ago(row.first_ready_at)

    @admin.display(description="checkpoint")
    def checkpoint_size(self, row: Any) -> str:
        return NOTHING if row.checkpoint is None else f"{len(row.checkpoint.encode()):,} bytes"


PLACE: Final = ("job", "kind", "tenant", "queue", "band")
TICKET: Final = (
    "deadline",
    "generation",
    "releases",
    "crashes",
    "lapses",
    "payload_version",
    "redrive_generation",
    "reconcile",
)


@admin.register(ReadyJob)
class ReadyJobAdmin(PlaceAdmin):
    list_display = (*PLACE, "waits_since", "tries", "is_fresh")
    fields = readonly_fields = (
        *PLACE,
        "waits_since",
        "position",
        "is_fresh",
        "tries",
        *TICKET,
        "checkpoint_size",
    )

    @admin.display(description="fresh", boolean=True)
    def is_fresh(self, row: ReadyJob) -> bool:
        return row.fresh


@admin.register(ScheduledJob)
class ScheduledJobAdmin(PlaceAdmin):
    list_display = (*PLACE, "reason", "due", "tries")
    list_filter = (ShardFilter, due_filter("due_at", "due", "now", "later"))
    fields = readonly_fields = (*PLACE, "reason", "due_at", "tries", *TICKET, "checkpoint_size")

    @admin.display
    def due(self, row: ScheduledJob) -> SafeString | str:
        return until(row.due_at)


@admin.register(Lease)
class LeaseAdmin(PlaceAdmin):
    list_display = (*PLACE, "held_by", "since", "ends", "tries", "is_asked_to_stop")
    list_filter = (ShardFilter, due_filter("expires_at", "lease", "has lapsed", "holds"))
    fields = readonly_fields = (
        *PLACE,
        "held_by",
        "claimed_at",
        "expires_at",
        "max_run_at",
        "is_started",
        "cancel_requested",
        "tries",
        *TICKET,
        "checkpoint_size",
    )

    @admin.display(description="worker")
    def held_by(self, row: Lease) -> str:
        return visible(row.worker) if row.worker else NOTHING

    @admin.display(description="runs since")
    def since(self, row: Lease) -> SafeString | str:
        return ago(row.claimed_at)

    @admin.display(description="lease ends")
    def ends(self, row: Lease) -> SafeString | str:
        return until(row.expires_at)

    @admin.display(description="to stop", boolean=True)
    def is_asked_to_stop(self, row: Lease) -> bool:
        return row.cancel_requested


@admin.register(Result)
class ResultAdmin(PlaceAdmin):
    list_display = (*PLACE, "state", "ended", "attempt", "late")
    list_filter = (ShardFilter, since_filter("finished_at", "finished"))
    fields = readonly_fields = (
        *PLACE,
        "state",
        "finished_at",
        "generation",
        "attempt",
        "crashes",
        "redrive_generation",
        "late",
        "content",
    )

    @admin.display(description="outcome")
    def state(self, row: Result) -> SafeString:
        return badge(row.outcome)

    @admin.display(description="ended")
    def ended(self, row: Result) -> SafeString | str:
        return ago(row.finished_at)

    @admin.display(description="result")
    def content(self, row: Result) -> SafeString | str:
        if row.body is None or row.payload_hash is None:
            return NOTHING
        return masked(len(row.body.encode()), bytes(row.payload_hash).hex())
