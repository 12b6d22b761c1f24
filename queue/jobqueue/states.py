"""The words that SQL, the wire and the admin share for states, outcomes and reasons."""

from typing import Final

from django.db import models


class State(models.TextChoices):
    """What a client sees; a state is the place where the job's ticket is."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class WaitReason(models.TextChoices):
    """Why a job is scheduled and not ready."""

    DELAYED = "delayed"
    RETRY = "retry"
    RELEASED = "released"
    REPAIRED = "repaired"
    REDRIVEN = "redriven"


class AttemptOutcome(models.TextChoices):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RELEASED = "released"
    LEASE_LOST = "lease_lost"
    CANCELLED = "cancelled"


class ResultOutcome(models.TextChoices):
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ErrorClass(models.TextChoices):
    """The worker's word for a failure."""

    TRANSIENT = "transient"
    OVERLOAD = "overload"
    PERMANENT = "permanent"
    UNCERTAIN = "uncertain"


# What an attempt's error class may be: a worker's word, or ours for one whose lease was lost.
ERROR_CLASSES: Final = (*ErrorClass.values, "worker_crash")


class DeadReason(models.TextChoices):
    INVALID = "invalid"
    EXHAUSTED = "exhausted"
    POISON = "poison"
    UNCERTAIN = "uncertain"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    RELEASED_TOO_OFTEN = "released_too_often"


class MissedPolicy(models.TextChoices):
    """What becomes of a schedule's fires that nobody could make in time."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class OverlapPolicy(models.TextChoices):
    """Whether a schedule fires while a job of its earlier fires waits or runs."""

    ALLOW = "allow"
    SKIP = "skip"


class FireOutcome(models.TextChoices):
    """What came of a fire: a job, or nothing because an earlier one was not done."""

    FIRED = "fired"
    OVERLAP = "overlap"
