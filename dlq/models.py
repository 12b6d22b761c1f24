"""Dead letters: jobs out of the schedule with a reason, and how they come back: one by one, in campaigns, as forks."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from dlq.states import CampaignState, RedriveOutcome
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
        indexes = [
            models.Index(fields=["-failed_at", "-job_id"], name="deadletter_newest_idx"),
            models.Index(fields=["lane_id", "-failed_at", "-job_id"], name="deadletter_lane_list_idx"),
            models.Index(fields=["lane_id", "fingerprint", "failed_at"], name="deadletter_group_idx"),
            models.Index(
                fields=["fingerprint", "-failed_at", "-job_id"],
                include=["lane_id"],
                name="deadletter_error_list_idx",
            ),
            models.Index(fields=["reason", "failed_at"], name="deadletter_reason_count_idx"),
        ]
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
    deadline = models.DateTimeField(null=True, help_text="Of the job from then on.")
    max_attempts = models.SmallIntegerField(null=True, help_text="From then on; null: not recorded then.")
    campaign_id = models.BigIntegerField(null=True)
    outcome = models.CharField(
        max_length=10,
        null=True,
        choices=RedriveOutcome,
        help_text="Of a campaign's redrive; null: not known yet.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job_id", "redrive_key"],
                condition=Q(redrive_key__isnull=False),
                name="redrive_key_once",
            ),
            # A campaign redrives a job once, whatever its dispatcher believes.
            models.UniqueConstraint(
                fields=["job_id", "campaign_id"],
                condition=Q(campaign_id__isnull=False),
                name="redrive_campaign_once",
            ),
        ]
        indexes = [
            models.Index(
                fields=["campaign_id", "job_id"],
                condition=Q(campaign_id__isnull=False, outcome__isnull=True),
                name="redrive_follow_idx",
            ),
        ]

    def __str__(self) -> str:
        return f"redrive {self.redrive_generation} of {self.job_id}"


class Fork(models.Model):
    """Which dead letter a new operation was made from. It stands on the new job's shard."""

    placement = SHARD

    job_id = models.BigIntegerField(primary_key=True)
    origin_job_id = models.BigIntegerField()
    note = models.TextField()
    actor = models.CharField(max_length=200)
    audit_id = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["origin_job_id"], name="fork_origin_idx")]

    def __str__(self) -> str:
        return f"{self.job_id} from {self.origin_job_id}"


class Handling(models.Model):
    """Who looks after an error, and what is known of it (control database)."""

    fingerprint = models.CharField(max_length=16, unique=True)
    assignee = models.CharField(max_length=150, blank=True, help_text="An account; empty: nobody.")
    note = models.TextField()
    actor = models.CharField(max_length=200)
    at = models.DateTimeField(db_default=Now())
    known_issue = models.CharField(
        max_length=200, blank=True, db_default="", help_text="Where it is being mended."
    )
    snoozed_at = models.DateTimeField(null=True)
    snoozed_until = models.DateTimeField(null=True)
    snoozed_by = models.CharField(max_length=200, blank=True, db_default="")
    snooze_note = models.TextField(blank=True, db_default="")
    wakes_after = models.IntegerField(null=True, help_text="So many more dead letters end the snooze.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(snoozed_until=None, snoozed_at=None, wakes_after=None)
                | Q(snoozed_until__isnull=False, snoozed_at__isnull=False, wakes_after__gte=0),
                name="handling_snooze_whole",
            )
        ]
        indexes = [
            models.Index(
                fields=["snoozed_until"],
                condition=Q(snoozed_until__isnull=False),
                name="handling_snoozed_idx",
            )
        ]

    def __str__(self) -> str:
        return self.fingerprint

    @property
    def issue_url(self) -> str:
        """Where the known issue is, if it is an address that a page may link to."""
        return self.known_issue if self.known_issue.startswith(("https://", "http://")) else ""


