"""The tables of schedules: the register in the control database, and on each shard what fires there."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from jobqueue.states import FireOutcome, MissedPolicy, OverlapPolicy
from jobsplatform.database import SHARD
from tenants.models import Tenant


class Schedule(models.Model):
    """Work that a tenant wants again and again. Its jobs are made on one shard, which has a row of it."""

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    queue = models.ForeignKey("queue.Queue", models.PROTECT)
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=64)
    cron = models.CharField(max_length=500)
    timezone = models.CharField(max_length=64, default="UTC")
    payload = models.TextField(default="null", help_text="JSON, as it was sent.")
    priority = models.SmallIntegerField()
    missed = models.CharField(max_length=4, choices=MissedPolicy, default=MissedPolicy.ONE)
    overlap = models.CharField(max_length=5, choices=OverlapPolicy, default=OverlapPolicy.ALLOW)
    is_enabled = models.BooleanField(default=True)
    shard = models.SmallIntegerField(editable=False)
    version = models.BigIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(priority__gte=0, priority__lte=99), name="schedule_priority_in_range"
            ),
            models.CheckConstraint(condition=Q(missed__in=MissedPolicy.values), name="schedule_missed_known"),
            models.CheckConstraint(
                condition=Q(overlap__in=OverlapPolicy.values), name="schedule_overlap_known"
            ),
        ]
        indexes = [models.Index(fields=["tenant", "-id"], name="schedule_tenant_list_idx")]

    def __str__(self) -> str:
        return self.name


class ScheduleAnswer(models.Model):
    """What the first creation under an Idempotency-Key was answered; kept for a day."""

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    key = models.TextField()
    fingerprint = models.BinaryField(max_length=16)
    answer = models.JSONField()
    answered_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "key"], name="scheduleanswer_once_per_tenant")
        ]
        indexes = [models.Index(fields=["answered_at"], name="scheduleanswer_purge_idx")]

    def __str__(self) -> str:
        return self.key


class ScheduleRow(models.Model):
    """What a shard must know of a schedule to fire it; pushed with a version, moved on by each fire."""

    placement = SHARD

    schedule_id = models.BigIntegerField(primary_key=True)
    version = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    queue_id = models.BigIntegerField()
    priority = models.SmallIntegerField()
    kind = models.CharField(max_length=64)
    cron = models.CharField(max_length=500)
    timezone = models.CharField(max_length=64)
    payload = models.TextField()
    missed = models.CharField(max_length=4, choices=MissedPolicy)
    overlap = models.CharField(max_length=5, choices=OverlapPolicy)
    is_enabled = models.BooleanField()
    next_at = models.DateTimeField(null=True, help_text="The oldest instant that is not dealt with.")
    due_at = models.DateTimeField(
        null=True, help_text="When a dispatcher looks at it: then, or later where it is held or paced."
    )
    runs = ArrayField(
        models.BigIntegerField(), default=list, help_text="Jobs of earlier fires that may wait or run yet."
    )
    missed_count = models.BigIntegerField(default=0, help_text="Fires that were passed over for good.")
    last_nominal_at = models.DateTimeField(null=True)
    last_fired_at = models.DateTimeField(null=True)
    last_job_id = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(next_at__isnull=True, due_at__isnull=True) | Q(due_at__gte=F("next_at")),
                name="schedulerow_due_not_before_next",
            )
        ]
        indexes = [
            models.Index(
                fields=["due_at", "schedule_id"],
                condition=Q(is_enabled=True),
                name="schedulerow_due_fire_idx",
            )
        ]

    def __str__(self) -> str:
        return f"schedule {self.schedule_id}"


class ScheduleFire(models.Model):
    """One fire. The constraint makes it once: whoever inserts the row makes the job, in one statement."""

    placement = SHARD

    schedule_id = models.BigIntegerField()
    nominal_at = models.DateTimeField(help_text="When it was to fire; of a run asked for, when it was.")
    is_manual = models.BooleanField(default=False)
    outcome = models.CharField(max_length=7, choices=FireOutcome)
    job_id = models.BigIntegerField(null=True)
    run_key = models.TextField(null=True)
    fired_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["schedule_id", "nominal_at"],
                condition=Q(is_manual=False),
                name="schedulefire_once_per_instant",
            ),
            models.UniqueConstraint(
                fields=["schedule_id", "run_key"],
                condition=Q(run_key__isnull=False),
                name="schedulefire_once_per_key",
            ),
            models.CheckConstraint(
                condition=Q(outcome__in=FireOutcome.values), name="schedulefire_outcome_known"
            ),
        ]
        indexes = [
            models.Index(fields=["schedule_id", "-id"], name="schedulefire_history_idx"),
            models.Index(fields=["fired_at"], name="schedulefire_purge_idx"),
        ]

    def __str__(self) -> str:
        return f"fire of schedule {self.schedule_id} at {self.nominal_at:%Y-%m-%dT%H:%M}"
