"""`python -m benchmarks.latency`: how soon urgent work starts.

P0 over HTTP, one at a time, to the answer of a consumer that waits in another web process; at a background load of
bulk jobs that a worker runs; and to the handler of an idle `runworker`.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from http.client import HTTPConnection
from typing import Any

from benchmarks.stage import QUEUE, Stage, share, stage

KIND_URGENT = "bench.urgent"


class Client:
    """One connection that stays."""

    def __init__(self, port: int, token: str) -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path: str, body: Any) -> Any:
        self.connection.request("POST", path, json.dumps(body), self.headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{path}: {response.status} {text[:300]!r}")
        return json.loads(text)


class Consumer(threading.Thread):
    """Waits for urgent jobs over HTTP and writes down when each came."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(daemon=True)
        self.client = Client(port, token)
        self.came: dict[str, float] = {}
        self.over = False

    def run(self) -> None:
        ask = {"queue": QUEUE, "capabilities": [KIND_URGENT], "wait_s": 20}
        while not self.over:
            leases = self.client.post("/v1/leases/claim", ask)["leases"]
            at = time.perf_counter()
            for lease in leases:
                self.came[lease["job_id"]] = at
                end = {"generation": lease["generation"], "lease_token": lease["lease_token"]}
                self.client.post(f"/v1/jobs/{lease['job_id']}/complete", end)


class Load(threading.Thread):
    """Bulk work at an even rate, over HTTP."""

    def __init__(self, port: int, token: str, rate: int) -> None:
        super().__init__(daemon=True)
        self.client, self.rate, self.over = Client(port, token), rate, False

    def run(self) -> None:
        job = {"queue": QUEUE, "kind": "bench.noop", "payload": {"pad": "x" * 1_000}, "priority": 3}
        began, sent = time.perf_counter(), 0
        while not self.over:
            due = int((time.perf_counter() - began) * self.rate) - sent
            if due:
                self.client.post("/v1/jobs/batch", {"jobs": [job] * due})
                sent += due
            time.sleep(0.05)


def over_http(place: Stage, port: int, count: int) -> list[float]:
    """Seconds from before the enqueue was sent to the consumer's answer, each."""
    consumer = Consumer(port, place.token)
    consumer.start()
    producer = Client(port, place.token)
    time.sleep(1)
    began: dict[str, float] = {}
    for _ in range(count):
        at = time.perf_counter()
        job = {"queue": QUEUE, "kind": KIND_URGENT, "payload": None, "priority": 0}
        job_id = producer.post("/v1/jobs", job)["job_id"]
        began[job_id] = at
        while job_id not in consumer.came and time.perf_counter() - at < 30:
            time.sleep(0.002)
        time.sleep(0.02)  # so that the consumer waits again
    consumer.over = True
    return [consumer.came[job_id] - at for job_id, at in began.items()]


def by_worker(count: int) -> list[float]:
    """Seconds from acceptance to the lease, by the database's clock, of P0 that an idle `runworker` starts."""
    from jobqueue import policies
    from jobqueue.enqueue import NewJob, enqueue
    from jobqueue.models import Attempt, Job
    from jobsplatform import database
    from tenants.models import Tenant

    tenant, queue = Tenant.objects.get(slug="bench"), policies.by_name(QUEUE)
    job = NewJob(tenant_id=tenant.pk, queue=queue, kind="bench.noop", priority=0, payload='{"n": 1}')
    alias = next(iter(database.aliases().values()))
    first = enqueue([job])[0].job_id  # type: ignore[union-attr]
    while not Attempt.objects.using(alias).filter(job_id=first).exists():
        time.sleep(0.2)  # until the worker is there
    time.sleep(2)
    ids = []
    for _ in range(count):
        ids.append(enqueue([job])[0].job_id)  # type: ignore[union-attr]
        time.sleep(0.05)
    time.sleep(2)
    accepted = dict(Job.objects.using(alias).filter(id__in=ids).values_list("id", "created_at"))
    started = Attempt.objects.using(alias).filter(job_id__in=ids).values_list("job_id", "claimed_at")
    return [(at - accepted[job_id]).total_seconds() for job_id, at in started]


def show(name: str, waits: list[float]) -> None:
    p50, p99 = (1_000 * share(waits, part) for part in (0.5, 0.99))
    print(
        f"{name:44} n {len(waits):5}  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  max {max(waits) * 1_000:7.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="urgent jobs of each figure (default 500)")
    parser.add_argument("--load", type=int, default=200, help="bulk jobs a second beside them (default 200)")
    options = parser.parse_args()
    print(f"load average at the start: {os.getloadavg()[0]:.1f}")
    with stage() as place:
        port = place.web(processes=2)
        show("P0 over HTTP, nothing else", over_http(place, port, options.count))
        place.manage("runworker", "--kinds", "bench.noop")
        for upkeep in ("rundispatcher", "runreaper"):
            place.manage(upkeep)
        time.sleep(4)
        show("P0 to an idle runworker", by_worker(options.count))
        load = Load(port, place.token, options.load)
        load.start()
        time.sleep(2)
        show(f"P0 over HTTP, {options.load} bulk jobs/s", over_http(place, port, options.count))
        load.over = True
        load.join(10)


if __name__ == "__main__":
    main()
