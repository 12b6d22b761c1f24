"""Which processes of the platform live: each says so every few seconds, far from any hot path, and may be asked to end.

A process that says nothing for `SILENT_SECONDS` is silent: it died, hangs, or cannot reach the control database. What
it says is never trusted for leases or fences; it is for people, and for the drain that one of them asks for.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

import django.db
from django.conf import settings
from django.db import transaction

from jobqueue.models import Process
from jobsplatform import database, events, sql
from jobsplatform.errors import JobsPlatformError, NotFound
from jobsplatform.loop import LoopCommand, Pass
from tenants import audit

BEAT_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 30.0
KEPT_SECONDS: Final = 24 * 3_600  # after its last beat
SHOWN_MAX: Final = 500
NAME_CHARS_MAX: Final = 200


@cache
def version() -> str:
    """What code this process runs: its commit where there is one, else the number that is installed or released."""
    given = str(settings.RELEASE)
    if given:
        return given[:64]
    if not (Path(settings.BASE_DIR) / ".git").exists():
        return "unknown"
    asked = ["git", "-C", str(settings.BASE_DIR), "rev-parse", "--short=12", "HEAD"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return said.stdout.strip() or "unknown"


# Saying so


class Beacon:
    """What one process says of itself. `held` tells how many jobs it holds; `drain` is called once, when asked to."""

    def __init__(
        self,
        kind: str,
        *,
        name: str = "",
        queues: Sequence[str] | None = None,
        slots: int | None = None,
        held: Callable[[], int] | None = None,
        drain: Callable[[], None] | None = None,
    ) -> None:
        self.key = uuid.uuid4().hex
        self._said: dict[str, Any] = {
            "key": self.key,
            "kind": str(kind),
            "name": (name or f"{socket.gethostname()}:{os.getpid()}")[:NAME_CHARS_MAX],
            "version": version(),
            "queues": None if queues is None else list(queues),
            "slots": slots,
        }
        self._held, self._drain = held, drain
        self._is_drained = False
        self._stop = threading.Event()

    def beat(self, now: datetime | None = None) -> None:
        """Say it once. A control database that is away is no fault: it is said again a little later."""
        params = {**self._said, "held": None if self._held is None else self._held(), "now": now}
        try:
            ((asked,),) = sql.rows("jobqueue/process_beat", params, alias="default", writes=True)
        except (django.db.Error, JobsPlatformError):
            return
        if asked and self._drain is not None and not self._is_drained:
            self._is_drained = True
            self._drain()

    def end(self, now: datetime | None = None) -> None:
        """Say good-bye, if the control database listens."""
        self._stop.set()
        try:
            sql.rows("jobqueue/process_end", {"key": self.key, "now": now}, alias="default", writes=True)
        except (django.db.Error, JobsPlatformError):
            return

    def end_soon(self, seconds: float = 1.0) -> None:
        """Say good-bye, without waiting longer than that for it: an exit has its time limit."""
        farewell = threading.Thread(target=self._end_apart, name="farewell", daemon=True)
        farewell.start()
        farewell.join(seconds)

    def _end_apart(self) -> None:
        try:
            self.end()
        finally:
            database.give_connections_back()

    def start(self) -> None:
        """Say it from now on, in a thread of its own that never holds a connection while it sleeps."""
        threading.Thread(target=self._run, name="beacon", daemon=True).start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.beat()
            except Exception as error:
                events.emit("beat_failed", error=type(error).__name__, reason=str(error)[:500])
            finally:
                database.give_connections_back()
            self._stop.wait(BEAT_SECONDS)


class BeatingCommand(LoopCommand):
    """A loop that says that it lives: a pass among its others, so a loop that hangs falls silent."""

    kind: ClassVar[str]

    def begin(self) -> Sequence[Pass]:
        self._beacon = Beacon(self.kind)
        return [Pass("beat", self._beacon.beat, interval_s=BEAT_SECONDS)]

    def end(self) -> None:
        self._beacon.end()


# Reading


def living() -> list[Process]:
    """Processes that have not said good-bye, silent ones too (until they are forgotten), the newest beat first."""
    return list(Process.objects.filter(ended_at__isnull=True).order_by("-beat_at")[:SHOWN_MAX])


def silent_before(now: datetime) -> datetime:
    """Who said nothing since then is silent."""
    return now - timedelta(seconds=SILENT_SECONDS)


# Draining


def drain(key: str, *, actor: str, reason: str = "", now: datetime | None = None) -> str:
    """Ask a living worker to take no more jobs and to end when it is done; it hears within seconds. Returns its name.

    Raises NotFound for what is no living worker, or was asked before.
    """
    (asked,) = _drained({"key": key, "name": None}, actor, reason, now)
    return asked


def drain_named(name: str, *, actor: str, reason: str = "", now: datetime | None = None) -> list[str]:
    """The same by name, which several may have; `all` means every living worker. Raises NotFound when none is asked."""
    return _drained({"key": None, "name": None if name == "all" else name}, actor, reason, now)


def _drained(which: dict[str, Any], actor: str, reason: str, now: datetime | None) -> list[str]:
    params = {
        **which,
        "kind": Process.Kind.WORKER.value,
        "actor": actor[:NAME_CHARS_MAX],
        "silent_s": SILENT_SECONDS,
        "now": now,
    }
    with transaction.atomic():
        rows = sql.rows("jobqueue/process_drain", params, alias="default", writes=True)
        if not rows:
            raise NotFound("There is no such living worker that was not asked yet.")
        for key, name in rows:
            audit.record(
                "worker.drain", f"worker:{name}", actor=actor, reason=reason, details={"process": key}
            )
    return [str(name) for _, name in rows]


def purge(limit: int, now: datetime | None = None) -> int:
    """Forget processes that have said nothing for a day. Returns how many."""
    params = {"limit": limit, "kept_s": KEPT_SECONDS, "now": now}
    return int(sql.rows("jobqueue/process_purge", params, alias="default", writes=True)[0][0])
