"""The bodies of the two peers that are Django apps."""

from __future__ import annotations

import os

from benchmarks.peers import counter


def tick_of_q2(n: int, t: int, pad: str) -> None:
    counter.tick(t)


if os.environ.get("BENCH_DJANGO") != "q2":
    from django_tasks import task

    @task()
    def tick(n: int, t: int, pad: str) -> None:
        counter.tick(t)
