"""Runs one attempt after another, each in a process of its own that may be killed at any point of its transaction.

A program: one JSON object a line on stdin (`lease` text, `die`), one on stdout (`signal` that ended the attempt or
0, `error`, `lines` that it executed). It starts Django once and forks, before any connection is opened.

`die` is null, {"line": n} (SIGKILL to itself before the n-th line of the transaction's own code), or {"after_s": s}
(SIGKILL from a timer that starts with the completion's commit).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

TRACED = (
    "jobqueue/worker/ending.py",
    "jobqueue/worker/context.py",
    "jobsplatform/sql.py",
    "db/transaction.py",
)


def main() -> None:
    import django

    django.setup()
    from jobqueue import leases
    from jobqueue.worker import leasetext

    assert leases
    assert leasetext
    for text in sys.stdin:
        order = json.loads(text)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            _attempt(order, write)
        os.close(write)
        with os.fdopen(read) as report:
            said = report.read()
        _, status = os.waitpid(child, 0)
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps({"signal": killed, **json.loads(said or "{}")}), flush=True)


def _attempt(order: dict[str, Any], write: int) -> None:
    """In the child: run the handler once, say how it went, end."""
    from jobqueue.worker import leasetext
    from jobqueue.worker.context import JobContext

    job = JobContext(leasetext.load(order["lease"]), 0, time.monotonic(), _Alone())
    said: dict[str, Any] = {"error": None}
    death = _Death(order["die"] or {})
    try:
        _act(job, death)
    except BaseException as error:
        said["error"] = repr(error)
    sys.settrace(None)
    os.write(write, json.dumps(said | {"lines": death.seen}).encode())
    os._exit(0)


def _act(job: Any, death: _Death) -> None:
    """The handler: one row in `effect` is the effect."""
    from django.db import connections

    with death, job.transaction() as ending:
        with connections[ending.alias].cursor() as cursor:
            cursor.execute("INSERT INTO effect VALUES (%s, %s)", [job.lease.job_id, job.generation])
        ending.result = {"generation": job.generation}
        death.start_timer()


class _Death:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._at_line = plan.get("line")
        self._after_s = plan.get("after_s")
        self.seen = 0

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def start_timer(self) -> None:
        if self._after_s is not None:
            timer = threading.Timer(self._after_s, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename.endswith(TRACED) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.seen += 1
            if self.seen == self._at_line:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


class _Alone:
    """An engine's place taken by nobody."""

    def save_checkpoint(self, job: object, text: str) -> None: ...

    def note_done(self, job: object) -> None: ...

    def queue_name(self, queue_id: int) -> str:
        return ""

    def tenant_slug(self, tenant_id: int) -> str:
        return ""


if __name__ == "__main__":
    main()
