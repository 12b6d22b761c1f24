"""What `runworker` was asked to do, checked once."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass, field

from jobqueue.limits import LEASE_SECONDS_MAX, WORKER_CHARS_MAX
from jobqueue.worker.reserve import Slots

CONCURRENCY_MAX = 256  # handler threads of one executor
PROCESSES_MAX = 64
GRACE_SECONDS_MAX = 3_600
BANDS_MAX = 100
SUSPECTS_MAX = 256
SUSPECT_MB_MIN, SUSPECT_MB_MAX = 1_024, 2**24  # an executor that runs nothing maps about 400 MB
SUSPECT_RUN_SECONDS_MAX = 604_800


class BadOption(ValueError):
    """An option is out of its bounds; the message names the option and the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Durations in seconds. `queues` None: every queue; `kinds` None: every kind that has a handler."""

    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    concurrency: int = 8  # handler threads in each executor
    processes: int = 1  # executors
    lease_s: int | None = None  # None: the queue's
    max_priority: int | None = None  # largest band index that is claimed
    reserve: Slots | None = None  # threads kept for a band
    suspects: int = 1  # that run at a time, each alone in its process
    suspect_mb: int = field(default_factory=lambda: half_of_memory_mb())  # address space of such a process
    suspect_run_s: int | None = None  # longest run of a suspect; None: the queue's
    once: bool = False
    grace_s: float = 10.0
    probe_port: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        _bound("--concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        _bound("--processes", self.processes, 1, PROCESSES_MAX)
        _bound("--lease", self.lease_s, 1, LEASE_SECONDS_MAX)
        _bound("--max-priority", self.max_priority, 0, BANDS_MAX - 1)
        if self.reserve is not None:
            _bound("--reserve, in threads,", self.reserve.threads, 1, self.concurrency - 1)
        _bound("--suspects", self.suspects, 1, SUSPECTS_MAX)
        _bound("--suspect-memory, in MB,", self.suspect_mb, SUSPECT_MB_MIN, SUSPECT_MB_MAX)
        _bound("--suspect-run", self.suspect_run_s, 1, SUSPECT_RUN_SECONDS_MAX)
        _bound("--grace", self.grace_s, 0, GRACE_SECONDS_MAX)
        _bound("--probe-port", self.probe_port, 1, 65_535)
        _bound("--name, in characters,", len(self.name), 0, WORKER_CHARS_MAX - 12)  # "/63.1234567" is added
        if "," in self.name:
            raise BadOption("--name cannot hold a comma")
        for option, names in (("--queues", self.queues), ("--kinds", self.kinds)):
            if names is not None and not all(names):
                raise BadOption(f"{option} is a list of names with commas between them")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerOptions:
        fields = json.loads(text)
        for name in ("queues", "kinds"):
            fields[name] = None if fields[name] is None else tuple(fields[name])
        fields["reserve"] = None if fields["reserve"] is None else Slots(*fields["reserve"])
        return cls(**fields)


def default_name() -> str:
    """Host and process: who holds a lease, for people."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}"


def half_of_memory_mb() -> int:
    """Half of this machine's memory: a job that eats its worker's must not eat the machine's."""
    return max(SUSPECT_MB_MIN, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**21)


def _bound(option: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise BadOption(f"{option} must be from {low} to {high}, not {value}")
