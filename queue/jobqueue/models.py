"""The tables of the queue. A job is where its ticket's row is; moves between them are statements in `sql/`.

`Queue` and the id spaces live in the control database; everything else on each shard. Shard tables hold control
ids as plain integers and have no foreign keys, so that a hot path never locks a parent row.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from jobqueue.policy.breaker import BreakerState
from jobqueue.policy.types import Chosen
from jobqueue.states import AttemptOutcome, ResultOutcome, WaitReason
from jobsplatform.database import SHARD

COST_MODELS = [("unit", "unit"), ("service_time", "service time")]
CHOSEN = [(word.value, word.value) for word in Chosen]  # why a start was chosen
BREAKER = [(word.value, word.value.replace("_", " ")) for word in BreakerState]
NAME = RegexValidator(
    r"^[a-z0-9][a-z0-9._-]{0,63}\Z", "Lower-case letters, digits, dot, hyphen, underscore; up to 64."
)


def between(low: float, high: float) -> list[MinValueValidator | MaxValueValidator]:
    return [MinValueValidator(low), MaxValueValidator(high)]


class Queue(models.Model):
    """A named policy that all tenants share: bands, leases, retries, limits. Defaults and bounds are the contract's."""

    name = models.CharField(max_length=64, unique=True, validators=[NAME])
    preset = models.CharField(max_length=20, default="five")
    bands = models.JSONField(help_text="Most urgent first: name, weight, strict, bulk.")
    default_priority = models.SmallIntegerField(default=2)
    lease_s = models.IntegerField(default=30, validators=between(1, 43_200))
    max_run_s = models.IntegerField(default=43_200, validators=between(1, 604_800))
    max_attempts = models.SmallIntegerField(default=5, validators=between(1, 100))
    max_crashes = models.SmallIntegerField(default=3, validators=between(1, 100))
    max_releases = models.IntegerField(null=True, blank=True, validators=between(1, 1_000_000))
    backoff_base_s = models.FloatField(default=2, validators=between(0.1, 86_400))
    backoff_cap_s = models.FloatField(default=3_600, validators=between(0.1, 86_400))
    max_redrives = models.SmallIntegerField(default=10, validators=between(1, 1_000))
    retry_budget_share = models.FloatField(default=0.2, validators=between(0, 10))
    retry_budget_window_s = models.IntegerField(default=60, validators=between(1, 3_600))
    retry_budget_burst = models.IntegerField(default=100, validators=between(0, 1_000_000))
    cost_model = models.CharField(max_length=12, default="unit", choices=COST_MODELS)
    ageing_s = models.IntegerField(null=True, blank=True, validators=between(1, 604_800))
    reserved_share = models.FloatField(default=0.05, validators=between(0, 0.5))
    depth_limit = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    refuse_infeasible = models.BooleanField(
        default=False, help_text="Refuse a job whose deadline the present drain cannot meet."
    )
    dedup_window_s = models.IntegerField(default=600, validators=between(60, 2_592_000))
    key_window_s = models.IntegerField(default=1_209_600, validators=between(60, 2_592_000))
    retention_s = models.IntegerField(default=2_592_000, validators=[MinValueValidator(3_600)])
    age_objective_s = models.JSONField(null=True, blank=True, help_text="Band name to seconds.")
    is_dispatch_paused = models.BooleanField(default=False)
    is_intake_paused = models.BooleanField(default=False)
    policy_number = models.PositiveIntegerField(
        default=0, editable=False, help_text="The PolicyVersion that is in force."
    )
    trial_number = models.PositiveIntegerField(
        null=True, editable=False, help_text="The PolicyVersion that a share of claims uses."
    )
    trial_share = models.FloatField(default=0, editable=False)
    version = models.BigIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        permissions = [("pause_queue", "Can pause and resume queues")]

    def __str__(self) -> str:
        return self.name


