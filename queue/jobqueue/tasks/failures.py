"""Why a task failed without raising: what `TaskResult.errors` names for jobs that ended by the platform's hand.

No Django import: the classes are found by their path wherever a result is read.
"""

from __future__ import annotations


class TaskCancelled(Exception):
    """Someone cancelled the job."""


class TaskExpired(Exception):
    """The deadline passed before the first attempt."""


class TaskDead(Exception):
    """The job left the schedule; the message is the dead letter's reason."""


class WorkerLost(Exception):
    """The attempt's lease lapsed: its worker died, or could not be reached for too long."""
