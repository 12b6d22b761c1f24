"""A dependency that is down for a minute while 5,000 jobs need it: S85.

Once on a virtual clock, by the policy alone; once for real, with claims, failures and upkeep on the database.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Thread

import pytest
from django.db import connections

from jobqueue import judging, upkeep
from jobqueue.policy import backoff, budget, limit
from jobqueue.policy.breaker import Breaker, BreakerState, Probe, Rules
from tests import cast
from tests.cast import at

JOBS, DOWN_S = 5_000, 60.0
RULES = Rules()


# On a virtual clock


@dataclass
class World:
    """Twenty workers share calls of D (50 ms each) and other work (50 ms) by turns; D is down until `up_at`."""

    jobs: int
    up_at: float
    workers: int = 20
    clock: float = 0.0
    breaker: Breaker = field(default_factory=Breaker)
    attempts: Counter[int] = field(default_factory=Counter)
    calls: list[tuple[float, bool]] = field(default_factory=list)  # when it began, whether it went well
    opened: list[tuple[float, float]] = field(default_factory=list)
    probes: int = 0
    firsts: int = 0
    retries: int = 0
    others: Counter[int] = field(default_factory=Counter)  # by second
    done: int = 0

    def run(self, seconds: float) -> None:
        rng = random.Random(7)
        ready = list(range(self.jobs))[::-1]
        due: list[tuple[float, int]] = []
        free = [(0.0, worker) for worker in range(self.workers)]
        running: list[tuple[float, int, bool, bool]] = []  # ends at, job, is well, is probe
        for turn in itertools.count():
            began, worker = heapq.heappop(free)
            self.clock = began
            if began >= seconds:
                return
            self._end(running, due, rng)
            self._promote(due, ready)
            self._judge(Probe.RUNNING if self.breaker.has_probe else Probe.NONE)
            ends = began + 0.05
            if turn % 2 == 0 and ready and self._may_start():
                job = ready.pop()
                self.attempts[job] += 1
                self.firsts += self.attempts[job] == 1
                is_probe = self.breaker.state is BreakerState.HALF_OPEN
                if is_probe:
                    self.probes += 1
                    self.breaker = Breaker(BreakerState.HALF_OPEN, has_probe=True)
                is_well = began >= self.up_at
                self.calls.append((began, is_well))
                heapq.heappush(running, (ends, job, is_well, is_probe))
            else:
                self.others[int(began)] += 1
            heapq.heappush(free, (ends, worker))

    def _may_start(self) -> bool:
        if self.breaker.state is BreakerState.OPEN:
            return False
        if self.breaker.state is BreakerState.HALF_OPEN:
            return not self.breaker.has_probe
        if self.breaker.ramp_from is None:
            return True
        elapsed = (at(self.clock) - self.breaker.ramp_from).total_seconds()
        recent = sum(1 for began, _ in self.calls[-700:] if began > self.clock - 1)
        return limit.left(limit.ramp_at(50, elapsed), recent) > 0

    def _end(
        self, running: list[tuple[float, int, bool, bool]], due: list[tuple[float, int]], rng: random.Random
    ) -> None:
        while running and running[0][0] <= self.clock:
            _, job, is_well, is_probe = heapq.heappop(running)
            if is_well:
                self.done += 1
            else:
                wait = backoff.delay_s(self.attempts[job], base_s=2, cap_s=3_600, jitter=rng.uniform(0.5, 1))
                heapq.heappush(due, (self.clock + wait, job))
            self._judge((Probe.SUCCEEDED if is_well else Probe.FAILED) if is_probe else Probe.NONE)

    def _promote(self, due: list[tuple[float, int]], ready: list[int]) -> None:
        left = budget.retries_left(share=0.2, burst=100, firsts=self.firsts, retries=self.retries)
        while due and due[0][0] <= self.clock and left > 0:
            ready.insert(0, heapq.heappop(due)[1])
            self.retries += 1
            left -= 1

    def _judge(self, probe: Probe) -> None:
        since = self.breaker.window_start(RULES, at(self.clock))
        ended = [
            well for began, well in self.calls[-200:] if at(began) >= since and began + 0.05 <= self.clock
        ]
        before = self.breaker
        if before.state is BreakerState.HALF_OPEN and before.has_probe and probe is Probe.NONE:
            probe = Probe.RUNNING
        self.breaker = before.judged(
            RULES, calls=len(ended), failures=ended.count(False), probe=probe, now=at(self.clock)
        )
        if self.breaker.state is BreakerState.OPEN and before.state is not BreakerState.OPEN:
            self.opened.append((self.clock, self.clock + RULES.probe_after_s))


@pytest.fixture(scope="module")
def world() -> World:
    made = World(JOBS, DOWN_S)
    made.run(200)
    return made


def test_calls_are_little_more_than_jobs(world: World) -> None:
    assert world.done == JOBS
    assert len(world.calls) <= 1.2 * JOBS + world.probes
    assert len(world.calls) <= JOBS + 60  # in truth, hardly any: those that were under way when it opened


def test_nobody_dies_of_the_outage(world: World) -> None:
    assert max(world.attempts.values()) < 5


def test_nothing_starts_while_the_breaker_is_open(world: World) -> None:
    assert world.opened
    for since, until in world.opened:
        assert [began for began, _ in world.calls if since < began < until - 1e-3] == []


def test_one_job_probes_every_half_minute(world: World) -> None:
    assert world.probes == len(world.opened) <= DOWN_S / RULES.probe_after_s + 1


def test_starts_ramp_up_from_the_recovery(world: World) -> None:
    recovered = next(began for began, is_well in world.calls if is_well) + 0.05
    starts = Counter(int((began - recovered) // 5) for began, _ in world.calls if began > recovered)
    for step in range(6):
        assert starts[step] <= 5 * 50 * (step + 1) + 50 * (step + 1)
    assert starts[1] > starts[0] > 0


def test_other_work_goes_on_at_its_pace(world: World) -> None:
    """By turns it has half of the workers' time, outage or not: at least 200 of 400 a second."""
    seconds = [world.others[second] for second in range(1, 199)]
    assert min(seconds) >= 0.9 * 200
    assert (
        sum(world.others[second] for second in range(5, 55)) >= 0.99 * 400 * 50
    )  # all of it, while D takes none


