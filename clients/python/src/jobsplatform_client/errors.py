"""What can go wrong, as types: one class for each code of the platform's problem documents.

`is_outcome_unknown` on any of them says that a try of this call may have taken effect although no answer
confirmed it: repeating the call with the same key settles that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple


class Fault(NamedTuple):
    """One fault of a request: where (JSON pointer), which rule, and a sentence."""

    pointer: str
    code: str
    detail: str


class JobsPlatformError(Exception):
    """Base of everything that a call raises.

    `tries`: how often it was sent. `request_key`: what an enqueue was sent with, so that it can be repeated
    safely later; for a message its `dedup_key`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.is_outcome_unknown = False
        self.tries = 0
        self.request_key: str | None = None


class Unreachable(JobsPlatformError):
    """No answer came, in all the time that the client's `Retry` allows."""


class NotUnderstood(JobsPlatformError):
    """An answer came that is none of the platform's: `base_url` may name something else."""


class Refused(JobsPlatformError):
    """The platform answered with a problem document."""

    code: ClassVar[str] = ""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.problem = dict(problem)
        self.problem_code = str(problem.get("code", ""))
        self.detail = str(problem.get("detail") or problem.get("title") or f"HTTP status {status}")
        self.request_id = problem.get("instance")
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.problem_code or 'without a code'}: {self.detail}")

    @property
    def faults(self) -> list[Fault]:
        """What was wrong with a request, place by place."""
        listed = self.problem.get("errors") or ()
        return [Fault(one.get("pointer", ""), one.get("code", ""), one.get("detail", "")) for one in listed]


# 400


class BadRequest(Refused):
    """The request breaks a rule; it would do so again."""


class Invalid(BadRequest):
    code = "invalid"


class TenantRequired(BadRequest):
    """A fleet token must name the tenant: `Client(…, tenant="acme")`."""

    code = "tenant_required"


class DeadlineInPast(BadRequest):
    code = "deadline_in_past"


class UnknownErrorClass(BadRequest):
    code = "unknown_error_class"


# 401, 403, 404


class Forbidden(Refused):
    """The token does not let this call through."""

    code = "forbidden"


class Unauthenticated(Forbidden):
    code = "unauthenticated"


class InsufficientScope(Forbidden):
    code = "insufficient_scope"


class TenantSuspended(Forbidden):
    code = "tenant_suspended"


class NotFound(Refused):
    """Absent, or another tenant's: the two look the same."""

    code = "not_found"


# 409


class Conflict(Refused):
    """The thing is not in a state that allows the call."""


class RequestKeyConflict(Conflict):
    """The key names a job with other content."""

    code = "request_key_conflict"

    @property
    def job_id(self) -> str:
        """Of the job that the key names."""
        return str(self.problem.get("job_id", ""))


class KeyConflict(Conflict):
    code = "key_conflict"


class NotScheduled(Conflict):
    """The job does not wait for an instant."""

    code = "not_scheduled"


class LeaseLost(Conflict):
    """The lease is not, or no longer, the caller's: stop, nothing it does will count."""


class StaleGeneration(LeaseLost):
    code = "stale_generation"


class LeaseExpired(LeaseLost):
    code = "lease_expired"


class AlreadyFinished(LeaseLost):
    code = "already_finished"


class ResultConflict(LeaseLost):
    """The job was completed with another result."""

    code = "result_conflict"


class MaxRuntime(Conflict):
    """The lease cannot be extended further; it lasts until its `expires_at`."""

    code = "max_runtime"


class NotDead(Conflict):
    code = "not_dead"


class CorrectionRequired(Conflict):
    code = "correction_required"


class AlreadyRedriven(Conflict):
    code = "already_redriven"


class RedriveLimit(Conflict):
    code = "redrive_limit"


# 413, 415, 422


class TooLarge(Refused):
    code = "too_large"


class UnsupportedMediaType(Refused):
    code = "unsupported_media_type"


class DeadlineInfeasible(Refused):
    code = "deadline_infeasible"


# 429 and 503: these were repeated before they are raised


class LimitReached(Refused):
    """A limit is used up; `retry_after_s` says when to come back."""


class RateLimited(LimitReached):
    code = "rate_limited"


class QuotaExceeded(LimitReached):
    code = "quota_exceeded"


class QueueFull(LimitReached):
    code = "queue_full"


class ServerFault(Refused):
    """The platform, or something before it, failed."""


class Unavailable(ServerFault):
    """It cannot serve now, and did nothing."""

    code = "unavailable"


class UnknownOutcome(ServerFault):
    """A commit was under way and its fate is not known."""

    code = "unknown_outcome"


class BatchIncomplete(JobsPlatformError):
    """Not every job of a batch was accepted. `outcomes` has one of each job, in order: `Accepted`, or an error."""

    def __init__(self, outcomes: list[Any]) -> None:
        self.outcomes = outcomes
        self.errors = [one for one in outcomes if isinstance(one, JobsPlatformError)]
        super().__init__(
            f"{len(self.errors)} of {len(outcomes)} jobs were not accepted; the first: {self.errors[0]}"
        )
        self.is_outcome_unknown = any(one.is_outcome_unknown for one in self.errors)


def _by_code(base: type[Refused]) -> dict[str, type[Refused]]:
    found = {base.code: base} if base.code else {}
    for below in base.__subclasses__():
        found |= _by_code(below)
    return found


BY_CODE = _by_code(Refused)
_BY_STATUS: Mapping[int, type[Refused]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    415: UnsupportedMediaType,
    429: LimitReached,
}


def refusal(status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> Refused:
    """The error for a problem document, by its code; for a code newer than this client, by its status."""
    known = BY_CODE.get(str(problem.get("code", "")))
    kind = known or _BY_STATUS.get(status) or (ServerFault if status >= 500 else Refused)
    return kind(status, problem, retry_after_s)