class QueuePause(models.Model):
    """Who paused a queue's starts or its intake, why, and until when. There while the pause lasts."""

    class What(models.TextChoices):
        DISPATCH = "dispatch", "starts"
        INTAKE = "intake", "intake"

    queue = models.ForeignKey(Queue, models.CASCADE, related_name="pauses")
    what = models.CharField(max_length=8, choices=What)
    actor = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    at = models.DateTimeField(db_default=Now())
    until = models.DateTimeField(null=True, help_text="It ends by itself then; null: when somebody ends it.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "what"], name="queuepause_once")]
        indexes = [
            models.Index(fields=["until"], condition=Q(until__isnull=False), name="queuepause_end_idx")
        ]

    def __str__(self) -> str:
        return f"{self.what} of queue {self.queue_id} paused"


class Process(models.Model):
    """A process of the platform, as it says of itself every few seconds (control database)."""

    class Kind(models.TextChoices):
        WEB = "web"
        WORKER = "worker"
        DISPATCHER = "dispatcher"
        REAPER = "reaper"

    key = models.CharField(max_length=32, unique=True, help_text="Made anew at each start.")
    kind = models.CharField(max_length=10, choices=Kind)
    name = models.CharField(max_length=200)
    version = models.CharField(max_length=64)
    queues = ArrayField(models.CharField(max_length=64), null=True, help_text="Null: all.")
    slots = models.IntegerField(null=True, help_text="How many jobs or requests it takes at a time.")
    held = models.IntegerField(null=True, help_text="How many jobs it holds.")
    started_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, help_text="It said good-bye.")
    drain_asked_at = models.DateTimeField(null=True)
    drain_asked_by = models.CharField(max_length=200, blank=True, db_default="")

    class Meta:
        verbose_name_plural = "processes"
        permissions = [("drain_process", "Can let workers end when they are done")]
        # None on what a beat writes: so it is updated in place.
        indexes = [models.Index(fields=["kind", "name"], name="process_drain_idx")]

    def __str__(self) -> str:
        return self.name


class PolicyVersion(models.Model):
    """How a queue shared its starts, who wanted it so, and since when. Leases and attempts name its number."""

    queue = models.ForeignKey(Queue, models.CASCADE, related_name="policy_versions")
    number = models.PositiveIntegerField()
    bands = models.JSONField()
    reserved_share = models.FloatField()
    ageing_s = models.IntegerField(null=True)
    cost_model = models.CharField(max_length=12, choices=COST_MODELS)
    actor = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    in_force_from = models.DateTimeField(null=True, help_text="Null: it was only tried by a share of claims.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "number"], name="policyversion_once")]

    def __str__(self) -> str:
        return f"policy {self.number} of {self.queue_id}"


class DependencySettings(models.Model):
    """What a dependency bears, and when its breaker opens. Rates a second, times in seconds."""

    max_running = models.IntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    rate_per_s = models.FloatField(null=True, blank=True, validators=between(0.001, 1_000_000))
    rate_burst = models.IntegerField(null=True, blank=True, validators=between(1, 1_000_000))
    breaker_share = models.FloatField(
        default=0.5, db_default=0.5, null=True, blank=True, validators=between(0.01, 1)
    )
    breaker_calls = models.IntegerField(default=20, db_default=20, validators=between(1, 1_000_000))
    breaker_window_s = models.IntegerField(default=60, db_default=60, validators=between(1, 3_600))
    probe_after_s = models.IntegerField(default=30, db_default=30, validators=between(1, 3_600))
    ramp_per_s = models.IntegerField(
        default=50, db_default=50, null=True, blank=True, validators=between(1, 1_000_000)
    )
    ramp_s = models.IntegerField(default=60, db_default=60, validators=between(1, 3_600))
    is_held_open = models.BooleanField(default=False, db_default=False, editable=False)

    class Meta:
        abstract = True


class Dependency(DependencySettings):
    """Something outside that jobs name, which may be slow or down (control database)."""

    name = models.CharField(max_length=64, unique=True, validators=[NAME])
    probe_shard = models.SmallIntegerField(
        null=True, editable=False, help_text="The one shard that may probe while the breaker is half open."
    )
    held_until = models.DateTimeField(
        null=True, editable=False, help_text="When an operator's hold ends; null: by hand."
    )
    version = models.BigIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name_plural = "dependencies"

    def __str__(self) -> str:
        return self.name


class JobKind(models.Model):
    """What is known of a kind of job: as its handler's code declares it, and what an operator sets in its stead."""

    name = models.CharField(max_length=64, unique=True, validators=[NAME])
    declared = models.JSONField(default=dict, editable=False, help_text="What the handler's code says.")
    declared_by = models.CharField(max_length=200, editable=False, help_text="The handler.")
    payload_schema = models.JSONField(
        null=True, blank=True, help_text="JSON Schema (2020-12) that every payload must satisfy."
    )
    external_effects = models.BooleanField(
        null=True,
        blank=True,
        help_text="Attempts act outside: a lost one is resolved before the next may act.",
    )
    max_attempts = models.SmallIntegerField(null=True, blank=True, validators=between(1, 100))
    backoff_base_s = models.FloatField(null=True, blank=True, validators=between(0.1, 86_400))
    backoff_cap_s = models.FloatField(null=True, blank=True, validators=between(0.1, 86_400))
    queue = models.CharField(max_length=64, null=True, blank=True, validators=[NAME])
    dependency = models.CharField(max_length=64, null=True, blank=True, validators=[NAME])
    cost_hint_s = models.FloatField(
        null=True,
        blank=True,
        validators=between(0.001, 604_800),
        help_text="What a start is charged until it is measured, where service time counts.",
    )
    version = models.BigIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name = "kind"

    def __str__(self) -> str:
        return self.name


class IdSpace(models.Model):
    """A range of job ids that a shard owns for ever; a restored shard gets a new one (control database)."""

    space = models.IntegerField(primary_key=True)
    shard = models.SmallIntegerField()
    reason = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(space__gte=0, space__lt=32_768), name="idspace_in_range")
        ]

    def __str__(self) -> str:
        return f"space {self.space} of shard {self.shard}"


