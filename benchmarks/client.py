"""What the Python client costs, and how loud it is while the platform is down.

`python -m benchmarks.client` counts calls in virtual time. With a platform's address and a token (produce, work,
read) behind it, it also measures enqueues and completions there.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from jobsplatform_client import Client, JobFilter, NewJob, Worker
from jobsplatform_client.exchange import Answer, NoReply, Request
from tests.clients.virtual import World, accepted

DOWN_S = 30
SEEDS = 5
JOBS = 2_000


def outage(callers: int, *, is_gated: bool, seed: int) -> tuple[int, float, int]:
    """Calls while it was down, seconds from its return to the last caller's, most calls in 0.1 s after it."""

    def serve(now: float, request: Request) -> Answer:
        return accepted(request) if now >= DOWN_S else NoReply(was_sent=True, reason="down")

    world = World(serve, seed=seed)
    if not is_gated:
        world.core.gate.wait_s = lambda: 0.0  # type: ignore[method-assign]
    for _ in range(callers):
        world.begin(world.core.enqueue(NewJob("a", 1)))
    world.run()
    after = [at for at, _ in world.calls if at >= DOWN_S]
    busiest = max(sum(start <= at < start + 0.1 for at in after) for start in after)
    return len(world.calls) - len(after), max(after) - DOWN_S, busiest


def outages() -> None:
    print(
        "| callers | gate | calls while down | last answer after, s | most calls in 0.1 s |\n|---|---|---|---|---|"
    )
    for callers in (1, 10, 100, 1_000):
        for is_gated in (False, True):
            runs = [outage(callers, is_gated=is_gated, seed=seed) for seed in range(SEEDS)]
            calls, seconds, busiest = (median(column) for column in zip(*runs, strict=True))
            print(f"| {callers:,} | {'yes' if is_gated else 'no'} | {calls:,} | {seconds:.1f} | {busiest} |")


def throughput(url: str, token: str) -> None:
    kind = f"bench-{uuid.uuid4().hex[:8]}"
    with Client(url, token) as client:
        for threads in (1, 8):
            began = time.perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda number: client.enqueue(kind, number), range(JOBS // 4)))
            print(f"enqueue, {threads} threads: {JOBS / 4 / (time.perf_counter() - began):,.0f} jobs/s")
        began = time.perf_counter()
        client.enqueue_batch(NewJob(kind, number) for number in range(JOBS))
        print(f"enqueue_batch: {JOBS / (time.perf_counter() - began):,.0f} jobs/s")
        work(client, kind, JOBS + 2 * (JOBS // 4))


def work(client: Client, kind: str, jobs: int) -> None:
    worker, done, all_done = Worker(client, concurrency=16, wait_s=1), [0], threading.Event()

    @worker.handler(kind)
    def nothing(job: object) -> None:
        done[0] += 1
        if done[0] >= jobs:
            all_done.set()

    began = time.perf_counter()
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    all_done.wait(600)
    print(f"worker, 16 at once: {jobs / (time.perf_counter() - began):,.0f} jobs/s")
    worker.drain()
    thread.join()
    assert not list(client.jobs(JobFilter(kind=kind, state="ready")))


if __name__ == "__main__":
    outages()
    if len(sys.argv) == 3:
        throughput(*sys.argv[1:])