# For real


class Stage:
    """Claims, calls and upkeep in threads; other work arrives at a steady pace."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.is_over = False
        self.calls: list[tuple[float, bool]] = []
        self.others: list[float] = []
        self.sent = 0
        self.faults: list[BaseException] = []

    @property
    def second(self) -> float:
        return time.monotonic() - self.began

    def thread(self, work: object, pause_s: float) -> Thread:
        def loop() -> None:
            try:
                while not self.is_over:
                    assert callable(work)
                    work()
                    time.sleep(pause_s)
            except BaseException as error:
                self.faults.append(error)
            finally:
                connections.close_all()

        return Thread(target=loop, daemon=True)

    def work(self) -> None:
        for lease in cast.claim(limit=10, now=None, lease_s=300):
            second = self.second
            if lease.kind == "other":
                cast.complete(lease)
                self.others.append(second)
                continue
            is_well = second >= DOWN_S
            self.calls.append((second, is_well))
            if is_well:
                cast.complete(lease)
            else:
                cast.fail(lease, error_class="overload")

    def arrive(self) -> None:
        wanted = int(self.second * 20)  # twenty a second
        if wanted > self.sent:
            cast.enqueue_many(wanted - self.sent, kind="other", now=None)
            self.sent = wanted

    def keep_up(self) -> None:
        upkeep.promote()
        judging.judge()
        upkeep.fold()
        upkeep.sweep_lanes()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_minute_s_outage_for_real() -> None:
    cast.queue()
    for _ in range(5):
        cast.enqueue_many(1_000, kind="call", dependency="d", now=None)
    stage = Stage()
    threads = [stage.thread(stage.work, 0.02) for _ in range(4)]
    threads += [stage.thread(stage.arrive, 0.05), stage.thread(stage.keep_up, 0.2)]
    for thread in threads:
        thread.start()
    left = JOBS
    while left and stage.second < 600 and not stage.faults:
        time.sleep(1)
        ((left,),) = cast.read(
            "SELECT count(*) FROM queue_job j LEFT JOIN queue_result r ON r.job_id = j.id"
            " WHERE j.kind = 'call' AND r.job_id IS NULL"
        )
    ended = stage.second
    stage.is_over = True
    for thread in threads:
        thread.join(60)
    assert stage.faults == []
    assert left == 0

    failed = [second for second, is_well in stage.calls if not is_well]
    early = [second for second in failed if second < 10]
    print(
        f"{len(stage.calls)} calls, {len(failed)} failed ({len(early)} before it opened), done after {ended:.0f} s"
    )
    assert len(stage.calls) <= 1.2 * JOBS
    assert len(failed) - len(early) <= DOWN_S / 30  # probes
    assert cast.read("SELECT count(*) FROM dlq_deadletter") == [(0,)]
    ((charged,),) = cast.read("SELECT max(attempt) FROM queue_attempt")
    assert charged <= 3
    recovered = next(second for second, is_well in stage.calls if is_well)
    for step in range(3):
        window = (recovered + 5 * step, recovered + 5 * (step + 1))
        starts = sum(window[0] <= second < window[1] for second, _ in stage.calls)
        assert starts <= 5 * 50 * (step + 1) + 50 * (step + 1) + 20
    during = [second for second in stage.others if 5 <= second < 55]
    print(f"others: {len(during) / 50:.1f} of 20 a second during the outage")
    assert len(during) >= 0.9 * 20 * 50
    assert timedelta(seconds=ended) > timedelta(seconds=DOWN_S)
