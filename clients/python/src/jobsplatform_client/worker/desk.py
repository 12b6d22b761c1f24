"""What both workers share: options, which handler takes a kind, and every conversation that a worker holds.

The shells (`threads.py`, `tasks.py`) only decide who runs a handler, and who waits.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from jobsplatform_client import errors
from jobsplatform_client.core import SETTLE_ITEMS_MAX, Core
from jobsplatform_client.exchange import Conversation
from jobsplatform_client.retry import Retry
from jobsplatform_client.values import Renewed
from jobsplatform_client.worker.book import Held, LeaseBook
from jobsplatform_client.worker.outcomes import (
    Done,
    Failure,
    NotDone,
    Release,
    StillUnknown,
    Transient,
    Uncertain,
)

H = TypeVar("H", bound=Callable[..., Any])

log: Final = logging.getLogger("jobsplatform_client")

CLAIM_LIMIT_MAX: Final = 100
MESSAGE_CHARS_MAX: Final = 8_000  # the platform cuts at 8 KiB
DELAY_S_MAX: Final = 315_360_000  # ten years, the longest that the platform takes
BEAT_S: Final = 0.25  # between two looks at what must be renewed
ANSWER_S: Final = 5.0
GIVE_BACK: Final = Retry(give_up_after_s=5.0)  # a lease that cannot be given back lapses
BEAT: Final = Retry(give_up_after_s=0.0)  # one try; what is left of the lease says when the next is due
ONCE_S: Final = 0.2  # between claims that do not wait
IDLE: Final = Retry(first_s=0.5, cap_s=5.0)  # waits after claims that came back empty before their time

# A claim that is refused so would be refused again: the worker ends and says why.
FATAL: Final = (errors.Forbidden, errors.BadRequest, errors.NotFound, errors.Conflict, errors.NotUnderstood)


@dataclass(frozen=True, slots=True)
class Options:
    """How a worker works; seconds. See `Worker`."""

    queue: str | None = None
    concurrency: int = 8
    prefetch: int = 0
    lease_s: int | None = None
    wait_s: int = 10
    max_priority: int | None = None
    name: str = ""
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.prefetch < 0:
            raise ValueError("concurrency is at least 1, prefetch at least 0")
        if not 1 <= self.wait_s <= 20:
            raise ValueError("wait_s is 1 to 20 seconds")

    @property
    def claim_ends_s(self) -> float:
        """How long an end waits for the answer to the last claim."""
        return self.wait_s + ANSWER_S

    @property
    def worker(self) -> str:
        return (self.name or f"{socket.gethostname()}-{os.getpid()}")[:100]


class Registry(Generic[H]):
    """Kind → handler, and kind → reconciler."""

    def __init__(self, check: Callable[[H], None]) -> None:
        self._check = check
        self.handlers: dict[str, H] = {}
        self.reconcilers: dict[str, H] = {}

    def handler(self, kind: str) -> Callable[[H], H]:
        return self._adder(self.handlers, kind, "handler")

    def reconciler(self, kind: str) -> Callable[[H], H]:
        return self._adder(self.reconcilers, kind, "reconciler")

    def _adder(self, table: dict[str, H], kind: str, what: str) -> Callable[[H], H]:
        if kind in table:
            raise ValueError(f"the kind {kind!r} has a {what} already")

        def add(function: H) -> H:
            self._check(function)
            table[kind] = function
            return function

        return add

    def kinds(self) -> list[str]:
        """What to claim. Raises ValueError where nothing can be."""
        if not self.handlers:
            raise ValueError('a worker needs a handler: @worker.handler("some.kind")')
        alone = set(self.reconcilers) - set(self.handlers)
        if alone:
            raise ValueError(f"reconcilers without a handler: {', '.join(sorted(alone))}")
        return sorted(self.handlers)


# How an attempt ends


@dataclass(frozen=True, slots=True)
class Complete:
    result: object


@dataclass(frozen=True, slots=True)
class Fail:
    failure: Failure


@dataclass(frozen=True, slots=True)
class GiveBack:
    delay_s: float | None = None


Verdict = Complete | Fail | GiveBack | None  # None: there is nobody to tell

NO_RECONCILER: Final = Fail(
    Uncertain("an earlier attempt may have acted outside, and this kind has no reconciler")
)


def settled_by(found: object) -> Complete | Fail | None:
    """What a reconciler's answer makes of the job; None: the handler may act."""
    if isinstance(found, Done):
        return Complete(found.result)
    if isinstance(found, NotDone):
        return None
    if isinstance(found, StillUnknown):
        message = found.message or "what an earlier attempt did is still unknown"
        return Fail(Uncertain(message, retry_after_s=found.retry_after_s))
    kind = type(found).__name__
    return Fail(Uncertain(f"the reconciler answered {kind}, not Done, NotDone or StillUnknown"))


def verdict_of(error: BaseException, *, while_reconciling: bool) -> Verdict:
    """What an exception out of a handler, or out of a reconciler, says about the job."""
    if isinstance(error, Release):
        return GiveBack(error.delay_s)
    if isinstance(error, errors.LeaseLost):
        return None
    # A reconciler that raises found nothing out: the next attempt must still look before it acts.
    if isinstance(error, Failure):
        told = Uncertain(error.message, retry_after_s=error.retry_after_s) if while_reconciling else error
        return Fail(told)
    return Fail(Uncertain(_told(error)) if while_reconciling else Transient(_told(error)))


def _told(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__)[-3:])
    return f"{type(error).__name__}: {_text(error)}\n{frames}"


