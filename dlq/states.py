"""The words of campaigns that SQL, the wire and the admin share."""

from django.db import models


class CampaignState(models.TextChoices):
    """Stopped by its failure share; paused and aborted by people; done when every match was treated."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    ABORTED = "aborted"
    DONE = "done"


class RedriveOutcome(models.TextChoices):
    """What became of a redriven job: it succeeded, died again, or was cancelled or expired."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ENDED = "ended"


class SkipReason(models.TextChoices):
    """Why a campaign leaves a dead letter where it is; the contract's words for the same refusals of one redrive."""

    CORRECTION_REQUIRED = "correction_required"
    REDRIVE_LIMIT = "redrive_limit"
    DEADLINE_IN_PAST = "deadline_in_past"
    ALREADY_REDRIVEN = "already_redriven"  # somebody else was quicker
