"""The client's worker for threads, on a running platform."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from jobsplatform_client import (
    Client,
    Done,
    JobContext,
    JobFilter,
    LeaseLost,
    NewJob,
    NotDone,
    Permanent,
    Release,
    StillUnknown,
    Transient,
    Uncertain,
    Worker,
    errors,
)
from tests.chaos.harness import ROOT, until
from tests.clients.conftest import Place
from tests.clients.cutter import AFTER, BEFORE, PASS, ReplyCutter, say_give_back

Counter = Callable[[str, str], int]

SUCCEEDED = """
    SELECT count(*) FROM queue_attempt a JOIN queue_job j ON j.id = a.job_id
    WHERE a.outcome = 'succeeded' AND j.kind = %s
"""
ATTEMPTS = "SELECT count(*) FROM queue_attempt a JOIN queue_job j ON j.id = a.job_id WHERE j.kind = %s"
RESULTS = "SELECT count(*) FROM queue_result r JOIN queue_job j ON j.id = r.job_id WHERE j.kind = %s"


@contextmanager
def running(worker: Worker) -> Iterator[threading.Thread]:
    """A worker at work beside the test; drained at the end."""
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        worker.drain()
        thread.join(30)
        assert not thread.is_alive(), "the worker did not end"


def worker_of(client: Client, **options: object) -> Worker:
    return Worker(client, **({"wait_s": 1, "lease_s": 30, "grace_s": 10} | options))  # type: ignore[arg-type]


def test_what_a_handler_returns_is_the_result(client: Client, place: Place) -> None:
    worker = worker_of(client)

    @worker.handler(place.kind)
    def double(job: JobContext) -> object:
        return {"twice": job.payload["n"] * 2}

    made = [client.enqueue(place.kind, {"n": number}) for number in range(20)]
    worker.run_until_idle()
    assert [client.result(one.job_id).result for one in made] == [{"twice": n * 2} for n in range(20)]


@pytest.mark.parametrize(
    ("raised", "state", "reason"),
    [
        (Permanent("no address"), "dead", "invalid"),
        (Transient("later", retry_after_s=3_600), "scheduled", None),
        (ValueError("a bug"), "scheduled", None),
        (Release(3_600.5), "scheduled", None),
        (Uncertain("no answer", retry_after_s=3_600), "scheduled", None),
    ],
    ids=["permanent", "transient", "bug", "release", "uncertain"],
)
def test_what_a_handler_raises_decides(
    client: Client, place: Place, raised: Exception, state: str, reason: str | None
) -> None:
    worker = worker_of(client)

    @worker.handler(place.kind)
    def fail(job: JobContext) -> object:
        raise raised

    made = client.enqueue(place.kind, 1)
    worker.run_until_idle()
    job = client.job(made.job_id)
    assert (job.state, job.dead_reason) == (state, reason)
    assert job.attempts_used == (0 if isinstance(raised, Release) else 1)


def test_a_result_that_is_no_json_is_a_dead_letter(client: Client, place: Place) -> None:
    worker = worker_of(client)
    worker.handler(place.kind)(lambda job: {1, 2})
    made = client.enqueue(place.kind, 1)
    worker.run_until_idle()
    job = client.job(made.job_id)
    assert job.state == "dead"
    assert "invalid_result" in job.members["last_error"]["message"]


def test_a_result_that_is_too_large_is_a_dead_letter(client: Client, place: Place) -> None:
    worker = worker_of(client)
    worker.handler(place.kind)(lambda job: "x" * 200_000)
    made = client.enqueue(place.kind, 1)
    worker.run_until_idle()
    assert client.job(made.job_id).state == "dead"


def test_a_handler_that_runs_longer_than_the_lease_keeps_it(
    client: Client, place: Place, count: Counter
) -> None:
    worker = worker_of(client, lease_s=2)

    @worker.handler(place.kind)
    def slow(job: JobContext) -> object:
        time.sleep(5)
        return job.lease_lost

    made = client.enqueue(place.kind, 1)
    worker.run_until_idle()
    assert client.result(made.job_id).result is False
    assert count(ATTEMPTS, place.kind) == 1


def test_a_checkpoint_reaches_the_next_attempt(client: Client, place: Place) -> None:
    worker = worker_of(client)

    @worker.handler(place.kind)
    def go_on(job: JobContext) -> object:
        if job.checkpoint_data is None:
            job.checkpoint({"page": 7})
            raise Release
        return [job.checkpoint_data["page"], job.generation]

    made = client.enqueue(place.kind, 1)
    worker.run_until_idle()
    assert client.result(made.job_id).result == [7, 2]


def test_a_cancel_is_seen_while_the_handler_runs(client: Client, place: Place) -> None:
    worker = worker_of(client, lease_s=3)
    begun = threading.Event()

    @worker.handler(place.kind)
    def stop_when_asked(job: JobContext) -> object:
        begun.set()
        until(lambda: job.cancelled, 30)
        raise Release

    made = client.enqueue(place.kind, 1)
    with running(worker):
        assert begun.wait(30)
        assert client.cancel(made.job_id).cancel_requested
        until(lambda: client.job(made.job_id).state == "cancelled", 30)


def test_a_checkpoint_of_a_lost_lease_says_so(client: Client, place: Place) -> None:
    worker = worker_of(client)
    seen: list[bool] = []

    @worker.handler(place.kind)
    def lose(job: JobContext) -> object:
        client.complete(job._held.lease, "by another hand")
        with pytest.raises(LeaseLost):
            job.checkpoint(1)
        seen.append(job.lease_lost)
        return "too late"

    made = client.enqueue(place.kind, 1)
    worker.run_until_idle()
    assert seen == [True]
    assert client.result(made.job_id).result == "by another hand"


# Reconciling


def reconciling(client: Client, place: Place, look: Callable[[JobContext], object]) -> tuple[str, list[str]]:
    """A job whose first attempt is uncertain; what it became, and what was called in which order."""
    worker, calls = worker_of(client), []

    @worker.handler(place.kind)
    def act(job: JobContext) -> object:
        calls.append("act")
        if not job.reconcile:
            raise Uncertain("the receiver did not answer", retry_after_s=0)
        return "acted again"

    @worker.reconciler(place.kind)
    def reconcile(job: JobContext) -> object:
        calls.append("look")
        return look(job)

    made = client.enqueue(place.kind, 1)
    with running(worker):
        until(lambda: client.job(made.job_id).state in ("succeeded", "dead"), 60)
    return made.job_id, calls


def test_an_effect_that_has_happened_is_not_repeated(client: Client, place: Place) -> None:
    job_id, calls = reconciling(client, place, lambda job: Done("found"))
    assert (client.result(job_id).result, calls) == ("found", ["act", "look"])


def test_an_effect_that_has_not_happened_is_made(client: Client, place: Place) -> None:
    job_id, calls = reconciling(client, place, lambda job: NotDone())
    assert (client.result(job_id).result, calls) == ("acted again", ["act", "look", "act"])


def test_a_reconciler_that_breaks_leaves_the_job_uncertain(client: Client, place: Place) -> None:
    tries = iter([True])

    def look(job: JobContext) -> object:
        if next(tries, False):
            raise RuntimeError("the receiver is away")
        return Done("found")

    job_id, calls = reconciling(client, place, look)
    assert (client.result(job_id).result, calls) == ("found", ["act", "look", "look"])


@pytest.mark.parametrize("answer", [None, {"charged": True}, StillUnknown("the books are closed", 0)])
def test_without_a_clear_answer_the_handler_does_not_act(
    client: Client, place: Place, answer: object
) -> None:
    answers = iter([answer])
    job_id, calls = reconciling(client, place, lambda job: next(answers, Done("found")))
    assert (client.result(job_id).result, calls) == ("found", ["act", "look", "look"])


def test_a_reconciler_that_raises_permanent_knows_nothing(client: Client, place: Place) -> None:
    answers = iter([Permanent("no such charge")])

    def look(job: JobContext) -> object:
        for error in answers:
            raise error
        return Done("found")

    job_id, calls = reconciling(client, place, look)
    assert (client.result(job_id).result, calls) == ("found", ["act", "look", "look"])


def test_without_a_reconciler_an_uncertain_job_is_not_acted_upon_again(client: Client, place: Place) -> None:
    worker, calls = worker_of(client), []

    @worker.handler(place.kind)
    def act(job: JobContext) -> object:
        calls.append(job.reconcile)
        raise Uncertain("the receiver did not answer", retry_after_s=0)

    made = client.enqueue(place.kind, 1, max_attempts=2)
    with running(worker):
        until(lambda: client.job(made.job_id).state in ("succeeded", "dead"), 60)
    job = client.job(made.job_id)
    assert (job.state, job.dead_reason, calls) == ("dead", "uncertain", [False])


# Prefetched leases


def test_a_prefetched_job_is_begun_before_its_handler_runs(
    client: Client, place: Place, cutter: ReplyCutter
) -> None:
    with place.client(url=cutter.url) as through:
        worker = worker_of(through, concurrency=1, prefetch=4)
        worker.handler(place.kind)(lambda job: [call for call in cutter.calls if job.job_id in call])
        made = [client.enqueue(place.kind, number) for number in range(5)]
        worker.run_until_idle()
    for one in made:
        assert client.result(one.job_id).result == [f"POST /v1/jobs/{one.job_id}/renew"]


def test_what_was_prefetched_and_not_begun_is_given_back_by_a_drain(client: Client, place: Place) -> None:
    worker = worker_of(client, concurrency=1, prefetch=4)
    begun, free = threading.Event(), threading.Event()

    @worker.handler(place.kind)
    def wait(job: JobContext) -> object:
        begun.set()
        return free.wait(30)

    made = [client.enqueue(place.kind, number) for number in range(5)]
    with running(worker):
        assert begun.wait(30)
        until(lambda: [client.job(one.job_id).state for one in made] == ["running"] * 5, 30)
        worker.drain()
        until(lambda: [client.job(one.job_id).state for one in made[1:]] == ["ready"] * 4, 30)
        free.set()
    assert client.job(made[0].job_id).state == "succeeded"
    assert [client.job(one.job_id).attempts_used for one in made[1:]] == [0] * 4


RELEASED = """
    SELECT count(*) FROM queue_attempt a JOIN queue_job j ON j.id = a.job_id
    WHERE a.outcome = 'released' AND j.kind = %s