# On each shard


class PolicyRow(models.Model):
    """What the claim and the failure statements must know of a queue; pushed by the verb that changes it."""

    placement = SHARD

    queue_id = models.BigIntegerField(primary_key=True)
    version = models.BigIntegerField()
    name = models.CharField(max_length=64)
    bands = models.JSONField()
    lease_s = models.IntegerField()
    max_run_s = models.IntegerField()
    max_attempts = models.SmallIntegerField()
    max_crashes = models.SmallIntegerField()
    max_releases = models.IntegerField(null=True)
    backoff_base_s = models.FloatField()
    backoff_cap_s = models.FloatField()
    max_redrives = models.SmallIntegerField()
    key_window_s = models.IntegerField()
    dedup_window_s = models.IntegerField()
    retention_s = models.IntegerField()
    depth_limit = models.BigIntegerField(null=True)
    refuse_infeasible = models.BooleanField()
    is_dispatch_paused = models.BooleanField()
    is_intake_paused = models.BooleanField()
    retry_budget_share = models.FloatField(db_default=0.2)
    retry_budget_window_s = models.IntegerField(db_default=60)
    retry_budget_burst = models.IntegerField(db_default=100)

    class Meta:
        indexes = [models.Index(fields=["name"], name="policy_name_idx")]

    def __str__(self) -> str:
        return self.name


class KindRow(models.Model):
    """What statements must know of a registered kind; pushed by the verb that changes it."""

    placement = SHARD

    kind = models.CharField(max_length=64, primary_key=True)
    version = models.BigIntegerField()
    payload_schema = models.TextField(null=True)
    external_effects = models.BooleanField()
    max_attempts = models.SmallIntegerField(null=True)
    backoff_base_s = models.FloatField(null=True)
    backoff_cap_s = models.FloatField(null=True)
    dependency = models.CharField(max_length=64, null=True)
    cost_hint_s = models.FloatField(null=True)

    def __str__(self) -> str:
        return self.kind


