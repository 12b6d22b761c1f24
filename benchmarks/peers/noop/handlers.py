"""A handler that does nothing but count."""

from __future__ import annotations

from benchmarks.peers import counter
from jobqueue import JobContext, handler

KIND = "bench.tick"


@handler(KIND)
def tick(job: JobContext) -> None:
    """Reads its payload, as the bodies of all peers do."""
    payload = job.payload
    assert isinstance(payload, dict)
    counter.tick(payload["t"])
