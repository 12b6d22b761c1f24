"""How a handler says that a job did not succeed: it raises one of these.

Any other exception counts as `Transient` with the exception's class, text and last frames.
No Django import here: `from jobqueue import Transient` works before set-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from jobqueue.worker.context import JobContext


class JobOutcome(Exception):
    """What a handler may raise on purpose."""


class Failure(JobOutcome):
    """The attempt failed. `message` is stored (cut at 8 KiB)."""

    error_class: ClassVar[str] = "transient"

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class Transient(Failure):
    """It may work next time: retried with backoff; `retry_after_s` (seconds) is a floor of the wait."""


class Overload(Failure):
    """The dependency asks for less: retried as `Transient`, and counted against the dependency."""

    error_class = "overload"


class Permanent(Failure):
    """It can never work with this payload: a dead letter at once."""

    error_class = "permanent"


class Uncertain(Failure):
    """An external call's fate is unknown: the next attempt has `reconcile` set and must find out first."""

    error_class = "uncertain"


class Release(JobOutcome):
    """Give the job back unharmed: the attempt is not charged. `delay_s` (seconds) postpones it."""

    def __init__(self, delay_s: float | None = None) -> None:
        super().__init__("released by its handler")
        self.delay_s = delay_s


class LeaseLost(Exception):
    """Raised by `checkpoint()`: this attempt no longer holds the job. Stop; nothing it returns will count."""


class InvalidCheckpoint(ValueError):
    """Raised by `checkpoint()`: the value is not JSON as the API has it, or larger than 16 KiB."""


# What a `reconcile` hook answers


@dataclass(frozen=True, slots=True)
class Done:
    """An earlier attempt did it; `result` (any JSON value) completes the job, and the handler is not called."""

    result: object = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """No earlier attempt did it, or doing it again has no further effect: the handler may act."""


@dataclass(frozen=True, slots=True)
class StillUnknown:
    """It cannot be known yet: asked again after the backoff (`retry_after_s` is a floor), in the end a dead letter."""

    message: str = ""
    retry_after_s: float | None = None


def safe_to_repeat(job: JobContext) -> NotDone:
    """The hook of handlers whose receiver acts once per operation id: calling it again resolves the first call."""
    return NotDone()
