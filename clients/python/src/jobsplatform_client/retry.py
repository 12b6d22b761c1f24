"""When a call is made again, and when nobody should call at all.

Two waits, both needed: `Tries` spaces the repeats of one call; the `Gate` holds back all calls of a client while
the platform does not answer, so that a hundred waiting callers make no more noise than one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobsplatform_client import errors
from jobsplatform_client.exchange import Answer, NoReply, Reply

Clock = Callable[[], float]
Chance = Callable[[float, float], float]

# Whoever answers these may not be the platform, or not all of it: the same call may well be served later.
PASSING = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retry:
    """How long and how often a call is repeated; all in seconds.

    The wait after the n-th failure is uniform in [d/2, d] with d = min(cap_s, first_s · 2^(n-1)), and never
    shorter than `Retry-After`. A call is given up when the next try would begin more than `give_up_after_s`
    after its beginning.
    """

    give_up_after_s: float = 120.0
    first_s: float = 0.2
    cap_s: float = 10.0

    def wait_s(self, failures: int, chance: Chance = random.uniform) -> float:
        """After so many failures in a row, at least one."""
        most = min(self.cap_s, self.first_s * 2 ** min(failures - 1, 30))
        return chance(most / 2, most)


class Tries:
    """One call's: what has happened, and what follows."""

    def __init__(self, retry: Retry, clock: Clock, chance: Chance) -> None:
        self._retry, self._clock, self._chance = retry, clock, chance
        self._ends_at = clock() + retry.give_up_after_s
        self.count = 0  # of what was sent
        self._failures = 0
        self.is_outcome_unknown = False
        self._last: errors.JobsPlatformError | None = None

    def judge(self, answer: Answer) -> float | None:
        """How long to wait before the next try; None: the answer is a success. Raises what ends the call."""
        self.count += 1
        return self.judge_part(answer)

    def judge_part(self, answer: Answer) -> float | None:
        """As `judge`, of the answer to some of what was sent: the call itself has been judged."""
        error = _error(answer)
        if error is None:
            return None
        self._failures += 1
        self._last = error
        self.is_outcome_unknown |= _may_have_happened(answer, error)
        if not _is_passing(answer):
            raise self._told(error)
        wait_s = self._retry.wait_s(self._failures, self._chance)
        floor_s = error.retry_after_s if isinstance(error, errors.Refused) else None
        if floor_s:  # a fleet that was told the same second does not return in the same second
            wait_s = max(wait_s, floor_s * self._chance(1.0, 1.25))
        self.check(wait_s)
        return wait_s

    def check(self, wait_s: float) -> None:
        """Raises the last error when so long a wait would pass the end."""
        if self._clock() + wait_s > self._ends_at:
            raise self._told(self._last or errors.Unreachable("the platform does not answer other calls"))

    def _told(self, error: errors.JobsPlatformError) -> errors.JobsPlatformError:
        error.tries = self.count
        settled = isinstance(error, errors.Conflict)  # it speaks about what a first try did or did not do
        error.is_outcome_unknown = self.is_outcome_unknown and not settled
        return error


def _error(answer: Answer) -> errors.JobsPlatformError | None:
    if isinstance(answer, Reply):
        return answer.error()
    return errors.Unreachable(answer.reason)


def _may_have_happened(answer: Answer, error: errors.JobsPlatformError) -> bool:
    if isinstance(answer, NoReply):
        return answer.was_sent
    return answer.status >= 500 and not isinstance(error, errors.Unavailable)


def _is_outage(answer: Answer) -> bool:
    """Whether the platform does not answer, as opposed to what it answers to one call alone.

    Its own 503 names a `reason` where only this call's queue or key is meant.
    """
    if isinstance(answer, NoReply):
        return True
    if answer.status not in PASSING:
        return False
    error = answer.error()
    return not (isinstance(error, errors.Unavailable) and error.problem.get("reason"))


def _is_passing(answer: Answer) -> bool:
    return isinstance(answer, NoReply) or answer.status in PASSING or answer.status == 429


class Gate:
    """One a client, shared by its callers: closed while the platform does not answer.

    It closes when a call gets no answer, or 502 to 504 without a `reason`, and each round it lets one call through to
    look. Any other answer opens it: what is refused to one call holds back that call alone. Safe for threads.
    """

    LOOK_S = 0.25  # between two looks of those who wait for somebody else's call
    PROBE_S = 60.0  # a call that looks and never reports (its thread was killed) is forgotten after so long

    def __init__(self, retry: Retry, clock: Clock = time.monotonic, chance: Chance = random.uniform) -> None:
        self._retry, self._clock, self._chance = retry, clock, chance
        self._lock = threading.Lock()
        self._failures = 0
        self._opens_at = 0.0
        self._probe_ends_at = 0.0

    @property
    def is_closed(self) -> bool:
        return self._failures > 0

    def wait_s(self) -> float:
        """0: go ahead, and report what was answered. Otherwise come back after so long."""
        with self._lock:
            now = self._clock()
            if not self._failures:
                return 0.0
            if now < self._opens_at:
                return (self._opens_at - now) * self._chance(1.0, 1.25)
            if now < self._probe_ends_at:
                return self._chance(self.LOOK_S / 2, self.LOOK_S)
            self._probe_ends_at = now + self.PROBE_S
            return 0.0

    def note(self, answer: Answer) -> None:
        """What any call was answered."""
        with self._lock:
            self._probe_ends_at = 0.0
            if not _is_outage(answer):
                self._failures = 0
            elif self._clock() >= self._opens_at:  # many calls that fail together are one failure
                self._failures += 1
                self._opens_at = self._clock() + self._retry.wait_s(self._failures, self._chance)

    def leave(self) -> None:
        """A call ended without an answer to report."""
        with self._lock:
            self._probe_ends_at = 0.0