class Job(models.Model):
    """The durable intent. Inserted once, never updated; deleted by retention alone."""

    placement = SHARD

    id = models.BigIntegerField(primary_key=True)
    tenant_id = models.BigIntegerField()
    queue_id = models.BigIntegerField()
    priority = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField()
    created_at = models.DateTimeField()
    not_before = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    kind = models.CharField(max_length=64)
    payload = models.TextField(null=True)
    payload_ref = models.TextField(null=True)
    request_key = models.TextField(null=True)
    dependency = models.CharField(max_length=64, null=True)
    traceparent = models.TextField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(payload__isnull=False, payload_ref__isnull=True)
                | Q(payload__isnull=True, payload_ref__isnull=False),
                name="job_payload_or_ref",
            ),
            models.CheckConstraint(
                condition=Q(priority__gte=0, priority__lte=99), name="job_priority_in_range"
            ),
            models.CheckConstraint(
                condition=Q(max_attempts__gte=1, max_attempts__lte=100), name="job_max_attempts_in_range"
            ),
        ]
        indexes = [models.Index(fields=["tenant_id", "id"], name="job_tenant_ids_list_idx")]
        permissions = [
            ("retry_job", "Can let a waiting job start at once"),
            ("export_job", "Can export lists of jobs"),
            ("view_payload", "Can reveal payloads"),
        ]

    def __str__(self) -> str:
        from jobqueue.ids import format_id

        return format_id(self.pk)


class RequestKey(models.Model):
    """The identity of a request: one job per tenant, queue, namespace and key."""

    placement = SHARD

    tenant_id = models.BigIntegerField()
    queue_id = models.BigIntegerField()
    namespace = models.SmallIntegerField(default=0)
    key = models.TextField()
    job_id = models.BigIntegerField()
    fingerprint = models.BinaryField(max_length=32)
    accepted_at = models.DateTimeField()
    job_purged_at = models.DateTimeField(null=True)
    is_moved = models.BooleanField(
        default=False, db_default=False, help_text="It came with its slot: the job is on another shard."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "queue_id", "namespace", "key"], name="requestkey_once_per_queue"
            )
        ]
        indexes = [
            models.Index(
                fields=["job_purged_at"],
                condition=Q(job_purged_at__isnull=False),
                name="requestkey_purge_idx",
            ),
            models.Index(
                fields=["id"],
                condition=Q(is_moved=True, job_purged_at__isnull=True),
                name="requestkey_moved_idx",
            ),
        ]

    def __str__(self) -> str:
        return self.key


class Lane(models.Model):
    """One (queue, priority, tenant, kind, dependency). `low` bounds its scan from below."""

    placement = SHARD

    queue_id = models.BigIntegerField()
    priority = models.SmallIntegerField()
    tenant_id = models.BigIntegerField()
    kind = models.CharField(max_length=64)
    dependency = models.CharField(max_length=64, default="", blank=True)
    is_active = models.BooleanField(default=True)
    low = models.DateTimeField(help_text="No fresh ready row of this lane has an older position.")
    mean_ms = models.FloatField(null=True, help_text="Running mean of its attempts' service time.")
    used_at = models.DateTimeField(db_default=Now())
    gated_until = models.DateTimeField(null=True, help_text="Poisons hold it back until then.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["queue_id", "priority", "tenant_id", "kind", "dependency"], name="lane_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["queue_id", "priority", "tenant_id", "id"],
                condition=Q(is_active=True),
                name="lane_walk_claim_idx",
            ),
            models.Index(fields=["tenant_id", "queue_id", "priority"], name="lane_tenant_count_idx"),
            models.Index(
                fields=["dependency", "queue_id"],
                condition=~Q(dependency=""),
                name="lane_dependency_count_idx",
            ),
        ]

    def __str__(self) -> str:
        return f"lane {self.pk}"


class Ticket(models.Model):
    """The columns that travel with a job from place to place."""

    placement = SHARD

    job_id = models.BigIntegerField(primary_key=True)
    lane_id = models.BigIntegerField()
    first_ready_at = models.DateTimeField(null=True, help_text="When the job first became ready.")
    deadline = models.DateTimeField(null=True)
    generation = models.IntegerField(default=0)
    releases = models.IntegerField(default=0)
    attempt = models.SmallIntegerField(default=0)
    max_attempts = models.SmallIntegerField()
    crashes = models.SmallIntegerField(default=0)
    lapses = models.SmallIntegerField(
        default=0, help_text="Leases that lapsed before anyone started the job."
    )
    payload_version = models.SmallIntegerField(default=0)
    redrive_generation = models.SmallIntegerField(default=0)
    reconcile = models.BooleanField(default=False)
    checkpoint = models.TextField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        from jobqueue.ids import format_id

        return format_id(self.job_id)


