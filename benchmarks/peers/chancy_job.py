"""chancy imports jobs by their module's name."""

from __future__ import annotations

from chancy import job

from benchmarks.peers import counter


@job(queue="default")
async def tick(*, n: int, t: int, pad: str) -> None:
    counter.tick(t)
