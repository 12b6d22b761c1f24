"""From what a handler did to the call that settles its job."""

from __future__ import annotations

import math
import traceback
from typing import TYPE_CHECKING

from jobqueue import leases
from jobqueue.limits import MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX
from jobqueue.worker.documents import InvalidDocument, encode
from jobqueue.worker.outcomes import Failure, LeaseLost, Release

if TYPE_CHECKING:
    from jobqueue.claiming import Lease

Verdict = leases.Complete | leases.Fail | leases.Release

FRAMES_MAX = 8
DELAY_S_MAX = 315_360_000  # ten years, as far ahead as a job may be timed


def of_result(lease: Lease, value: object) -> Verdict:
    """Completion with `value`; a value that cannot be stored is a permanent failure that begins with
    invalid_result.

    Such a job must leave `running` at once: repeating it would give the same value again.
    """
    try:
        text = encode(value, bytes_max=PAYLOAD_BYTES_MAX)
    except InvalidDocument as error:
        return invalid_result(lease, str(error))
    return leases.Complete(lease.job_id, lease.generation, lease.token, text)


def of_exception(lease: Lease, error: BaseException) -> Verdict | None:
    """What `error` means for the job; None: the lease is lost and there is nothing to say."""
    if isinstance(error, LeaseLost):
        return None
    if isinstance(error, Release):
        delay_s = _whole_seconds(error.delay_s)
        return leases.Release(lease.job_id, lease.generation, lease.token, delay_s, counts=True)
    if isinstance(error, Failure):
        return _failed(lease, error.error_class, error.message, _whole_seconds(error.retry_after_s))
    return _failed(lease, "transient", describe(error))


def invalid_result(lease: Lease, reason: str) -> leases.Fail:
    """A permanent failure: the handler's result cannot be stored."""
    return _failed(lease, "permanent", f"invalid_result: {reason}")


def released(lease: Lease) -> leases.Release:
    """Hand back a lease that no handler saw: nothing is charged or counted, and the job keeps its place."""
    return leases.Release(lease.job_id, lease.generation, lease.token, counts=False)


def _failed(lease: Lease, error_class: str, message: str, retry_after_s: int | None = None) -> leases.Fail:
    return leases.Fail(
        lease.job_id, lease.generation, lease.token, error_class, storable(message), retry_after_s
    )


def storable(message: str) -> str:
    """`message` cut to 8 KiB of UTF-8, without what PostgreSQL cannot store (NUL, lone surrogates)."""
    text = str(message).replace("\x00", "\ufffd")
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore")


def describe(error: BaseException) -> str:
    """Class and text in the first line (what dead letters are grouped by), then the innermost frames."""
    try:
        text = str(error)
    except Exception as failure:  # a handler's exception class may be broken in any way
        text = f"(its text failed with {type(failure).__name__})"
    first_line = f"{type(error).__qualname__}: {text}"[: MESSAGE_BYTES_MAX // 2]
    frames = traceback.format_tb(error.__traceback__)[1:]  # the first frame is the worker's own
    return first_line + "\n" + "".join(frames[-FRAMES_MAX:])


def _whole_seconds(seconds: float | None) -> int | None:
    """Rounded up, within what the queue takes; None and anything that is no number stay unset."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(math.ceil(seconds), 0), DELAY_S_MAX)
