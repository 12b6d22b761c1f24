"""The tables of the shard map: what control says of shards and slots, and on each shard which slots it owns."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from jobsplatform.database import SHARD


class Shard(models.Model):
    """A shard that takes part (control database). Its number is its place in JOBSPLATFORM_SHARDS."""

    class State(models.TextChoices):
        ACTIVE = "active"
        DRAINING = "draining"  # takes no new work; what it has is worked off and stays readable

    number = models.SmallIntegerField(primary_key=True)
    state = models.CharField(max_length=10, choices=State, default=State.ACTIVE)
    is_fenced = models.BooleanField(
        default=False,
        help_text="An operator says that it runs nothing: its shares are granted elsewhere.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=["active", "draining"]), name="shard_state_known")
        ]

    def __str__(self) -> str:
        return f"shard {self.number}"


class Ring(models.Model):
    """Which shard owns each of 4,096 slots: of all work, or of the queue or tenant that is pinned (control database).

    `owners` has a shard's number a slot, -1 while the slot moves; a slot's epoch grows with each change of owner.
    """

    queue = models.OneToOneField("queue.Queue", models.CASCADE, null=True, blank=True)
    tenant = models.OneToOneField("tenants.Tenant", models.CASCADE, null=True, blank=True)
    shards = ArrayField(models.SmallIntegerField(), help_text="Where its slots belong.")
    owners = ArrayField(models.SmallIntegerField())
    epochs = ArrayField(models.IntegerField())
    is_ready = models.BooleanField(
        default=True,
        help_text="False until every shard knows that the slots of all work no longer count for it.",
    )
    version = models.BigIntegerField(default=1, editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(queue__isnull=True) | Q(tenant__isnull=True), name="ring_of_one_thing"
            ),
            models.UniqueConstraint(
                fields=["queue", "tenant"], name="ring_once_per_thing", nulls_distinct=False
            ),
        ]

    def __str__(self) -> str:
        if self.queue_id is not None:
            return f"queue {self.queue}"
        return "all work" if self.tenant_id is None else f"tenant {self.tenant}"


class SlotMove(models.Model):
    """Slots on their way from one shard to another; gone when they have arrived (control database)."""

    ring = models.ForeignKey(Ring, models.CASCADE)
    slots = ArrayField(models.SmallIntegerField())
    source = models.SmallIntegerField()
    target = models.SmallIntegerField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"{len(self.slots)} slots of {self.ring} from shard {self.source} to {self.target}"


class DependencyGrant(models.Model):
    """How much of a dependency's limit control has granted to a shard, and under which version (control database)."""

    dependency = models.ForeignKey("queue.Dependency", models.CASCADE)
    resource = models.CharField(max_length=10, choices=[("running", "running"), ("rate", "rate")])
    shard = models.SmallIntegerField()
    granted = models.IntegerField(default=0)
    version = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["dependency", "resource", "shard"], name="dependencygrant_once_per_shard"
            ),
            models.CheckConstraint(condition=Q(granted__gte=0), name="dependencygrant_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.granted} {self.resource} of {self.dependency} on shard {self.shard}"


# On each shard


class SlotRing(models.Model):
    """How new this shard's knowledge of a ring is. Without any such row the shard takes work without slots."""

    placement = SHARD

    ring_id = models.BigIntegerField(primary_key=True)
    version = models.BigIntegerField()

    def __str__(self) -> str:
        return f"ring {self.ring_id}, version {self.version}"


class SlotOwner(models.Model):
    """A slot that this shard owns: each enqueue holds the row, so that two shards never accept one key."""

    placement = SHARD

    pk = models.CompositePrimaryKey("ring_id", "slot")
    ring_id = models.BigIntegerField()
    slot = models.SmallIntegerField()
    epoch = models.IntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(slot__gte=0, slot__lt=4_096), name="slotowner_slot_in_range")
        ]

    def __str__(self) -> str:
        return f"slot {self.slot} of ring {self.ring_id}"