class ScheduledJob(Ticket):
    """Not due yet: delayed, or waiting to be tried again. `position` is kept where a place in the lane is kept."""

    due_at = models.DateTimeField()
    position = models.DateTimeField(null=True)
    reason = models.CharField(max_length=12, choices=WaitReason)
    budget_queue_id = models.BigIntegerField(
        null=True, help_text="The queue whose retry budget it needs; null: none."
    )

    class Meta:
        indexes = [
            models.Index(
                fields=["due_at"],
                condition=Q(budget_queue_id__isnull=True),
                name="scheduled_free_promote_idx",
            ),
            models.Index(
                fields=["budget_queue_id", "due_at"],
                condition=Q(budget_queue_id__isnull=False),
                name="scheduled_retry_promote_idx",
            ),
            models.Index(fields=["lane_id"], name="scheduled_waiting_count_idx"),
            models.Index(
                fields=["deadline"], condition=Q(deadline__isnull=False), name="scheduled_expire_idx"
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(reason__in=WaitReason.values), name="scheduled_reason_known")
        ]


class ReadyJob(Ticket):
    """Runnable. Lapsed and released work is not fresh and stands before all that is."""

    position = models.DateTimeField()
    fresh = models.BooleanField(default=True)

    class Meta:
        indexes = [
            models.Index(fields=["lane_id", "fresh", "position", "job_id"], name="ready_lane_claim_idx"),
            models.Index(fields=["deadline"], condition=Q(deadline__isnull=False), name="ready_expire_idx"),
        ]


class Lease(Ticket):
    """Running: the right to run until `expires_at`. The primary key allows one lease a job."""

    position = models.DateTimeField()
    token = models.BinaryField(max_length=16)
    token_id = models.BigIntegerField(
        null=True, help_text="The API token that claimed it; null: a local worker."
    )
    worker = models.CharField(max_length=100)
    claim_key = models.CharField(max_length=100, null=True)
    claim_hash = models.BinaryField(max_length=16, null=True)
    lease_s = models.IntegerField()
    is_started = models.BooleanField()
    cancel_requested = models.BooleanField(default=False)
    claimed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    max_run_at = models.DateTimeField()
    policy_version = models.BigIntegerField(help_text="The version of the queue's policy that chose it.")
    chosen = models.CharField(max_length=6, choices=CHOSEN)
    charged_ms = models.FloatField(null=True, help_text="What its tenant was charged at the start.")

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="lease_expiry_reap_idx"),
            models.Index(fields=["lane_id"], name="lease_running_count_idx"),
            models.Index(
                fields=["claim_key", "token_id"],
                condition=Q(claim_key__isnull=False),
                name="lease_claim_key_idx",
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(expires_at__lte=F("max_run_at")), name="lease_within_max_run"),
            models.CheckConstraint(condition=Q(generation__gte=1), name="lease_generation_positive"),
            models.CheckConstraint(
                condition=Q(attempt__lte=F("max_attempts")), name="lease_attempt_within_max"
            ),
        ]


class Attempt(models.Model):
    """How one generation ended; append-only. `call_hash` recognises the call that ended it."""

    placement = SHARD

    pk = models.CompositePrimaryKey("job_id", "generation")
    job_id = models.BigIntegerField()
    generation = models.IntegerField()
    attempt = models.SmallIntegerField()
    redrive_generation = models.SmallIntegerField()
    token_hash = models.BinaryField(max_length=16)
    call_hash = models.BinaryField(max_length=16, null=True)
    worker = models.CharField(max_length=100)
    claimed_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    next_at = models.DateTimeField(null=True)
    service_ms = models.BigIntegerField()
    policy_version = models.BigIntegerField()
    chosen = models.CharField(max_length=6, choices=CHOSEN)
    outcome = models.CharField(max_length=10, choices=AttemptOutcome)
    led_to = models.CharField(max_length=10)
    reason = models.CharField(max_length=20, null=True)
    error_class = models.CharField(max_length=20, null=True)
    message = models.TextField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(outcome__in=AttemptOutcome.values), name="attempt_outcome_known"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__gte=F("claimed_at")), name="attempt_ends_after_claim"
            ),
        ]

    def __str__(self) -> str:
        return f"generation {self.generation} of {self.job_id}"


