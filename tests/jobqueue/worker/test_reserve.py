"""`--reserve`: threads that only urgent work may use."""

from __future__ import annotations

import threading
from collections import Counter, deque

import pytest

from jobqueue.worker.options import WorkerOptions
from jobqueue.worker.reserve import Reserve, Slots
from jobqueue.worker.verbs import DatabaseVerbs
from jobsplatform.errors import Unavailable
from tests import cast
from tests.jobqueue.worker.fake import FakeQueue, Rig


def test_other_work_never_fills_the_threads_kept() -> None:
    gate = threading.Event()
    with Rig(handlers={"slow": lambda job: gate.wait(5)}, concurrency=4, reserved=2) as rig:
        rig.queue.add(10, "slow", priority=3)
        rig.until(lambda: len(rig.held) == 2)
        rig.queue.add(5, "slow", first_id=100, priority=0)
        rig.until(lambda: len(rig.held) == 4)
        held = Counter(lease.priority for lease in rig.queue.live.values())
        assert held == {3: 2, 0: 2}
        gate.set()
        rig.until(lambda: rig.queue.done() == 15)


def test_urgent_work_may_use_every_thread() -> None:
    gate = threading.Event()
    with Rig(handlers={"slow": lambda job: gate.wait(5)}, concurrency=4, reserved=2) as rig:
        rig.queue.add(9, "slow", priority=0)
        rig.until(lambda: len(rig.held) == 4)
        gate.set()
        rig.until(lambda: rig.queue.done() == 9)


def test_a_claim_that_fails_does_not_lose_the_one_before_it() -> None:
    queue = FakeQueue()
    queue.add(1, priority=0)
    queue.failures["claim"] = deque([Unavailable("away"), Unavailable("away")])
    reserve = Reserve(queue, 4, 2)
    assert [lease.job_id for lease in reserve.claim(4, [])] == [1]
    with pytest.raises(Unavailable):
        reserve.claim(3, [1])


def test_threads_are_free_again_when_their_jobs_are_gone() -> None:
    queue = FakeQueue()
    reserve = Reserve(queue, 3, 1)
    queue.add(2, priority=0)
    assert len(reserve.claim(1, [])) == 1
    assert reserve.claim(1, [1]) != []  # the other urgent job runs on a thread for any work
    queue.add(2, first_id=10, priority=0)
    assert [lease.job_id for lease in reserve.claim(2, [2])] == [10, 11]


@pytest.mark.django_db
def test_claims_for_the_threads_kept_take_the_band_and_more_urgent_ones_of_every_queue() -> None:
    letters = cast.queue("letters", preset="hnl")
    plain = cast.queue("plain", preset="high-normal")
    wanted = {cast.enqueue(now=None, priority=0), cast.enqueue(now=None, priority=1)}
    for queue, priority in ((None, 2), (letters, 1), (plain, 0)):
        cast.enqueue(now=None, queue=queue, priority=priority)
    verbs = DatabaseVerbs(WorkerOptions(reserve=Slots("P1", 2)), ["noop"], "w")
    assert {lease.job_id for lease in verbs.claim_urgent(10)} == wanted
    by_index = DatabaseVerbs(WorkerOptions(reserve=Slots("0", 2)), ["noop"], "w")
    assert [lease.queue_id for lease in by_index.claim_urgent(10)] == [plain.id]
