"""What an executor process does from its first line to its last: the private half of `runworker`."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Final

from jobqueue import hub, wakeup
from jobqueue.wakeup import Mark
from jobqueue.worker import registry, whoami
from jobqueue.worker.board import Board
from jobqueue.worker.channel import Channel, Closed
from jobqueue.worker.engine import DatabaseAway, Engine, Stuck
from jobqueue.worker.keeper import NO_DATABASE
from jobqueue.worker.options import WorkerOptions
from jobqueue.worker.verbs import DatabaseVerbs
from jobsplatform import events, tracing
from jobsplatform.loop import die_with_parent

SWITCH_S = 0.001  # the engine waits at most so long for a busy handler to let go of the interpreter
EXIT_KEEPER_GONE, EXIT_STUCK = 1, 70
# A claim makes some thousands of objects that live for a moment: by default each would be looked at again and again.
GC_THRESHOLD: Final = (20_000, 10, 10)


def chosen_kinds(options: WorkerOptions) -> list[str]:
    """Kinds to claim: asked for, and with a handler here. Raises LookupError naming those without one."""
    known = registry.discover()
    if options.kinds is None:
        return sorted(known)
    missing = [kind for kind in options.kinds if kind not in known]
    if missing:
        raise LookupError(
            f"no handler for {', '.join(missing)}; there are {', '.join(sorted(known)) or 'none'}"
        )
    return sorted(set(options.kinds))


def run(private: str, options: WorkerOptions) -> None:
    """Run as executor `private` (see `process.PRIVATE_FLAG`). Never returns."""
    worker, *numbers = private.split(",")
    channel_descriptor, board_descriptor, keeper_pid, solo = map(int, numbers)
    whoami.worker = worker
    die_with_parent(keeper_pid)
    for descriptor in (channel_descriptor, board_descriptor):
        os.set_inheritable(descriptor, False)  # what handlers start must not hold our end of the channel open
    sys.setswitchinterval(SWITCH_S)
    if solo:
        _cap_memory(options.suspect_mb)
    channel = Channel(socket.socket(fileno=channel_descriptor))
    engine = Engine(
        registry.handlers(),
        DatabaseVerbs(options, chosen_kinds(options), worker),
        channel,
        Board(board_descriptor),
        concurrency=1 if solo else options.concurrency,
        once=options.once,
        solo=bool(solo),
        grace_s=options.grace_s,
        reserved=0 if solo or options.reserve is None else options.reserve.threads,
    )
    _drain_on_signals(engine)
    if not solo:
        _wake_on_notifications(engine, options)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    code = _work(engine, worker)
    tracing.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # handlers that still run in threads must not keep the process


def _cap_memory(megabytes: int) -> None:
    """A suspect that asks for more gets a MemoryError, which fails the attempt; so do its child processes."""
    limit = megabytes * 2**20
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _wake_on_notifications(engine: Engine, options: WorkerOptions) -> None:
    """Let notifications end the engine's sleep. What there is, its claim finds out."""

    def hear(alias: str, marks: Iterable[Mark]) -> None:
        if options.max_priority is None or any(mark.priority <= options.max_priority for mark in marks):
            engine.call()

    listeners = hub.listen(hear, engine.call)
    wakeup.hear(hear)  # a handler of this process may enqueue
    if listeners:
        engine.is_woken = lambda: all(listener.is_up for listener in listeners)


def _work(engine: Engine, worker: str) -> int:
    try:
        engine.run()
    except Closed:
        return EXIT_KEEPER_GONE
    except Stuck as error:
        events.emit("executor_stuck", executor=worker, reason=str(error))
        return EXIT_STUCK
    except DatabaseAway as error:
        events.emit("database_lost", executor=worker, error=str(error))
        return NO_DATABASE
    return 0


def _drain_on_signals(engine: Engine) -> None:
    """A signal may reach the whole process group and then come from the keeper as well: it counts once."""

    def drain(number: int, frame: FrameType | None) -> None:
        engine.request_drain()

    signal.set_wakeup_fd(engine.wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)
