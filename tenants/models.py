"""Tenants, who may act for them, what they may use, and the audit of what was done."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Now

from jobsplatform.database import BOTH, SHARD

SLUG = RegexValidator(
    r"^[a-z0-9][a-z0-9-]{0,62}\Z", "Lower-case letters, digits and hyphens, 1 to 63 characters."
)


class Tenant(models.Model):
    """An owner of work."""

    slug = models.CharField(max_length=63, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200, blank=True)
    weight = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    is_suspended = models.BooleanField(default=False)
    is_paused = models.BooleanField(default=False, help_text="No job of a paused tenant is started.")
    version = models.BigIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(weight__gte=1), name="tenant_weight_positive")
        ]

    def __str__(self) -> str:
        return self.slug


class Membership(models.Model):
    """A person's part in a tenant."""

    class Role(models.TextChoices):
        VIEWER = "viewer"
        OPERATOR = "operator"
        ADMIN = "admin"

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    role = models.CharField(max_length=20, choices=Role, default=Role.VIEWER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="membership_once_per_user")]

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant}"


class ApiToken(models.Model):
    """A credential. Only its keyed digest is stored; without a tenant it is a fleet token."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, null=True, blank=True)
    public_id = models.CharField(max_length=16, unique=True, editable=False)
    digest = models.BinaryField(max_length=32, editable=False)
    previous_digest = models.BinaryField(max_length=32, null=True, editable=False)
    previous_until = models.DateTimeField(null=True, editable=False)
    name = models.CharField(max_length=200, blank=True)
    scopes = ArrayField(models.CharField(max_length=20))
    queues = ArrayField(models.CharField(max_length=64), null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"jp_{self.public_id}"


class SigningSecret(models.Model):
    """That a tenant's secret of this number signs its outgoing calls; the secret itself is derived, not stored."""

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    number = models.PositiveIntegerField(validators=[MinValueValidator(1)])
    ends_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "number"], name="signing_secret_once")]

    def __str__(self) -> str:
        return f"signing secret {self.number} of {self.tenant}"


class LoginAttempt(models.Model):
    """How often somebody tried to log in since an instant: by name and address, by name, by address (hashed)."""

    key = models.BinaryField(max_length=32, primary_key=True)
    count = models.IntegerField()
    since = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["since"], name="loginattempt_purge_idx")]

    def __str__(self) -> str:
        return f"{self.count} attempts since {self.since}"


class Authenticator(models.Model):
    """An account's app that shows codes. Its secret is derived from the seed and the platform's pepper, not stored."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE)
    seed = models.BinaryField(max_length=16, editable=False)
    last_step = models.BigIntegerField(
        default=0,
        editable=False,
        help_text="Half minutes of the newest code that was taken; never goes back.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    confirmed_at = models.DateTimeField(
        null=True, editable=False, help_text="When its first code was taken; null: it is not in use yet."
    )

    def __str__(self) -> str:
        return f"authenticator of {self.user}"


class Quota(models.Model):
    """Limits of a tenant, or of a tenant in one queue, or in one band of a queue. Null is no limit."""

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    queue = models.CharField(max_length=64, blank=True, help_text="Empty: over all queues.")
    band = models.SmallIntegerField(null=True, blank=True, help_text="A band's index; empty: over all bands.")
    max_running = models.PositiveIntegerField(null=True, blank=True)
    max_depth = models.PositiveIntegerField(null=True, blank=True, help_text="Jobs that wait.")
    enqueue_rate_per_s = models.FloatField(null=True, blank=True)
    enqueue_burst = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Needs a rate; empty: one second of it.",
    )
    max_payload_bytes = models.PositiveIntegerField(null=True, blank=True)
    max_schedules = models.PositiveIntegerField(null=True, blank=True)
    weight = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "queue", "band"], name="quota_once_per_scope", nulls_distinct=False
            ),
            models.CheckConstraint(
                condition=models.Q(band__isnull=True) | ~models.Q(queue=""), name="quota_band_needs_queue"
            ),
            models.CheckConstraint(
                condition=models.Q(enqueue_rate_per_s__isnull=True) | models.Q(enqueue_rate_per_s__gt=0),
                name="quota_rate_positive",
            ),
        ]

    def __str__(self) -> str:
        return "/".join(str(part) for part in (self.tenant, self.queue or "*", self.band) if part is not None)


class LimitGrant(models.Model):
    """How much of a limit control has granted to a shard, and under which version: never less than the shard has."""

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    queue = models.CharField(max_length=64, blank=True, help_text="Empty: over all queues.")
    band = models.SmallIntegerField(default=-1, help_text="-1: over all bands.")
    resource = models.CharField(
        max_length=10, choices=[("running", "running"), ("depth", "depth"), ("rate", "rate")]
    )
    shard = models.SmallIntegerField()
    granted = models.IntegerField(default=0)
    version = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "queue", "band", "resource", "shard"], name="limitgrant_once_per_shard"
            ),
            models.CheckConstraint(condition=models.Q(granted__gte=0), name="limitgrant_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.granted} {self.resource} of {self.tenant} on shard {self.shard}"


class QuotaVersion(models.Model):
    """All limits of one scope as a change left them. Numbers count a tenant's changes; versions are never edited."""

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    number = models.PositiveIntegerField()
    queue = models.CharField(max_length=64, blank=True)
    band = models.SmallIntegerField(null=True)
    limits = models.JSONField()
    actor = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    reverts_to = models.PositiveIntegerField(
        null=True, help_text="The number of the version that it repeats."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "number"], name="quotaversion_once")]

    def __str__(self) -> str:
        return f"version {self.number} of {self.tenant}'s quotas"


