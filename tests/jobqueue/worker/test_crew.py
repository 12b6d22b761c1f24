"""Handler threads: every job runs once, whatever the order of adding, sleeping and waking."""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial

from jobqueue.worker.crew import Crew
from tests.jobqueue.worker.fake import make_lease, until


class Idle:
    def save_checkpoint(self, job, text): ...

    def note_done(self, job): ...

    def queue_name(self, queue_id):
        return ""

    def tenant_slug(self, tenant_id):
        return ""


def make_crew(size: int, handler, **options) -> Crew:
    states = memoryview(bytearray(2_048))
    crew = Crew(size, {"k": handler}, states, **({"on_finish": lambda: None, "tidy": lambda: None} | options))
    crew.start()
    return crew


def jobs(count: int, first: int = 0):
    from jobqueue.worker.context import JobContext

    return [JobContext(make_lease(first + n, "k"), (first + n) % 2_048, 0.0, Idle()) for n in range(count)]


def test_every_job_runs_exactly_once_under_many_small_hand_overs() -> None:
    seen: Counter[int] = Counter()
    crew = make_crew(6, lambda job: seen.update([job.lease.job_id]))
    for n in range(600):
        crew.add(jobs(1 + n % 3, n * 3))
        if n % 7 == 0:
            time.sleep(0.0005)
    until(lambda: not crew.queued and len(crew.ended) == sum(1 + n % 3 for n in range(600)))
    assert set(seen.values()) == {1}


def test_a_job_never_waits_for_a_busy_thread_while_another_sleeps() -> None:
    gate = threading.Event()

    def act(job) -> None:
        if job.lease.job_id == 0:
            gate.wait(10)

    crew = make_crew(2, act)
    time.sleep(0.05)
    crew.add(jobs(1))
    for n in range(1, 300):
        crew.add(jobs(1, n))
        until(partial(lambda count: len(crew.ended) == count, n), 1)
    gate.set()


def test_a_queued_job_can_be_taken_back_and_a_started_one_not() -> None:
    gate = threading.Event()
    crew = make_crew(1, lambda job: gate.wait(10))
    first, second, third = jobs(3)
    crew.add([first, second, third])
    until(lambda: crew.running())
    assert not crew.take_back(first)
    assert crew.take_back(second)
    assert crew.take_all_back() == [third]
    gate.set()
    until(lambda: len(crew.ended) == 1)


def test_the_board_shows_a_job_as_running_exactly_while_its_handler_runs() -> None:
    during = []
    states = memoryview(bytearray(2_048))
    crew = Crew(
        1,
        {"k": lambda job: during.append(states[job.place])},
        states,
        on_finish=lambda: None,
        tidy=lambda: None,
    )
    crew.start()
    crew.add(jobs(1, 9))
    until(lambda: crew.ended)
    assert (during, states[9]) == ([1], 2)


def test_a_thread_tidies_up_after_each_failure() -> None:
    tidied: list[int] = []

    def act(job) -> None:
        if job.lease.job_id == 1:
            raise ValueError

    crew: Crew = make_crew(1, act, tidy=lambda: tidied.append(len(crew.ended)))
    crew.add(jobs(100))
    until(lambda: len(crew.ended) == 100)
    assert tidied[0] == 2


def test_idle_threads_tidy_up_after_their_handlers() -> None:
    tidied = threading.Event()
    crew = make_crew(1, lambda job: None, tidy=tidied.set)
    time.sleep(0.02)
    assert not tidied.is_set()
    crew.add(jobs(1))
    assert tidied.wait(1)
