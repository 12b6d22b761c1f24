"""How a handler says that a job did not succeed: it raises one of these. Any other exception counts as `Transient`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jobsplatform_client.values import ErrorClass


class JobOutcome(Exception):
    """What a handler may raise on purpose."""


class Failure(JobOutcome):
    """The attempt failed; `message` is stored. `retry_after_s` (seconds) is a floor of the wait before the next."""

    error_class: ClassVar[ErrorClass] = "transient"

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class Transient(Failure):
    """It may work next time."""


class Overload(Failure):
    """The dependency asks for less."""

    error_class = "overload"


class Permanent(Failure):
    """It can never work with this payload: a dead letter at once."""

    error_class = "permanent"


class Uncertain(Failure):
    """An outside call's fate is unknown: the next attempt reconciles before it acts."""

    error_class = "uncertain"


class Release(JobOutcome):
    """Give the job back unharmed: the attempt is not charged. `delay_s` (seconds) postpones it."""

    def __init__(self, delay_s: float | None = None) -> None:
        super().__init__("released by its handler")
        self.delay_s = delay_s


# What a reconciler answers


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