class TenantState(models.Model):
    """What a shard must know of a tenant at claim; pushed by the verb that changes it."""

    placement = SHARD

    tenant_id = models.BigIntegerField(primary_key=True)
    version = models.BigIntegerField()
    slug = models.CharField(max_length=63, default="", db_default="", help_text="Empty: not told yet.")
    weight = models.IntegerField(default=1)
    is_paused = models.BooleanField(default=False)
    limits_running = models.BooleanField(default=False, help_text="Has limits on running jobs.")
    limits_intake = models.BooleanField(
        default=False, help_text="Its limits on intake must be asked at enqueue."
    )

    class Meta:
        indexes = [
            models.Index(
                fields=["tenant_id"], condition=models.Q(limits_running=True), name="tenantstate_limited_idx"
            )
        ]

    def __str__(self) -> str:
        return f"tenant {self.tenant_id}"


class TenantLimit(models.Model):
    """A quota as a shard's statements need it; pushed with TenantState."""

    placement = SHARD

    tenant_id = models.BigIntegerField()
    queue = models.CharField(max_length=64, help_text="Empty: over all queues.")
    band = models.SmallIntegerField(null=True, help_text="Null: over all bands.")
    max_running = models.IntegerField(null=True)
    weight = models.IntegerField(null=True)
    max_depth = models.IntegerField(null=True)
    enqueue_rate_per_s = models.FloatField(null=True)
    enqueue_burst = models.IntegerField(null=True)
    max_payload_bytes = models.IntegerField(null=True)
    is_shared = models.BooleanField(
        default=False, db_default=False, help_text="Over several shards: here its share counts."
    )

    class Meta:
        indexes = [models.Index(fields=["tenant_id"], name="tenantlimit_claim_idx")]

    def __str__(self) -> str:
        return f"limit of tenant {self.tenant_id}"


class LimitShare(models.Model):
    """This shard's share of a limit that holds over several shards. Without a row it has none."""

    placement = SHARD

    tenant_id = models.BigIntegerField()
    queue = models.CharField(max_length=64)
    band = models.SmallIntegerField(help_text="-1: over all bands.")
    resource = models.CharField(max_length=10)
    share = models.IntegerField()
    version = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "queue", "band", "resource"], name="limitshare_once_per_scope"
            )
        ]

    def __str__(self) -> str:
        return f"{self.share} {self.resource} of tenant {self.tenant_id}"


