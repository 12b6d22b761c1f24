"""Every refusal the platform can give, as a typed error with the stable code of the wire contract.

Domain functions raise these (or, in batches, return them as values); `jobsplatform.problem` turns them into
problem documents, the admin into one message, commands into one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple


class FieldError(NamedTuple):
    """One fault of a request: where (JSON pointer), which rule, and a sentence."""

    pointer: str
    code: str
    detail: str


class JobsPlatformError(Exception):
    """Base of all refusals. `extra` holds further members of the problem document."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Error"

    def __init__(self, detail: str = "", *, retry_after: int | None = None, **extra: Any) -> None:
        self.detail = detail or self.title
        self.retry_after = retry_after
        self.extra = extra
        super().__init__(self.detail)


# 400


class Invalid(JobsPlatformError):
    """The request breaks a rule of the contract; `errors` says where."""

    code, status, title = "invalid", 400, "The request is not valid."

    def __init__(self, detail: str = "", *, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail or (errors[0].detail if errors else ""))
        self.errors = list(errors)

    @classmethod
    def at(cls, pointer: str, detail: str, code: str = "invalid") -> Invalid:
        return cls(detail, errors=[FieldError(pointer, code, detail)])


class TenantRequired(JobsPlatformError):
    code, status, title = "tenant_required", 400, "This call needs the header Jobsplatform-Tenant."


class DeadlineInPast(JobsPlatformError):
    code, status, title = "deadline_in_past", 400, "The deadline is not in the future."


class UnknownErrorClass(JobsPlatformError):
    code, status, title = "unknown_error_class", 400, "The error class is not known."


# 401, 403, 404


class Unauthenticated(JobsPlatformError):
    code, status, title = "unauthenticated", 401, "A valid token is required."


class InsufficientScope(JobsPlatformError):
    code, status, title = "insufficient_scope", 403, "The token lacks the scope that this call needs."


class Forbidden(JobsPlatformError):
    """An operator's account may not do this; an API token's limits are scopes."""

    code, status, title = "forbidden", 403, "Your account may not do this."


class TenantSuspended(JobsPlatformError):
    code, status, title = "tenant_suspended", 403, "The tenant is suspended."


class NotFound(JobsPlatformError):
    """Absent, or another tenant's: the two look the same."""

    code, status, title = "not_found", 404, "There is no such thing here."


# 409


class Conflict(JobsPlatformError):
    status = 409


class RequestKeyConflict(Conflict):
    code, title = "request_key_conflict", "The request key was first used with other content."


class KeyConflict(Conflict):
    code, title = "key_conflict", "The key was first used for another call."


class StaleGeneration(Conflict):
    code, title = "stale_generation", "The lease is not, or no longer, the caller's."


class LeaseExpired(Conflict):
    code, title = "lease_expired", "The lease has lapsed."


class MaxRuntime(Conflict):
    code, title = "max_runtime", "The attempt has reached the longest run time that its queue allows."


class ResultConflict(Conflict):
    code, title = "result_conflict", "A different result is already durable."


class AlreadyFinished(Conflict):
    code, title = "already_finished", "The job has already ended."


class NotDead(Conflict):
    code, title = "not_dead", "The job is not a dead letter."


class NotScheduled(Conflict):
    code, title = "not_scheduled", "The job does not wait for an instant."


class CorrectionRequired(Conflict):
    code, title = "correction_required", "The payload must be corrected before this job is redriven."


class AlreadyRedriven(Conflict):
    code, title = "already_redriven", "Another redrive won."


class RedriveLimit(Conflict):
    code, title = "redrive_limit", "The job has been redriven as often as its queue allows."


# 413, 415, 422, 429


class TooLarge(JobsPlatformError):
    code, status, title = "too_large", 413, "The request is too large."


class UnsupportedMediaType(JobsPlatformError):
    code, status, title = "unsupported_media_type", 415, "Only application/json in UTF-8 is understood."


class DeadlineInfeasible(JobsPlatformError):
    code, status, title = "deadline_infeasible", 422, "The deadline cannot be met at the present drain."


class RateLimited(JobsPlatformError):
    code, status, title = "rate_limited", 429, "Too many requests."


class QuotaExceeded(JobsPlatformError):
    code, status, title = "quota_exceeded", 429, "The tenant's quota is used up."


class QueueFull(JobsPlatformError):
    code, status, title = "queue_full", 429, "The queue is full."


# 503


class Unavailable(JobsPlatformError):
    """Nothing was done: the database cannot be reached, or refused before any effect."""

    code, status, title = "unavailable", 503, "The platform cannot serve this right now."

    def __init__(self, detail: str = "", *, retry_after: int | None = 1, **extra: Any) -> None:
        super().__init__(detail, retry_after=retry_after, **extra)


class UnknownOutcome(JobsPlatformError):
    """The connection was lost, or replication not confirmed, while a commit was under way."""

    code, status, title = "unknown_outcome", 503, "The commit's fate is not known; repeat with the same key."

    def __init__(self, detail: str = "", *, retry_after: int | None = 1) -> None:
        super().__init__(detail, retry_after=retry_after, outcome="unknown")


class NotReplicated(UnknownOutcome):
    """It is committed here, and would be lost with this server: the wait for the standby was cancelled."""
