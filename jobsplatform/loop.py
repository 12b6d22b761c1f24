"""The loop of every upkeep command: passes at their pace, one at a time, until it is told to stop.

A pass is one bounded piece of work that returns how much it did; a loop knows nothing of what a pass does. It
survives what passes throw: a lost database is waited for (at most 5 s between attempts), any other error is
told and the pass tried again later.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from django.core.management.base import CommandParser
from django.db import DatabaseError, InterfaceError, close_old_connections, connections, reset_queries

from jobsplatform import events
from jobsplatform.commands import StrictCommand
from jobsplatform.errors import Unavailable, UnknownOutcome

BACKOFF_SECONDS_MIN: Final = 0.1
BACKOFF_SECONDS_MAX: Final = (
    5.0  # with a 3 s wait for a connection: work goes on within 10 s of a server's return
)
TELL_SECONDS: Final = 60
PARENT_CHECK_SECONDS: Final = 1.0
PARENT_VARIABLE: Final = "JOBSPLATFORM_PARENT_PID"
_PR_SET_PDEATHSIG: Final = 1


class Stop:
    """A request to stop that a signal handler may make at any moment (an Event could deadlock there)."""

    def __init__(self) -> None:
        self.requests = 0
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    @property
    def requested(self) -> bool:
        return self.requests > 0

    def request(self) -> None:
        self.requests += 1
        with suppress(BlockingIOError):  # a full pipe has told enough
            os.write(self._writer, b".")

    def wait(self, seconds: float) -> bool:
        """Sleep; a request ends the sleep. Returns whether there is one."""
        if not self.requested and seconds > 0:
            select.select([self._reader], [], [], seconds)
        return self.requested

    def on_signals(self, *numbers: signal.Signals) -> None:
        """Let these signals request the stop (main thread only)."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.request()

        for number in numbers:
            signal.signal(number, handle)


@dataclass(slots=True)
class Pass:
    """One duty of a loop: what to run and how often. `full` is the count that says that more is waiting."""

    name: str
    run: Callable[[], Any]
    interval_s: float
    full: int | None = None
    due_at: float = field(default=0.0, init=False)
    failures: int = field(default=0, init=False)
    told_at: float = field(default=float("-inf"), init=False)

    def reschedule(self, count: int) -> None:
        """After a full batch the pass runs again at once, else after its interval, a tenth more or less."""
        self.failures = 0
        again = self.full is not None and count >= self.full
        self.due_at = time.monotonic() + (0 if again else self.interval_s * random.uniform(0.9, 1.1))

    def back_off(self) -> float:
        """Put the pass off after a failure; returns the seconds."""
        longest: float = BACKOFF_SECONDS_MIN * 2**self.failures
        seconds = min(BACKOFF_SECONDS_MAX, longest) * random.uniform(0.5, 1)
        self.failures = min(self.failures + 1, 10)  # 0.1 s · 2**10 is far over the cap
        self.due_at = time.monotonic() + max(seconds, self.interval_s)
        return seconds


def run_loop(passes: Sequence[Pass], stop: Stop) -> None:
    """Run the passes, each when it is due, until the stop is requested or the parent is gone."""
    parent_checked_at = time.monotonic()
    while not stop.requested:
        duty = min(passes, key=lambda item: item.due_at)
        if stop.wait(min(duty.due_at - time.monotonic(), PARENT_CHECK_SECONDS)):
            return
        now = time.monotonic()
        if now - parent_checked_at >= PARENT_CHECK_SECONDS:
            parent_checked_at = now
            if parent_is_gone():
                return
        if duty.due_at <= now:
            _attempt(duty, stop)


def run_once(passes: Sequence[Pass]) -> bool:
    """Run every pass until it finds no full batch any more; True when none failed."""
    succeeded = [_drain(duty) for duty in passes]
    return all(succeeded)


def _drain(duty: Pass) -> bool:
    while True:
        try:
            count = count_of(duty.run())
        except Exception as error:
            _tell(duty, error)
            return False
        if duty.full is None or count < duty.full:
            return True


def _attempt(duty: Pass, stop: Stop) -> None:
    close_old_connections()
    reset_queries()  # DEBUG keeps every statement otherwise
    try:
        count = count_of(duty.run())
    except (DatabaseError, InterfaceError, Unavailable, UnknownOutcome) as error:
        seconds = duty.back_off()
        _tell(duty, error)
        connections.close_all()
        stop.wait(seconds)  # the other passes need the same database
    except Exception as error:
        duty.back_off()
        _tell(duty, error)
    else:
        if duty.failures:
            events.emit("pass_recovered", name_of_pass=duty.name)
        duty.reschedule(count)


def _tell(duty: Pass, error: Exception) -> None:
    """The first failure of a row, and one a minute while it lasts."""
    now = time.monotonic()
    if duty.failures > 1 and now - duty.told_at < TELL_SECONDS:
        return
    duty.told_at = now
    lost = isinstance(error, (DatabaseError, InterfaceError, Unavailable, UnknownOutcome))
    reason = " ".join(str(error).split())[:500]
    name = "database_lost" if lost else "pass_failed"
    events.emit(name, name_of_pass=duty.name, error=type(error).__name__, reason=reason, exc_info=not lost)


def count_of(result: Any) -> int:
    """How much a pass did: an integer as it is, counts (a tuple or dataclass of integers) added up."""
    if isinstance(result, (int, float)) or result is None:
        return int(result or 0)
    if isinstance(result, dict):
        return sum(count_of(value) for value in result.values())
    if isinstance(result, (tuple, list)):
        return sum(count_of(value) for value in result)
    slots = getattr(result, "__dataclass_fields__", {})
    return sum(
        count_of(getattr(result, name)) for name in slots if isinstance(getattr(result, name), (int, float))
    )


# Parents


_parent: int | None = None


def die_with_parent(parent: int | None = None) -> None:
    """End this process when its parent ends, however that happens; without a supervisor nothing happens.

    The parent is the one given, or the supervisor that named itself in the environment (taken out of it, so
    that children of this process do not mistake it for theirs). Linux kills us; elsewhere loops ask
    `parent_is_gone`.
    """
    global _parent
    named = os.environ.pop(PARENT_VARIABLE, "")
    _parent = parent if parent is not None else int(named) if named.isdigit() else None
    if _parent is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if parent_is_gone():  # it ended before the request
        os._exit(1)


def parent_is_gone() -> bool:
    """Whether the process named to `die_with_parent` is no longer our parent."""
    return _parent is not None and _parent != os.getppid()


# Commands


class LoopCommand(StrictCommand):
    """Base of `manage.py run…`: a subclass names its passes. SIGTERM: exit 0 after the current pass."""

    def passes(self) -> Sequence[Pass]:
        raise NotImplementedError

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="run every pass once (to the end of its work) and exit"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        passes = self.passes()
        if options["once"]:
            if not run_once(passes):
                sys.exit(1)
            return
        die_with_parent()
        stop = Stop()
        stop.on_signals(signal.SIGTERM, signal.SIGINT)
        run_loop(passes, stop)
        connections.close_all()