class LateCall(models.Model):
    """An attempt's own worker called to end it when it no longer could: refused, and so it is told; append-only.

    Calls with the wrong token are not recorded: so there are at most as many as attempts and verbs.
    """

    placement = SHARD

    pk = models.CompositePrimaryKey("job_id", "generation", "verb")
    job_id = models.BigIntegerField()
    generation = models.IntegerField()
    verb = models.CharField(max_length=10, help_text="What was asked: complete, fail or release.")
    code = models.CharField(max_length=32, help_text="The refusal's.")
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"late {self.verb} of generation {self.generation} of {self.job_id}"


class Result(models.Model):
    """How the job ended, once and for all: succeeded, cancelled or expired."""

    placement = SHARD

    job_id = models.BigIntegerField(primary_key=True)
    generation = models.IntegerField()
    attempt = models.SmallIntegerField()
    crashes = models.SmallIntegerField()
    redrive_generation = models.SmallIntegerField()
    late = models.BooleanField(default=False)
    finished_at = models.DateTimeField()
    outcome = models.CharField(max_length=10, choices=ResultOutcome)
    payload_hash = models.BinaryField(max_length=32, null=True)
    body = models.TextField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["finished_at"], name="result_purge_idx"),
            models.Index(  # few jobs end so: a search for them need not wade through all that succeeded
                fields=["outcome", "-job_id"],
                condition=~Q(outcome=ResultOutcome.SUCCEEDED),
                name="result_rare_search_idx",
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=ResultOutcome.values), name="result_outcome_known")
        ]

    def __str__(self) -> str:
        return f"{self.outcome} {self.job_id}"


class SchedulerState(models.Model):
    """The newest row of a queue's class and part is its scheduler's state: append-only, trimmed by upkeep."""

    placement = SHARD

    queue_id = models.BigIntegerField()
    claim_class = models.BinaryField(max_length=16)
    part = models.CharField(max_length=8)
    policy_version = models.BigIntegerField()
    state = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["queue_id", "claim_class", "part", "-id"], name="schedulerstate_newest_idx")
        ]

    def __str__(self) -> str:
        return f"state {self.pk} of queue {self.queue_id}"


class ClaimClass(models.Model):
    """What claims of one class ask for, and when they last asked: how the platform knows of capable workers."""

    placement = SHARD

    pk = models.CompositePrimaryKey("queue_id", "claim_class")
    queue_id = models.BigIntegerField()
    claim_class = models.BinaryField(max_length=16)
    tenant_id = models.BigIntegerField(null=True, help_text="Claims of one tenant alone.")
    kinds = ArrayField(models.CharField(max_length=64), null=True, help_text="Null: any kind.")
    max_priority = models.SmallIntegerField(null=True)
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"claims of queue {self.queue_id}"


