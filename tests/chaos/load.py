"""Work that goes on while faults are made: producers and workers over HTTP, and the history of what they were told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.harness import Answer, Client, Platform, until

HTTP_KIND = "chaos.http"
NOTE_KIND = "chaos.note"
PACE_S = 0.05  # between two jobs of one producer: the machine is small
REPEAT_S = 0.2
LEASE_S = 3
QUEUE_SETTINGS = (
    f"lease_s={LEASE_S}",
    "max_attempts=100",
    "max_crashes=100",
    "backoff_base_s=0.1",
    "backoff_cap_s=0.5",
)


@dataclass(frozen=True, slots=True)
class Told:
    """One answer that a client got. `key` names the request of an enqueue, `job` and `generation` a lease."""

    at: float  # monotonic seconds
    op: str
    answer: Answer
    key: str = ""
    job: str = ""
    generation: int = 0


@dataclass
class History:
    """Everything that clients were told, and what they were never told anything about."""

    told: list[Told] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, op: str, answer: Answer, **names: Any) -> Answer:
        with self._lock:
            self.told.append(Told(time.monotonic(), op, answer, **names))
        return answer

    def of(self, *ops: str) -> list[Told]:
        with self._lock:
            return [one for one in self.told if one.op in ops]

    def statuses(self) -> dict[str, int]:
        """How often each status, with its code, was told."""
        counts: dict[str, int] = {}
        for one in self.of("enqueue", "claim", "renew", "complete", "fail", "release"):
            name = f"{one.answer.status} {one.answer.code}".strip()
            counts[name] = counts.get(name, 0) + 1
        return counts

    def longest_gap_s(self, op: str, since: float) -> float:
        """Seconds from `since` to the first definite answer of `op` after it."""
        times = [one.at for one in self.of(op) if one.at > since and one.answer.status in (200, 201)]
        return min(times, default=float("inf")) - since


class Load:
    """Producers and workers of one tenant and queue. Every call without a definite answer is made again."""

    def __init__(
        self, platform: Platform, name: str, seed: int, folder: Path, *, note_s: float = 0.3
    ) -> None:
        self.platform = platform
        self.name = name
        self.history = History()
        self.notes = folder / f"{name}.notes"
        self.notes.touch()
        self._note_s = note_s
        self._seed = seed
        self._producing = threading.Event()
        self._working = threading.Event()
        self._threads: list[threading.Thread] = []
        self._producers: list[threading.Thread] = []
        self._faults: list[BaseException] = []
        self.token = platform.tenant(name, ("createqueue", name, "--set", *QUEUE_SETTINGS))

    # The threads

    def start(self, *, producers: int = 2, workers: int = 2) -> Load:
        self._producing.set()
        self._working.set()
        for number in range(producers):
            self._producers.append(self._run(self._produce, number))
        for number in range(workers):
            self._run(self._work, number)
        return self

    def stop_producing(self) -> None:
        self._producing.clear()

    def stop(self) -> None:
        """End the threads; what went wrong in one of them is raised here."""
        self._producing.clear()
        self._working.clear()
        for thread in self._threads:
            thread.join(60)
        if self._faults:
            raise self._faults[0]

    def drain(self, seconds: float) -> float:
        """Stop producing and wait until every job has ended, while the workers go on."""
        self.stop_producing()
        # A request on its way, or one to be made again, still becomes a job.
        until(
            lambda: not any(one.is_alive() for one in self._producers),
            seconds,
            "a producer waits for its answer",
        )
        took = until(
            lambda: self.open_jobs() == 0, seconds, lambda: f"{self.open_jobs()} jobs have not ended"
        )
        print(f"{self.name}: drained in {took:.1f} s")
        return took

    def open_jobs(self) -> int:
        """In one statement: between two, a job could move from the place not yet counted to the one counted."""
        places = " UNION ALL ".join(
            f"SELECT lane_id FROM queue_{one}" for one in ("readyjob", "scheduledjob", "lease")
        )
        tenant = "(SELECT id FROM tenants_tenant WHERE slug = %s)"
        count = f"SELECT count(*) FROM ({places}) p JOIN queue_lane l ON l.id = p.lane_id WHERE l.tenant_id = {tenant}"
        return int(self.platform.rows(count, self.name)[0][0])

    def _run(self, target: Callable[[random.Random, Client, int], None], number: int) -> threading.Thread:
        def body() -> None:
            client = Client(self.platform.port, self.token)
            try:
                target(random.Random(f"{self._seed}/{target.__name__}/{number}"), client, number)
            except BaseException as fault:
                self._faults.append(fault)
            finally:
                client.close()

        thread = threading.Thread(target=body, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    # Producers

    def _produce(self, chance: random.Random, client: Client, number: int) -> None:
        index = 0
        while self._producing.is_set():
            index += 1
            self.enqueue(client, f"{number}/{index}", chance)
            time.sleep(PACE_S)

    def enqueue(self, client: Client, key: str, chance: random.Random) -> None:
        """One job, asked for until there is a definite answer; now and then a repeat too many."""
        body: dict[str, Any] = {
            "kind": HTTP_KIND,
            "payload": {"key": key},
            "queue": self.name,
            "request_key": key,
        }
        if chance.random() < 0.5:
            payload = {"log": str(self.notes), "s": round(self._note_s * chance.uniform(0.5, 1.5), 3)}
            body |= {"kind": NOTE_KIND, "payload": payload}
        if chance.random() < 0.1:
            body["delay_s"] = 1
        body["priority"] = chance.randrange(5)
        while self._until_told("enqueue", client, "/v1/jobs", body, key=key) and chance.random() < 0.1:
            pass

    def _until_told(self, op: str, client: Client, path: str, body: object, **names: Any) -> Answer | None:
        """Repeat one call until its answer says what became of it; None when the run ended before."""
        while self._working.is_set():
            answer = self.history.add(op, client.call("POST", path, body), **names)
            if not answer.is_open:
                return answer
            time.sleep(REPEAT_S)
        return None

    # Workers

    def _work(self, chance: random.Random, client: Client, number: int) -> None:
        claim = {
            "queue": self.name,
            "capabilities": [HTTP_KIND],
            "limit": 10,
            "wait_s": 1,
            "worker": f"http-{number}",
        }
        claims = 0
        while self._working.is_set():
            claims += 1
            key = {"claim_key": f"{number}/{claims}"} if chance.random() < 0.5 else {}
            answer = self.history.add("claim", client.call("POST", "/v1/leases/claim", claim | key))
            if answer.status != 200:
                time.sleep(REPEAT_S)
                continue
            for lease in answer.body["leases"]:
                self._hold(chance, client, lease)

    def _hold(self, chance: random.Random, client: Client, lease: dict[str, Any]) -> None:
        time.sleep(chance.uniform(0, 0.1))
        call = {"generation": lease["generation"], "lease_token": lease["lease_token"]}
        if chance.random() < 0.2:
            self._say("renew", client, lease, call)
        fate = chance.random()
        if fate < 0.7:
            self._say("complete", client, lease, call | {"result": {"generation": lease["generation"]}})
        elif fate < 0.85:
            self._say("fail", client, lease, call | {"error_class": "transient", "message": "as it should"})
        elif fate < 0.93:
            self._say("release", client, lease, call)
        # else: a worker that died; the lease lapses

    def _say(self, op: str, client: Client, lease: dict[str, Any], body: dict[str, Any]) -> None:
        names = {"job": lease["job_id"], "generation": lease["generation"]}
        self._until_told(op, client, f"/v1/jobs/{lease['job_id']}/{op}", body, **names)
