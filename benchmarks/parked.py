"""`python -m benchmarks.parked`: two thousand parked consumers on one web process.

What they cost in memory, what they leave to other requests, and how soon one and all of them are woken.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.stage import QUEUE, Stage, children_of, rss_mib, share, stage

READ_BYTES = 65_536


class Parked:
    """Consumers as bare sockets: one process must hold thousands."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token
        self.sockets: list[socket.socket] = []
        self.selector = selectors.DefaultSelector()
        self.read: dict[socket.socket, bytes] = {}

    def add(self, count: int) -> None:
        body = json.dumps({"queue": QUEUE, "wait_s": 20, "worker": "w"}).encode()
        head = (
            f"POST /v1/leases/claim HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", self.port), timeout=30)
            sock.sendall(head + body)
            self.sockets.append(sock)
            self.selector.register(sock, selectors.EVENT_READ)

    def answers(self, count: int, seconds: float) -> list[tuple[float, bytes]]:
        """The first `count` answers and when each came."""
        found: list[tuple[float, bytes]] = []
        ends = time.perf_counter() + seconds
        while len(found) < count and time.perf_counter() < ends:
            for key, _ in self.selector.select(0.2):
                sock: Any = key.fileobj
                text = self.read[sock] = self.read.get(sock, b"") + sock.recv(READ_BYTES)
                if not text.endswith(b"}"):
                    continue
                found.append((time.perf_counter(), text))
                self.selector.unregister(sock)
                self.sockets.remove(sock)
                sock.close()
        return found


def enqueue(count: int, **members: Any) -> float:
    """Store jobs by the verb, in this process; when the last was committed."""
    from jobqueue import policies
    from jobqueue.enqueue import NewJob
    from jobqueue.enqueue import enqueue as store
    from tenants.models import Tenant

    tenant, queue = Tenant.objects.get(slug="bench"), policies.by_name(QUEUE)
    job = NewJob(tenant_id=tenant.pk, queue=queue, kind="noop", payload="null", **({"priority": 2} | members))
    for at in range(0, count, 1_000):
        store([job] * min(1_000, count - at))
    return time.perf_counter()


def throughput(port: int, token: str, seconds: float) -> float:
    """Requests a second of one client that looks at jobs."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    count, ends = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        connection.request("GET", "/v1/jobs?limit=1", headers={"Authorization": f"Bearer {token}"})
        connection.getresponse().read()
        count += 1
    connection.close()
    return count / seconds


def _cpu_s(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _wait_until_idle(pid: int) -> None:
    spent = -1.0
    while (now := _cpu_s(pid)) - spent > 0.02:
        spent = now
        time.sleep(0.3)


def measure(place: Stage, consumers: int) -> dict[str, float]:
    port = place.web(JOBS_PARKED_MAX=consumers + 100)
    (worker,) = children_of(place.children[-1].pid)
    alone = throughput(port, place.token, 3)
    before = rss_mib(worker)
    parked = Parked(port, place.token)
    began = time.perf_counter()
    parked.add(consumers)
    _wait_until_idle(worker)  # it has taken them all in
    figures = {
        "park_s": time.perf_counter() - began,
        "rss_before_mib": before,
        "rss_mib": rss_mib(worker),
    }
    figures["others_share"] = throughput(port, place.token, 3) / alone
    sent = time.perf_counter()
    enqueue(1, priority=0)
    ((at, text),) = parked.answers(1, 10)
    assert b'"job_id"' in text, text
    figures["one_ms"] = (at - sent) * 1_000
    assert parked.answers(1, 0.5) == [], "one job woke two consumers"
    committed = enqueue(consumers - 1)
    answers = parked.answers(consumers - 1, 30)
    assert len(answers) == consumers - 1
    assert all(b'"job_id"' in text for _, text in answers)
    waits = [at - committed for at, _ in answers]
    figures |= {"all_p50_s": share(waits, 0.5), "all_last_s": max(waits), "rss_after_mib": rss_mib(worker)}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumers", type=int, default=2_000)
    options = parser.parse_args()
    with stage() as place:
        for name, value in measure(place, options.consumers).items():
            print(f"{name:16} {value:10.2f}")


if __name__ == "__main__":
    main()
