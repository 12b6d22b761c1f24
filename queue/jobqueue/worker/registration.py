"""Registers what this worker's handlers declare of their kinds, at its start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from django.db import connections

from jobqueue import kinds
from jobqueue.worker import registry
from jobqueue.worker.backoff import Backoff
from jobsplatform import events

RETRY_FIRST_S, RETRY_CAP_S = 0.5, 30.0


class Registration:
    """Tries in a thread until it has been done: a database that is away must not keep a worker from starting."""

    def __init__(
        self, worker: str, served: Iterable[str], *, tidy: Callable[[], None] = connections.close_all
    ) -> None:
        self._worker = worker
        declared = registry.declared()
        self._declared = {kind: declared[kind] for kind in served if kind in declared}
        self._backoff = Backoff(first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S)

        self._tidy = tidy

    def start(self) -> None:
        threading.Thread(target=self._run, name="registration", daemon=True).start()

    def _run(self) -> None:
        while not self.attempt():
            time.sleep(self._backoff.fail())

    def attempt(self) -> bool:
        """Register once; False when it must be tried again."""
        try:
            changed = kinds.sync(self._declared, actor=f"worker:{self._worker}")
        except Exception as error:  # whatever it is, it must not end the worker
            events.emit("kinds_not_registered", worker=self._worker, error=repr(error)[:500])
            return False
        finally:
            self._tidy()
        if changed:
            events.emit("kinds_registered", worker=self._worker, count=len(changed))
        return True