"""


def test_what_has_not_begun_goes_back_when_urgent_work_waits(
    client: Client, place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    cutter.change = say_give_back
    free = threading.Event()
    client.enqueue_batch(NewJob(place.kind, number) for number in range(3))
    with place.client(url=cutter.url) as through:
        worker = worker_of(through, concurrency=1, prefetch=2, lease_s=3)
        worker.handler(place.kind)(lambda job: free.wait(60))
        with running(worker):
            until(lambda: count(RELEASED, place.kind) >= 2, 60)
            free.set()
            until(lambda: count(RESULTS, place.kind) == 3, 60)
    assert count(SUCCEEDED, place.kind) == 3
    assert [job.attempts_used for job in client.jobs(JobFilter(kind=place.kind))] == [1, 1, 1]


# Ending


def test_a_drain_waits_for_what_runs(client: Client, place: Place) -> None:
    worker = worker_of(client)
    begun = threading.Event()

    @worker.handler(place.kind)
    def finish(job: JobContext) -> object:
        begun.set()
        until(lambda: job.worker_ending, 30)
        return "finished"

    made = client.enqueue(place.kind, 1)
    with running(worker):
        assert begun.wait(30)
        worker.drain()
    assert client.result(made.job_id).result == "finished"


def test_what_still_runs_after_the_grace_is_given_back_uncharged(client: Client, place: Place) -> None:
    worker = worker_of(client, grace_s=0.5)
    begun, free = threading.Event(), threading.Event()

    @worker.handler(place.kind)
    def stay(job: JobContext) -> object:
        begun.set()
        return free.wait(60)

    made = client.enqueue(place.kind, 1)
    with running(worker):
        assert begun.wait(30)
    job = client.job(made.job_id)
    free.set()
    assert (job.state, job.attempts_used) == ("ready", 0)


THREADS = """
    import sys, time
    from jobsplatform_client import Client, Worker

    worker = Worker(Client(sys.argv[1], sys.argv[2]), wait_s=1, grace_s=20)

    @worker.handler(sys.argv[3])
    def finish(job):
        print("begun", flush=True)
        while not job.worker_ending:
            time.sleep(0.05)
        return "finished"

    worker.run()
    print("ended", flush=True)