class DependencyState(DependencySettings):
    """A dependency on this shard: its settings as they were pushed, and where breaker, limit and ramp stand.

    Made with defaults at the first use of a name. Judging locks the row; a claim locks it where something is limited.
    """

    placement = SHARD

    name = models.CharField(max_length=64, unique=True)
    version = models.BigIntegerField(db_default=0)
    breaker = models.CharField(max_length=9, choices=BREAKER, db_default="closed")
    counted_from = models.DateTimeField(null=True, help_text="Calls before do not count for the breaker.")
    probe_at = models.DateTimeField(null=True, help_text="Open until then.")
    probe_job_id = models.BigIntegerField(null=True)
    probe_generation = models.IntegerField(null=True)
    ramp_from = models.DateTimeField(null=True, help_text="When it recovered; null: not ramping.")
    limit_now = models.FloatField(null=True, help_text="Between 1 and max_running.")
    halved_at = models.DateTimeField(null=True)
    running_share = models.IntegerField(null=True, help_text="Of max_running; null: all of it.")
    running_version = models.BigIntegerField(db_default=0)
    rate_share = models.IntegerField(null=True, help_text="Of the rate's burst; null: all of it.")
    rate_version = models.BigIntegerField(db_default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(breaker__in=[word for word, _ in BREAKER]), name="dependency_breaker_known"
            ),
            models.CheckConstraint(
                condition=~Q(breaker="open") | Q(probe_at__isnull=False), name="dependency_open_until"
            ),
            models.CheckConstraint(
                condition=Q(probe_job_id__isnull=True) | Q(breaker="half_open"),
                name="dependency_probe_half_open",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class DependencyDelta(models.Model):
    """What one statement did with calls of a dependency. Insert-only; consumed by whoever judges."""

    placement = SHARD

    dependency = models.CharField(max_length=64)
    at = models.DateTimeField()
    started = models.IntegerField(db_default=0)
    succeeded = models.IntegerField(db_default=0)
    failed = models.IntegerField(db_default=0)
    overloaded = models.IntegerField(db_default=0)
    overloaded_from = models.DateTimeField(
        null=True, help_text="When the latest of the overloaded calls began."
    )

    class Meta:
        indexes = [models.Index(fields=["dependency", "at"], name="dependencydelta_judge_idx")]

    def __str__(self) -> str:
        return self.dependency


class DependencyTally(models.Model):
    """Calls of a dependency by tenths of a second."""

    placement = SHARD

    pk = models.CompositePrimaryKey("dependency", "bucket")
    dependency = models.CharField(max_length=64)
    bucket = models.DateTimeField(help_text="Where its tenth of a second begins.")
    started = models.IntegerField()
    succeeded = models.IntegerField()
    failed = models.IntegerField()

    class Meta:
        indexes = [models.Index(fields=["bucket"], name="dependencytally_purge_idx")]

    def __str__(self) -> str:
        return f"{self.dependency} at {self.bucket:%H:%M:%S.%f}"


class QueueSecond(models.Model):
    """First attempts and retries of a queue by second, for its retry budget."""

    placement = SHARD

    pk = models.CompositePrimaryKey("queue_id", "second")
    queue_id = models.BigIntegerField()
    second = models.DateTimeField()
    firsts = models.BigIntegerField()
    retries = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["second"], name="queuesecond_purge_idx")]

    def __str__(self) -> str:
        return f"queue {self.queue_id} at {self.second:%H:%M:%S}"


class PoisonMark(models.Model):
    """A job of this tenant and kind was quarantined as poison."""

    placement = SHARD

    tenant_id = models.BigIntegerField()
    kind = models.CharField(max_length=64)
    job_id = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "kind", "at"], name="poisonmark_gate_idx")]

    def __str__(self) -> str:
        return f"poison {self.kind} of tenant {self.tenant_id}"


class ServiceDelta(models.Model):
    """What a tenant was charged at a start, or settled at an end, in a queue that counts service time. Insert-only."""

    placement = SHARD

    queue_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    moved_s = models.FloatField()

    class Meta:
        indexes = [models.Index(fields=["queue_id", "tenant_id"], name="servicedelta_claim_idx")]

    def __str__(self) -> str:
        return f"{self.moved_s:+} s of tenant {self.tenant_id}"


class TenantService(models.Model):
    """The folded service of a tenant in a queue, in seconds divided by its weight."""

    placement = SHARD

    pk = models.CompositePrimaryKey("queue_id", "tenant_id")
    queue_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    served_s = models.FloatField()

    def __str__(self) -> str:
        return f"{self.served_s} s of tenant {self.tenant_id}"


