"""The loop of every upkeep command: passes at their pace, one at a time, until it is told to stop.

A pass is one bounded piece of work that returns how much it did; a loop knows nothing of what a pass does. It
survives what passes throw: a lost database is waited for (at most JOBS_RECONNECT_SECONDS between attempts), any other
error is told and the pass tried again later.

A pass with a rate is paced while it has more to do than one batch: what has piled up in an outage is worked off beside
live work, not before it.
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

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, close_old_connections, connections, reset_queries

from jobsplatform import events, reach
from jobsplatform.commands import StrictCommand
from jobsplatform.errors import Unavailable, UnknownOutcome
from jobsplatform.probe import LOOPBACK, Probe

BACKOFF_SECONDS_MIN: Final = 0.1
TELL_SECONDS: Final = 60
PARENT_CHECK_SECONDS: Final = 1.0
PARENT_VARIABLE: Final = "JOBSPLATFORM_PARENT_PID"
_PR_SET_PDEATHSIG: Final = 1


BATCHES_PER_SECOND: Final = 5  # of a paced pass: each holds its rows and the disk for a short while


def batch_of(rate_per_s: int, most: int) -> int:
    """How many a batch of a paced pass should take at once."""
    return max(1, min(most, rate_per_s // BATCHES_PER_SECOND))


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
    """One duty of a loop: what to run and how often. `full` is the count that says that more is waiting.

    `rate_per_s` bounds how much it does a second while more is waiting, and lets it rest for as long as a batch took.
    None: as much as it can.
    """

    name: str
    run: Callable[[], Any]
    interval_s: float
    full: int | None = None
    rate_per_s: float | None = None
    due_at: float = field(default=0.0, init=False)
    failures: int = field(default=0, init=False)
    told_at: float = field(default=float("-inf"), init=False)

    def reschedule(self, count: int, began_at: float) -> None:
        """After a full batch the pass runs again at once; a paced one rests, and keeps to its rate since `began_at`.

        Else after its interval, a tenth more or less.
        """
        self.failures = 0
        now = time.monotonic()
        if self.full is None or count < self.full:
            self.due_at = now + self.interval_s * random.uniform(0.9, 1.1)
        elif self.rate_per_s is None:
            self.due_at = now
        else:  # on a machine that is busy a batch takes longer, and so does its rest: live work has the other half
            self.due_at = max(2 * now - began_at, began_at + count / self.rate_per_s)

    def back_off(self) -> float:
        """Put the pass off after a failure; returns the seconds."""
        longest: float = BACKOFF_SECONDS_MIN * 2**self.failures
        cap: float = settings.JOBS_RECONNECT_SECONDS
        seconds = min(cap, longest) * random.uniform(0.5, 1)
        self.failures = min(self.failures + 1, 10)  # 0.1 s · 2**10 is far over the cap
        self.due_at = time.monotonic() + max(seconds, self.interval_s)
        return seconds


class Turn:
    """When a loop last came round: a pass that hangs lets it grow old, a database that is away does not."""

    def __init__(self) -> None:
        self.at = time.monotonic()

    def age_s(self) -> float:
        return time.monotonic() - self.at


def run_loop(passes: Sequence[Pass], stop: Stop, turn: Turn | None = None) -> None:
    """Run the passes, each when it is due, until the stop is requested or the parent is gone."""
    turn = turn or Turn()
    parent_checked_at = time.monotonic()
    while not stop.requested:
        turn.at = time.monotonic()
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
    began_at = time.monotonic()
    try:
        count = count_of(duty.run())
    except (DatabaseError, InterfaceError, Unavailable, UnknownOutcome) as error:
        seconds = duty.back_off()
        _tell(duty, error)
        connections.close_all()
        if not _others_answer():
            stop.wait(seconds)  # the other passes need the same database
    except Exception as error:
        duty.back_off()
        _tell(duty, error)
    else:
        if duty.failures:
            events.emit("pass_recovered", name_of_pass=duty.name)
        duty.reschedule(count, began_at)


def _others_answer() -> bool:
    """Whether a database is known to be down and another is not: then only what needs the first one has to wait."""
    down = reach.down()
    return bool(down) and not down >= settings.DATABASES.keys()


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

    def begin(self) -> Sequence[Pass]:
        """Further passes of a loop that lasts; not run with `--once`."""
        return ()

    def end(self) -> None:
        """The last act of a loop that lasted."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="run every pass once (to the end of its work) and exit"
        )
        add_probe(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        passes = self.passes()
        if options["once"]:
            if not run_once(passes):
                sys.exit(1)
            return
        die_with_parent()
        stop = Stop()
        stop.on_signals(signal.SIGTERM, signal.SIGINT)
        turn = Turn()
        serve_probe(options["probe_port"], options["probe_host"], "last_turn_age_s", turn.age_s)
        run_loop([*passes, *self.begin()], stop, turn)
        self.end()
        connections.close_all()


def add_probe(parser: CommandParser) -> None:
    """The options of a command that can be probed."""
    parser.add_argument(
        "--probe-port", type=int, metavar="PORT", help="serve GET /healthz and /metrics (off)"
    )
    parser.add_argument(
        "--probe-host", default=LOOPBACK, metavar="ADDRESS", help=f"where it listens ({LOOPBACK})"
    )


def serve_probe(port: int | None, host: str, name: str, silent_s: Callable[[], float]) -> None:
    """Serve the probe if there is a port. Raises CommandError for one that cannot be had."""
    if port is None:
        return
    if not 1 <= port <= 65_535:
        raise CommandError(f"--probe-port is {port}; it must be 1 to 65535")
    try:
        Probe(port, name, silent_s, host=host).start()
    except OSError as error:
        raise CommandError(f"--probe-port {port}: {error.strerror or error}") from None