class Allowance(models.Model):
    """What a shard has left of one limit on intake; the row's lock makes admissions under that limit one by one."""

    placement = SHARD

    tenant_id = models.BigIntegerField(help_text="0: the limit of a queue, over all tenants.")
    queue = models.CharField(max_length=64, help_text="Empty: over all queues.")
    band = models.SmallIntegerField(help_text="-1: over all bands.")
    tokens = models.FloatField(null=True, help_text="Of the enqueue rate, at `filled_at`; null: never used.")
    filled_at = models.DateTimeField(null=True)
    room = models.BigIntegerField(
        null=True, help_text="Left below the depth when last counted, less what was reserved since."
    )
    counted_at = models.DateTimeField(null=True)
    counted_for = models.BigIntegerField(null=True, help_text="The depth that the room was counted for.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "queue", "band"], name="allowance_once_per_scope")
        ]

    def __str__(self) -> str:
        return f"allowance of tenant {self.tenant_id} in {self.queue or '*'}"


class Reservation(models.Model):
    """Places below a depth that an enqueue holds until its insert deletes this row, or upkeep does."""

    placement = SHARD

    tenant_id = models.BigIntegerField()
    queue = models.CharField(max_length=64)
    band = models.SmallIntegerField()
    jobs = models.IntegerField()
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(jobs__gte=1), name="reservation_of_something")
        ]

    def __str__(self) -> str:
        return f"{self.jobs} places of tenant {self.tenant_id}"


class RefusalDelta(models.Model):
    """Jobs that one admission turned away. Insert-only; folded into `RefusalMinute` by upkeep."""

    placement = SHARD

    tenant_id = models.BigIntegerField(help_text="Whose jobs they were.")
    queue = models.CharField(max_length=64, help_text="Of the limit; empty: over all queues.")
    band = models.SmallIntegerField(help_text="Of the limit; -1: over all bands.")
    cause = models.CharField(max_length=20, help_text="The limit's name; queue_full: the queue's own depth.")
    jobs = models.IntegerField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.jobs} jobs of tenant {self.tenant_id}"


class RefusalMinute(models.Model):
    """Refusals by minute."""

    placement = SHARD

    pk = models.CompositePrimaryKey("tenant_id", "queue", "band", "cause", "minute")
    tenant_id = models.BigIntegerField()
    queue = models.CharField(max_length=64)
    band = models.SmallIntegerField()
    cause = models.CharField(max_length=20)
    minute = models.DateTimeField()
    jobs = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["minute"], name="refusalminute_purge_idx")]

    def __str__(self) -> str:
        return f"{self.jobs} jobs of tenant {self.tenant_id} at {self.minute:%H:%M}"


class UsageHour(models.Model):
    """The most of a limit that was seen in use within an hour, by samples of one a minute."""

    placement = SHARD

    pk = models.CompositePrimaryKey("tenant_id", "queue", "band", "hour")
    tenant_id = models.BigIntegerField()
    queue = models.CharField(max_length=64, help_text="Empty: over all queues.")
    band = models.SmallIntegerField(help_text="-1: over all bands.")
    hour = models.DateTimeField()
    running = models.IntegerField()
    waiting = models.IntegerField()
    sampled_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["hour"], name="usagehour_purge_idx")]

    def __str__(self) -> str:
        return f"use by tenant {self.tenant_id} at {self.hour:%H:00}"


class AuditEntry(models.Model):
    """Who did what in this database. Append-only by trigger; each row seals the one before it of its tenant."""

    placement = BOTH

    tenant_id = models.BigIntegerField(null=True)
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=64)
    target = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    details = models.JSONField(default=dict)
    before_hash = models.BinaryField(max_length=32, null=True)
    after_hash = models.BinaryField(max_length=32, null=True)
    request_id = models.CharField(max_length=100, blank=True)
    at = models.DateTimeField()
    previous_hash = models.BinaryField(max_length=32)
    entry_hash = models.BinaryField(max_length=32)

    class Meta:
        verbose_name_plural = "audit entries"
        permissions = [("export_auditentry", "Can export the audit")]
        indexes = [
            models.Index(fields=["tenant_id", "-id"], name="audit_tenant_chain_idx"),
            models.Index(fields=["target", "-id"], name="audit_target_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.target}"
