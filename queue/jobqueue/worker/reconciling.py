"""What stands between a lease and its handler: nobody acts outside before it is known what was done already.

A lease says `reconcile` when an earlier attempt may have acted outside and its word was lost. Then the kind's hook
is asked first. Without a clear answer the handler is not called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue.worker import registry, verdicts
from jobqueue.worker.outcomes import (
    Done,
    Failure,
    JobOutcome,
    LeaseLost,
    NotDone,
    Release,
    StillUnknown,
    Uncertain,
)

if TYPE_CHECKING:
    from jobqueue.declarations import Declared
    from jobqueue.worker.context import JobContext
    from jobqueue.worker.registry import Handler


def run(act: Handler, job: JobContext) -> object:
    """What the job comes to: the result of `act`, or what the hook found. Raises what `act` raises, and Uncertain."""
    declared = registry.declared_of(job.kind)
    if job.reconcile:
        found = _ask(declared, job)
        if isinstance(found, Done):
            return found.result
    if declared is None or not declared.declaration.external_effects:
        return act(job)
    try:
        return act(job)
    except (JobOutcome, LeaseLost):
        raise
    except BaseException as error:  # nobody knows how far it came: the call may have gone out
        raise Uncertain(verdicts.describe(error)) from error


def _ask(declared: Declared | None, job: JobContext) -> Done | NotDone:
    """The hook's answer. Raises Uncertain when there is none, LeaseLost or Release when the hook says so."""
    if declared is None or declared.reconcile is None:
        raise Uncertain("an earlier attempt may have acted outside, and this kind has no reconcile hook")
    try:
        answer = declared.reconcile(job)
    except (LeaseLost, Release):
        raise
    except Failure as error:
        raise Uncertain(error.message, retry_after_s=error.retry_after_s) from error
    except BaseException as error:  # a hook that fails knows nothing
        raise Uncertain(verdicts.describe(error)) from error
    if isinstance(answer, StillUnknown):
        raise Uncertain(
            answer.message or "what an earlier attempt did is still unknown",
            retry_after_s=answer.retry_after_s,
        )
    if not isinstance(answer, Done | NotDone):
        kind = type(answer).__name__
        raise Uncertain(f"the reconcile hook answered {kind}, not Done, NotDone or StillUnknown")
    return answer