class Campaign(models.Model):
    """A paced bulk redrive: what it chooses, how it goes, and whether it may go on (control database).

    The filter is frozen: nothing that fails after `frozen_at` belongs to it. Null in a column of it: any.
    """

    tenant_id = models.BigIntegerField(null=True, help_text="Whose dead letters; null: the whole fleet's.")
    queue_ids = ArrayField(models.BigIntegerField(), null=True, help_text="What its maker's token allowed.")
    queue_id = models.BigIntegerField(null=True)
    reason = models.CharField(max_length=20, null=True, choices=DeadReason)
    kind = models.CharField(max_length=64, null=True)
    fingerprint = models.CharField(max_length=16, null=True)
    failed_before = models.DateTimeField(null=True)
    failed_since = models.DateTimeField(null=True)
    job_ids = ArrayField(models.BigIntegerField(), null=True, help_text="Those that were ticked.")
    frozen_at = models.DateTimeField()
    patch = models.TextField(null=True, help_text="What is merged into each payload first (RFC 7396).")
    note = models.TextField()
    actor = models.CharField(max_length=200)
    rate_per_s = models.SmallIntegerField()
    canary = models.SmallIntegerField()
    stop_at_failure_share = models.FloatField()
    state = models.CharField(max_length=8, choices=CampaignState, default=CampaignState.RUNNING)
    is_canary_over = models.BooleanField(default=False)
    judged_succeeded = models.BigIntegerField(
        default=0, help_text="Successes before the share is judged, since a stop was overruled."
    )
    judged_failed = models.BigIntegerField(default=0, help_text="Failures before it, likewise.")
    version = models.BigIntegerField(default=1)
    first_matches = models.BigIntegerField(null=True, help_text="Counted when it was made.")
    is_capped = models.BooleanField(default=False)
    idempotency_key = models.CharField(max_length=255, null=True)
    call_hash = models.BinaryField(max_length=32)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=CampaignState.values), name="campaign_state_known"),
            models.CheckConstraint(
                condition=Q(rate_per_s__gte=1, rate_per_s__lte=200), name="campaign_rate_in_range"
            ),
            models.CheckConstraint(
                condition=Q(queue_id__isnull=False)
                | Q(reason__isnull=False)
                | Q(kind__isnull=False)
                | Q(fingerprint__isnull=False)
                | Q(failed_before__isnull=False)
                | Q(job_ids__isnull=False),
                name="campaign_filter_not_empty",
            ),
            models.UniqueConstraint(
                fields=["tenant_id", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="campaign_key_once",
                nulls_distinct=False,
            ),
        ]
        indexes = [
            models.Index(fields=["id"], condition=Q(state=CampaignState.RUNNING), name="campaign_running_idx")
        ]

    def __str__(self) -> str:
        return f"campaign {self.pk}"


class CampaignPart(models.Model):
    """How far a campaign has come on this shard; moved in the same transaction as each batch of its redrives."""

    placement = SHARD

    campaign_id = models.BigIntegerField(primary_key=True)
    version = models.BigIntegerField(help_text="Of the campaign when it last said whether to go on.")
    is_open = models.BooleanField(help_text="The campaign may go on.")
    ceiling = models.IntegerField(null=True, help_text="Redrives allowed until the canary is judged.")
    matches = models.BigIntegerField()
    is_capped = models.BooleanField(help_text="There were more than were counted.")
    seen_to = models.BigIntegerField(default=0, help_text="Job ids up to here are done.")
    is_exhausted = models.BooleanField(default=False)
    redriven = models.BigIntegerField(default=0)
    skipped = models.JSONField(default=dict, help_text="Reason to count.")
    succeeded = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    ended = models.BigIntegerField(default=0, help_text="Cancelled or expired after their redrive.")
    tokens = models.FloatField(default=0, help_text="Redrives that the rate allows, at `filled_at`.")
    filled_at = models.DateTimeField()
    followed_to = models.BigIntegerField(default=0, help_text="Where looking for outcomes goes on.")

    def __str__(self) -> str:
        return f"part of campaign {self.campaign_id}"