"""


TASKS = """
    import asyncio, sys
    from jobsplatform_client import AsyncClient, AsyncWorker

    async def main():
        worker = AsyncWorker(AsyncClient(sys.argv[1], sys.argv[2]), wait_s=1, grace_s=20)

        @worker.handler(sys.argv[3])
        async def finish(job):
            print("begun", flush=True)
            while not job.worker_ending:
                await asyncio.sleep(0.05)
            return "finished"

        await worker.run()
        print("ended", flush=True)

    asyncio.run(main())
"""


@pytest.mark.parametrize("script", [THREADS, TASKS], ids=["threads", "tasks"])
def test_sigterm_drains_a_worker_s_process(client: Client, place: Place, script: str) -> None:
    made = client.enqueue(place.kind, 1)
    path = {"PYTHONPATH": str(ROOT / "clients" / "python" / "src"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", textwrap.dedent(script), place.url, place.token, place.kind]
    with subprocess.Popen(command, env=path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert process.stdout.read() == "ended\n"
        finally:
            process.kill()
    assert client.result(made.job_id).result == "finished"


def test_a_token_that_is_refused_ends_the_worker(place: Place) -> None:
    with Client(place.url, "jp_1_wrong") as stranger:
        worker = Worker(stranger)
        worker.handler(place.kind)(lambda job: None)
        with pytest.raises(errors.Unauthenticated):
            worker.run()


def test_a_kind_has_one_handler(client: Client) -> None:
    worker = Worker(client)
    worker.handler("one")(lambda job: None)
    with pytest.raises(ValueError, match="has a handler already"):
        worker.handler("one")(lambda job: None)


def test_an_async_handler_is_refused(client: Client) -> None:
    async def handler(job: JobContext) -> object:
        return None

    with pytest.raises(TypeError, match="AsyncWorker"):
        Worker(client).handler("one")(handler)


# Lost calls and answers


def complete_through_cuts(
    client: Client, place: Place, cutter: ReplyCutter, count: Counter, jobs: int
) -> None:
    """Every completion's first try is lost, before the platform sees it or after it has committed."""
    tried: set[str] = set()
    runs: list[str] = []

    def choose(method: str, path: str) -> str:
        if not path.endswith("/complete") or path in tried:
            return PASS
        tried.add(path)
        return AFTER if len(tried) % 2 else BEFORE

    cutter.choose = choose
    made = client.enqueue_batch(NewJob(place.kind, number) for number in range(jobs))
    with place.client(url=cutter.url) as through:
        worker = worker_of(through, concurrency=4, lease_s=120)
        worker.handler(place.kind)(lambda job: runs.append(job.job_id))
        with running(worker):
            until(lambda: count(RESULTS, place.kind) == jobs, 60 + jobs)
    assert sorted(cutter.cuts.values()) == [jobs // 2, jobs // 2]
    assert sorted(runs) == sorted(one.job_id for one in made)
    assert count(SUCCEEDED, place.kind) == count(RESULTS, place.kind) == count(ATTEMPTS, place.kind) == jobs


def test_completions_through_a_proxy_that_cuts_are_each_made_once(
    client: Client, place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    complete_through_cuts(client, place, cutter, count, 40)


@pytest.mark.slow
def test_five_hundred_completions_through_a_proxy_that_cuts_are_each_made_once(
    client: Client, place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    complete_through_cuts(client, place, cutter, count, 500)


def test_claims_whose_answers_are_lost_bring_the_same_leases(
    client: Client, place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    numbers = iter(range(1_000))
    cutter.choose = lambda method, path: AFTER if path.endswith("/claim") and next(numbers) % 2 == 0 else PASS
    made = client.enqueue_batch(NewJob(place.kind, number) for number in range(20))
    with place.client(url=cutter.url) as through:
        worker = worker_of(through, concurrency=2)
        worker.handler(place.kind)(lambda job: None)
        worker.run_until_idle()
    assert {client.job(one.job_id).state for one in made} == {"succeeded"}
    assert count(ATTEMPTS, place.kind) == 20
