"""A handler that leaves a trace of every start outside the database: what really ran, whatever was acknowledged."""

from __future__ import annotations

import os
import time

from jobqueue import JobContext, handler


@handler("chaos.note")
def note(job: JobContext) -> dict[str, int]:
    """Payload: `log`, the file that takes one line a start and one an end; `s`, seconds between the two.

    `again_s`, if given, is that from the second generation on.
    """
    _write(job, "start")
    time.sleep(job.payload["s"] if job.generation == 1 else job.payload.get("again_s", job.payload["s"]))
    _write(job, "end")
    return {"generation": job.generation}


def _write(job: JobContext, word: str) -> None:
    line = f"{word} {job.job_id} {job.generation}\n".encode()
    descriptor = os.open(job.payload["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)  # one write: lines of many threads and processes do not mix
    finally:
        os.close(descriptor)
