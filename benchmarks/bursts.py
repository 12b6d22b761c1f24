"""Four shards, eight consumers, producers in bursts: is anything started that should have waited, and how soon is P0?

    .venv/bin/python -m benchmarks.bursts [SECONDS] [--log FILE]

Two consumer processes with four waiting consumers each, and two producers: one brings bursts of all five bands, one a
P0 job every 50 ms. All write down what they see, by the one clock of the machine: when an enqueue was answered, from
when to when a consumer waited, and what it was given. The judgement is made from these lines and from the instants in
the databases alone; the meter's own word stands beside it. The first seconds, in which all open their connections, do
not count.

An *inversion* is a start outside its band's share while a job two bands more urgent had been visible for over 100 ms.
Beside P0 that is every start but those of the floor. Beside P1 and P2 it is found by counting the starts of each
process for as long as such a job waited: no band may have more of them than its weight against the waiting one gives,
but for one turn. (That a turn was lent says nothing: an empty band lends its own, also while others wait for theirs.)
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SHARDS: Final = 4
PROCESSES: Final = 2
CONSUMERS: Final = 4  # in each
LIMIT: Final = 5  # jobs a claim
JOB_SECONDS: Final = 0.002
BURST_EVERY_S: Final = 1.0
BURST_JOBS: Final = 150
P0_EVERY_S: Final = 0.05
MIX: Final = {1: 8, 2: 20, 3: 30, 4: 40}  # of a burst, by band; P0 comes by itself
WEIGHTS: Final = {1: 25, 2: 13, 3: 7, 4: 5}  # of the preset `five`
VISIBLE_S: Final = 0.1
WARM_SECONDS: Final = 5.0
ROOT: Final = Path(__file__).resolve().parent.parent


# The judgement: pure, from what was written down


@dataclass(frozen=True, slots=True)
class Start:
    """One start as its lease and the consumer's line tell it: instants in seconds since the epoch."""

    job: int
    band: int
    at: float  # by the shard's database
    reason: str
    process: int
    got_at: float  # when the consumer had it


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the lines say. Seconds each."""

    starts: int
    beside_p0: list[float]  # how long P0 had been visible at each start that passed it over
    beyond_share: list[str]  # what was started beyond a share while more urgent work waited
    p0_waiting: list[float]  # from the answer to a P0's enqueue to the consumer, where one waited
    p0_all: list[float]


def judge(
    enqueued: Mapping[int, float],
    starts: Sequence[Start],
    waits: Sequence[tuple[float, float]],
    since: float = 0.0,
) -> Verdict:
    """`enqueued`: job → when its enqueue was answered; `waits`: from when to when a consumer waited.

    What was started (for P0: enqueued) before `since` is not judged.
    """
    ordered = sorted(starts, key=lambda start: start.at)
    waiting = {band: _Waiting.of(enqueued, ordered, band) for band in (0, 1, 2)}
    judged = [start for start in ordered if start.at >= since]
    beside_p0 = [
        waited
        for start in judged
        if start.band >= 2 and start.reason != "floor"
        if (waited := waiting[0].longest(start.at)) > VISIBLE_S
    ]
    p0 = [(at, start.got_at) for start in judged if start.band == 0 and (at := enqueued[start.job]) >= since]
    return Verdict(
        len(judged),
        beside_p0,
        list(_beyond_share(judged, waiting)),
        [got - at for at, got in p0 if any(begun < at < ended for begun, ended in waits)],
        [got - at for at, got in p0],
    )


class _Waiting:
    """The jobs of one band: since when each was visible, and when it was started."""

    def __init__(self, spans: list[tuple[float, float]]) -> None:
        self._spans = sorted(spans)
        self._begins = [begun for begun, _ in self._spans]
        self._longest_s = max((ended - begun for begun, ended in spans), default=0.0)

    @classmethod
    def of(cls, enqueued: Mapping[int, float], starts: Sequence[Start], band: int) -> _Waiting:
        return cls([(enqueued[start.job], start.at) for start in starts if start.band == band])

    def longest(self, at: float) -> float:
        """How long the job that waits longest at this instant has been visible; 0: none waits."""
        for place in range(bisect_right(self._begins, at - self._longest_s), len(self._spans)):
            begun, ended = self._spans[place]
            if begun >= at:
                return 0.0
            if ended > at:
                return at - begun
        return 0.0


def _beyond_share(starts: Sequence[Start], waiting: Mapping[int, _Waiting]) -> Iterator[str]:
    """Runs of one process's starts through which a job waited visibly: what a band had beyond its share of them."""
    for process in sorted({start.process for start in starts}):
        own = [start for start in starts if start.process == process]
        for band, line in waiting.items():
            run: list[Start] = []
            for start in [*own, None]:
                if start is not None and line.longest(start.at) > VISIBLE_S:
                    run.append(start)
                    continue
                for other in WEIGHTS:
                    count = sum(one.band == other and one.reason != "floor" for one in run)
                    if other >= band + 2 and count > _share(other, band, len(run)):
                        yield f"process {process}: {count} of {len(run)} starts were P{other} while P{band} waited"
                run = []


