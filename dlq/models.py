"""Dead letters: jobs out of the schedule with a reason, and how they come back."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobqueue.models import Ticket
from jobqueue.states import DeadReason
from jobsplatform.database import SHARD


class DeadLetter(Ticket):
    """A job in quarantine. The payload stays in `job`; here is only what is safe to show."""

    reason = models.CharField(max_length=20, choices=DeadReason)
    failed_at = models.DateTimeField()
    error_class = models.CharField(max_length=20, null=True)
    message = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=16)

    class Meta:
        indexes = [models.Index(fields=["-failed_at", "-job_id"], name="deadletter_newest_idx")]
        constraints = [
            models.CheckConstraint(condition=Q(reason__in=DeadReason.values), name="deadletter_reason_known")
        ]


class Correction(models.Model):
    """A version of a payload that an operator wrote; the original stays in `job`."""

    placement = SHARD

    job_id = models.BigIntegerField()
    version = models.SmallIntegerField()
    redrive_generation = models.SmallIntegerField(help_text="Of the job when it was corrected.")
    note = models.TextField()
    author = models.CharField(max_length=200)
    at = models.DateTimeField()
    payload = models.TextField(null=True)
    payload_ref = models.TextField(null=True)
    payload_bytes = models.IntegerField()
    old_sha256 = models.BinaryField(max_length=32, null=True)
    new_sha256 = models.BinaryField(max_length=32, null=True)
    idempotency_key = models.CharField(max_length=255, null=True)
    call_hash = models.BinaryField(max_length=32, null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job_id", "version"], name="correction_version_once"),
            models.UniqueConstraint(
                fields=["job_id", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="correction_key_once",
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.version} of {self.job_id}"


class Redrive(models.Model):
    """One audited way back: (job, redrive generation) is unique, so two redrives can't both win."""

    placement = SHARD

    pk = models.CompositePrimaryKey("job_id", "redrive_generation")
    job_id = models.BigIntegerField()
    redrive_generation = models.SmallIntegerField()
    redrive_key = models.CharField(max_length=255, null=True)
    call_hash = models.BinaryField(max_length=32)
    note = models.TextField()
    actor = models.CharField(max_length=200)
    reason = models.CharField(max_length=20, choices=DeadReason)
    audit_id = models.BigIntegerField()
    at = models.DateTimeField()
    led_to = models.CharField(max_length=10)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job_id", "redrive_key"],
                condition=Q(redrive_key__isnull=False),
                name="redrive_key_once",
            )
        ]

    def __str__(self) -> str:
        return f"redrive {self.redrive_generation} of {self.job_id}"