class LaneDelta(models.Model):
    """The ledger: what one statement did in one lane. Insert-only; folded into `LaneMinute` by upkeep."""

    placement = SHARD

    lane_id = models.BigIntegerField()
    at = models.DateTimeField()
    started = models.IntegerField(db_default=0)
    succeeded = models.IntegerField(db_default=0)
    failed = models.IntegerField(db_default=0)
    retried = models.IntegerField(db_default=0)
    lease_lost = models.IntegerField(db_default=0)
    dead = models.IntegerField(db_default=0)
    service_ms = models.BigIntegerField(db_default=0)
    firsts = models.IntegerField(db_default=0, help_text="Of the starts: first attempts.")
    promoted = models.IntegerField(db_default=0, help_text="Retries that were let through.")

    def __str__(self) -> str:
        return f"lane {self.lane_id}"


class LaneMinute(models.Model):
    """The ledger by minute."""

    placement = SHARD

    pk = models.CompositePrimaryKey("lane_id", "minute")
    lane_id = models.BigIntegerField()
    minute = models.DateTimeField()
    started = models.BigIntegerField(db_default=0)
    succeeded = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(db_default=0)
    retried = models.BigIntegerField(db_default=0)
    lease_lost = models.BigIntegerField(db_default=0)
    dead = models.BigIntegerField(db_default=0)
    service_ms = models.BigIntegerField(db_default=0)

    class Meta:
        indexes = [models.Index(fields=["minute"], name="laneminute_purge_idx")]

    def __str__(self) -> str:
        return f"lane {self.lane_id} at {self.minute:%H:%M}"


class DepthRound(models.Model):
    """A walk over all lanes that held ready jobs, which counted them; `lane_id`: as far as it has come."""

    placement = SHARD

    minute = models.DateTimeField(primary_key=True)
    lane_id = models.BigIntegerField()
    is_over = models.BooleanField()
    looked_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.minute:%H:%M}"


class DepthMinute(models.Model):
    """What was ready of a tenant in a band when a round counted it; no row: nothing was. Tenant 0: of all together."""

    placement = SHARD

    pk = models.CompositePrimaryKey("tenant_id", "minute", "queue_id", "priority")
    tenant_id = models.BigIntegerField()
    minute = models.DateTimeField()
    queue_id = models.BigIntegerField()
    priority = models.SmallIntegerField()
    is_capped = models.BooleanField(help_text="A lane held more than is counted.")
    age_s = models.FloatField(help_text="How long the oldest had been ready.")
    ready = models.BigIntegerField()

    class Meta:
        indexes = [
            models.Index(
                fields=["queue_id", "minute"], condition=Q(tenant_id=0), name="depthminute_queue_list_idx"
            ),
            models.Index(fields=["minute"], name="depthminute_purge_idx"),
        ]

    def __str__(self) -> str:
        return f"tenant {self.tenant_id} at {self.minute:%H:%M}"


class QueueTally(models.Model):
    """What has happened in a band of a queue since the beginning; never lowered, so that metrics may count by it."""

    placement = SHARD

    pk = models.CompositePrimaryKey("queue_id", "priority")
    queue_id = models.BigIntegerField()
    priority = models.SmallIntegerField()
    started = models.BigIntegerField(db_default=0)
    firsts = models.BigIntegerField(db_default=0, help_text="Of the starts: first attempts.")
    promoted = models.BigIntegerField(db_default=0, help_text="Retries that were let through.")
    succeeded = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(db_default=0)
    retried = models.BigIntegerField(db_default=0)
    lease_lost = models.BigIntegerField(db_default=0)
    dead = models.BigIntegerField(db_default=0)
    service_ms = models.BigIntegerField(db_default=0)

    def __str__(self) -> str:
        return f"band {self.priority} of queue {self.queue_id}"


class Horizon(models.Model):
    """Samples of (clock, next transaction id): how far every older transaction is known to have ended."""

    placement = SHARD

    at = models.DateTimeField(primary_key=True)
    next_xid = models.BigIntegerField()

    def __str__(self) -> str:
        return str(self.at)


# Schedules and the shard map have files of their own; Django finds an app's models through this one.
from jobqueue import schedule_models as schedule_models  # noqa: E402
from jobqueue import shard_models as shard_models  # noqa: E402