def _text(value: object) -> str:
    """What handlers give as a message, whatever it is: a word that cannot be sent must not end the worker."""
    try:
        text = str(value)[:MESSAGE_CHARS_MAX]
    except Exception as error:
        text = f"(its text failed with {type(error).__name__})"
    # A lone surrogate, as of a file name that is no UTF-8, has no place in JSON.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _whole(seconds: float | None) -> int | None:
    """Whole seconds as the platform takes them; what is no number of seconds counts as none."""
    try:
        return min(max(math.ceil(seconds), 0), DELAY_S_MAX)  # type: ignore[arg-type]  # None is a TypeError
    except (TypeError, ValueError, OverflowError):
        return None


class Desk:
    """One worker's conversations and its book of leases."""

    def __init__(self, core: Core, options: Options) -> None:
        self.core, self.options = core, options
        self.book = LeaseBook()
        self._empty = 0

    def claim(self, kinds: Sequence[str], room: int, *, wait_s: int) -> Conversation[list[Held]]:
        """Lease as many jobs as there is room for. Raises FATAL; what may pass is logged and answered by none."""
        options, tries = self.options, self.core.tries()
        try:
            claimed = yield from self.core.claim(
                tries=tries,
                capabilities=list(kinds),
                limit=min(room, CLAIM_LIMIT_MAX),
                queue=options.queue,
                lease_s=options.lease_s,
                wait_s=wait_s,
                max_priority=options.max_priority,
                worker=options.worker,
                prefetch=options.prefetch > 0,
            )
        except FATAL:
            raise
        except errors.JobsPlatformError as error:
            log.warning("no jobs can be claimed: %s", error)
            return []
        return self.book.add(
            claimed,
            self.core.clock(),
            have_begun=options.prefetch == 0,
            is_repeat=tries.count > 1,
        )

    def idle_s(self, found: int, took_s: float, wait_s: int) -> float:
        """How long to wait before the next claim: nothing, unless this one was empty before its time."""
        if found or (wait_s and took_s >= wait_s / 2):
            self._empty = 0
            return 0.0
        if not wait_s:
            return ONCE_S
        self._empty += 1  # the platform is ending: never a tight loop
        return IDLE.wait_s(self._empty, self.core.chance)

    def begin(self, held: Held) -> Conversation[bool]:
        """Say that a prefetched job starts now. False: it must not."""
        if held.has_begun:
            return True
        sent_at = self.core.clock()
        try:
            answer = yield from self.core.renew(held.lease, {"started": True})
        except errors.JobsPlatformError as error:
            log.info("job %s does not start: %s", held.lease.job_id, error)
            self.book.drop(held)
            return False
        held.has_begun = True
        self.book.note(held, answer, sent_at)
        return True

    def beat(self) -> Conversation[list[Held]]:
        """Renew what is due, in one call; answers those that should be given back because they have not begun."""
        due = self.book.due(self.core.clock())[:SETTLE_ITEMS_MAX]
        if not due:
            return []
        sent_at = self.core.clock()
        tries = self.core.tries(BEAT)
        try:
            answers = yield from self.core.renew_many([(one.lease, one.has_begun) for one in due], tries)
        except errors.JobsPlatformError as error:
            log.warning("%d leases were not renewed: %s", len(due), error)
            self.book.again(due, self.core.clock())
            return []
        for held, answer in zip(due, answers, strict=True):
            self.book.note(held, answer, sent_at)
        wanted = {
            id(held)
            for held, answer in zip(due, answers, strict=True)
            if isinstance(answer, Renewed) and answer.give_back
        }
        return [one for one in due if id(one) in wanted and not one.has_begun]

    def checkpoint(self, held: Held, value: object) -> Conversation[None]:
        """Raises errors.LeaseLost, and whatever else keeps the value from being stored."""
        sent_at = self.core.clock()
        try:
            answer = yield from self.core.renew(held.lease, {"checkpoint": value})
        except errors.LeaseLost:
            held.lost = held.lost or "refused"
            raise
        self.book.note(held, answer, sent_at)

    def settle(self, held: Held, verdict: Verdict) -> Conversation[None]:
        """Tell how an attempt ended. Never raises: what cannot be told is logged, and the lease lapses."""
        try:
            if held.lost in (None, "lapsed"):
                yield from self._tell(held, verdict)
        except errors.LeaseLost as error:
            log.warning("job %s: this attempt does not count: %s", held.lease.job_id, error)
        except Exception as error:
            log.error("job %s: its end could not be told: %r", held.lease.job_id, error)
        finally:
            self.book.drop(held)

    def _tell(self, held: Held, verdict: Verdict) -> Conversation[None]:
        lease, tries = held.lease, self.core.tries()
        if isinstance(verdict, Complete):
            try:
                yield from self.core.complete(lease, verdict.result, tries)
            except (TypeError, ValueError, RecursionError, errors.BadRequest, errors.TooLarge) as error:
                told = _text(f"invalid_result: {error}")
                yield from self.core.fail(lease, "permanent", told, None)
        elif isinstance(verdict, Fail):
            failure = verdict.failure
            message, wait_s = _text(failure.message), _whole(failure.retry_after_s)
            yield from self.core.fail(lease, failure.error_class, message, wait_s, tries)
        elif isinstance(verdict, GiveBack):
            yield from self.core.release(lease, _whole(verdict.delay_s), tries)

    def give_back(self, held: Held) -> Conversation[None]:
        """Release a lease at once, and forget it; what its handler still returns is dropped."""
        already, held.lost = held.lost, held.lost or "given back"
        try:
            if already is None:
                yield from self.core.release(held.lease, None, self.core.tries(GIVE_BACK))
        except errors.JobsPlatformError as error:
            log.info("job %s was not given back: %s", held.lease.job_id, error)
        finally:
            self.book.drop(held)
