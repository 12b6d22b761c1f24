"""Local effects, once: a handler's effect and its job's completion, committed together or not at all.

Only for effects in the database that holds the job. The completion is the transaction's last statement and is
fenced like any other: a lease that is lost takes the effect back with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import django.db
import psycopg
from django.db import transaction
from django.db.transaction import TransactionManagementError

from jobqueue import leases
from jobqueue.ids import format_id
from jobqueue.limits import PAYLOAD_BYTES_MAX
from jobqueue.types import FLEET, token_hash
from jobqueue.whereabouts import find
from jobqueue.worker.documents import InvalidDocument, encode
from jobqueue.worker.outcomes import LeaseLost, Permanent
from jobsplatform import events, sql
from jobsplatform.errors import JobsPlatformError, Unavailable, UnknownOutcome

if TYPE_CHECKING:
    from jobqueue.claiming import Lease


class Ending:
    """What a handler has in hand inside `job.transaction()`: the database to act in, and the job's result to be."""

    __slots__ = ("_committed", "alias", "result")

    def __init__(self, alias: str) -> None:
        self.alias = alias  # for `using=`: effects elsewhere are not part of the transaction
        self.result: object = None  # any JSON value of at most 128 KiB; read at the end of the block
        self._committed = False


@contextmanager
def together(lease: Lease, alias: str) -> Iterator[Ending]:
    """Run the block in a transaction on `alias` that ends with the completion of `lease`.

    Raises LeaseLost when the lease is not, or no longer, the caller's, Permanent for a result that cannot be stored,
    Unavailable or UnknownOutcome when the database was lost; then nothing of the block holds, or, for an
    UnknownOutcome, the fence decides: a later call of this attempt is refused if the commit went through after all.
    Raises RuntimeError inside another transaction on `alias`: its end would decide, and not this block's.
    """
    ending = Ending(alias)
    calls: list[leases.Complete] = []  # the completion, once it has been sent
    try:
        with _outcomes_told(alias, calls), transaction.atomic(using=alias, durable=True):
            transaction.on_commit(lambda: _note(ending), using=alias)  # first: a later hook may fail
            yield ending
            if transaction.get_rollback(using=alias):  # the block's end would undo all, and say nothing
                raise TransactionManagementError(
                    "a statement of the block has failed: nothing can be committed"
                )
            calls.append(_call(lease, ending))
            _complete(calls[0], alias)
    except (Unavailable, UnknownOutcome):
        if not ending._committed and not (calls and _has_ended(calls[0], alias)):
            raise
    except Exception as error:
        if not ending._committed:
            raise
        events.emit("commit_hook_failed", job_id=format_id(lease.job_id), error=repr(error)[:500])


def _note(ending: Ending) -> None:
    ending._committed = True


def _call(lease: Lease, ending: Ending) -> leases.Complete:
    try:
        text = encode(ending.result, bytes_max=PAYLOAD_BYTES_MAX)
    except InvalidDocument as error:
        raise Permanent(f"invalid_result: {error}") from error
    return leases.Complete(lease.job_id, lease.generation, lease.token, text)


def _complete(call: leases.Complete, alias: str) -> None:
    """The last statement: it holds the lease's row until the commit, and renewals of all leases would wait for it."""
    (answer,) = leases.complete([call], scope=FLEET)
    if isinstance(answer, Unavailable | UnknownOutcome):
        raise answer
    if isinstance(answer, JobsPlatformError):
        raise LeaseLost(f"the lease of job {format_id(call.job_id)} is lost: {answer.code}") from answer
    if answer.replayed:
        raise LeaseLost(f"job {format_id(call.job_id)} was completed before, with its effect")


@contextmanager
def _outcomes_told(alias: str, calls: list[leases.Complete]) -> Iterator[None]:
    """A database that is lost at COMMIT is told in the platform's words; the block's own errors stay as they are."""
    with sql.translated(alias, writes=True):
        try:
            yield
        except django.db.Error as error:
            if calls and isinstance(error.__cause__, psycopg.Error):
                raise error.__cause__ from error
            raise


def _has_ended(call: leases.Complete, alias: str) -> bool:
    """Whether the commit whose answer was lost went through. False as well when nobody can say yet."""
    asked = [(call.job_id, call.generation, token_hash(call.token))]
    try:
        place = find(asked, alias=alias, scope=FLEET).get(0)
    except JobsPlatformError:
        return False
    return place is not None and place.was_ended_by(call.call_hash)