def _share(band: int, urgent: int, starts: int) -> float:
    """The most starts of a band beside a more urgent one that waits: its weight's part, and one turn."""
    if urgent == 0:
        return 0
    return starts * WEIGHTS[band] / (WEIGHTS[band] + WEIGHTS[urgent]) + WEIGHTS[band]


# The run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("seconds", type=float, nargs="?", default=30.0)
    parser.add_argument("--log", type=Path, help="keep every line in this file")
    parser.add_argument("--role", choices=["consume", "bursts", "p0"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.role:
        _be(asked.role, asked.seconds)
        return
    print(f"load average at the start: {os.getloadavg()[0]:.1f}")
    verdict, worst_s = run(asked.seconds, asked.log)
    print(f"{verdict.starts:,} starts on {SHARDS} shards by {PROCESSES * CONSUMERS} consumers")
    print(f"starts beside P0 that was visible for over 100 ms: {len(verdict.beside_p0)}")
    print(f"beyond a share by counting: {len(verdict.beyond_share)}", *verdict.beyond_share, sep="\n  ")
    print(f"the meter's longest inversion: {worst_s * 1_000:.0f} ms")
    for name, waits in (("a waiting consumer", verdict.p0_waiting), ("any consumer", verdict.p0_all)):
        p50, p99, most = (quantile(waits, share) * 1_000 for share in (0.5, 0.99, 1.0))
        print(f"P0 to {name:18} n {len(waits):5}  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  max {most:6.1f} ms")


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def run(seconds: float, log: Path | None = None) -> tuple[Verdict, float]:
    """Run it for so long; the judgement, and the meter's longest inversion in seconds."""
    sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
    from jobsplatform.embedded import Server

    folder = Path(tempfile.mkdtemp(prefix="jobsplatform-bursts-"))
    folder.chmod(0o755)
    server = Server(folder)
    try:
        server.ensure_running()
        server.create_shards(SHARDS)
        environment = _environment(folder, server.shards())
        _manage(environment, "migrateshards", "-v", "0")
        _manage(environment, "createtenant", "acme")
        _manage(environment, "shard", "list")  # makes the map
        lines = list(_lines(environment, seconds))
        if log is not None:
            log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return _judged(server, lines)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path, shards: Sequence[str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "JOBSPLATFORM_PG_BIN"
        or not name.startswith(("JOBSPLATFORM_", "JOBS_", "DJANGO_", "PROMETHEUS_"))
    }
    return kept | {
        "DJANGO_SETTINGS_MODULE": "jobsplatform.settings",
        "JOBSPLATFORM_DATA": str(folder),
        "JOBSPLATFORM_SHARDS": ",".join(shards),
        "JOBSPLATFORM_LOG_LEVEL": "ERROR",
        "JOBS_POOL_CONNECTIONS": "8",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'queue'}",
    }


def _manage(environment: Mapping[str, str], *arguments: str) -> None:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


def _lines(environment: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
    """What the processes wrote down. Producers stop before consumers do, so that all is worked off."""
    length = WARM_SECONDS + seconds
    roles = [("consume", length + 6.0)] * PROCESSES + [("bursts", length), ("p0", length)]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bursts", str(part), "--role", role],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for role, part in roles
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == b"ready"
        for child in children:  # all begin at once
            assert child.stdin is not None
            child.stdin.close()
        for number, child in enumerate(children):
            assert child.stdout is not None
            for line in child.stdout:
                yield {**json.loads(line), "process": number}
            assert child.wait(60) == 0
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()


def _judged(server: Any, lines: Sequence[Mapping[str, Any]]) -> tuple[Verdict, float]:
    import psycopg

    kept: dict[int, tuple[int, float, str]] = {}
    for name in server.shards():
        with psycopg.connect(server.url(name)) as connection:
            kept |= {
                job: (band, at, reason)
                for job, band, at, reason in connection.execute(
                    """SELECT a.job_id, j.priority, extract(epoch FROM a.claimed_at)::float8, a.chosen
                       FROM queue_attempt a JOIN queue_job j ON j.id = a.job_id"""
                )
            }
    enqueued = {job: line["at"] for line in lines if line["what"] == "enqueued" for job in line["jobs"]}
    got = {job: line for line in lines if line["what"] == "got" for job in line["jobs"]}
    assert set(kept) == set(got) == set(enqueued), "every job was run, once"
    starts = [
        Start(job, band, at, reason, got[job]["process"], got[job]["at"])
        for job, (band, at, reason) in kept.items()
    ]
    waits = [(line["since"], line["at"]) for line in lines if line["what"] in ("got", "nothing")]
    since = min(enqueued.values()) + WARM_SECONDS
    return judge(enqueued, starts, waits, since), max(line["s"] for line in lines if line["what"] == "worst")


# The processes


def _be(role: str, seconds: float) -> None:
    import django

    django.setup()
    from django.db import connections

    from jobqueue import hub, policies
    from jobqueue.claiming import inversions
    from jobqueue.enqueue import NewJob, enqueue
    from tenants.models import Tenant

    queue, tenant = policies.by_name("default"), Tenant.objects.get(slug="acme")
    lock = threading.Lock()

    def tell(**line: Any) -> None:
        with lock:
            print(json.dumps(line), flush=True)

    def put(bands: Sequence[int]) -> None:
        jobs = [
            NewJob(tenant_id=tenant.pk, queue=queue, kind="noop", priority=band, payload="{}")
            for band in bands
        ]
        made = enqueue(jobs)
        tell(what="enqueued", at=time.time(), jobs=[one.job_id for one in made])  # type: ignore[union-attr]

    if role == "consume":
        hub.current()  # it hears from here on
    else:
        hub.tell_others()
    print("ready", flush=True)
    sys.stdin.read()
    ends = time.time() + seconds
    if role == "consume":
        threads = [threading.Thread(target=_consume, args=(queue, ends, tell)) for _ in range(CONSUMERS)]
        for thread in threads:
            thread.start()
        time.sleep(WARM_SECONDS)
        inversions.forget()
        for thread in threads:
            thread.join()
        tell(what="worst", s=inversions.worst_s())
        hub.forget()
    else:
        _produce(role, ends, put)
    connections.close_all()


def _produce(role: str, ends: float, put: Callable[[Sequence[int]], None]) -> None:
    chance = random.Random(1)
    while time.time() < ends:
        if role == "p0":
            put([0])
            time.sleep(P0_EVERY_S * chance.uniform(0.5, 1.5))
            continue
        bands = chance.choices(list(MIX), weights=list(MIX.values()), k=BURST_JOBS)
        for first in range(0, BURST_JOBS, 10):  # each call to a random shard
            if time.time() < ends:
                put(bands[first : first + 10])
        time.sleep(BURST_EVERY_S * chance.uniform(0.5, 1.5))


def _consume(queue: Any, ends: float, tell: Any) -> None:
    """Wait in the hub, run what comes one after the other, complete it together."""
    from django.db import connections

    from jobqueue import hub, leases
    from jobqueue.claiming import ClaimRequest
    from jobqueue.types import FLEET

    request = ClaimRequest(queues=(queue,), limit=LIMIT, worker="bursts")
    is_idle = False
    while (since := time.time()) < ends or not is_idle:
        waiter = hub.current().park(request, FLEET, wait_s=1)
        assert waiter is not None
        waiter.wait()
        held = waiter.leases()
        is_idle = not held
        tell(
            what="got" if held else "nothing", at=time.time(), since=since, jobs=[one.job_id for one in held]
        )
        time.sleep(JOB_SECONDS * len(held))
        leases.complete([leases.Complete(one.job_id, one.generation, one.token) for one in held])
    connections.close_all()


if __name__ == "__main__":
    main()
