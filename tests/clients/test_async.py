"""The client and the worker for asyncio, on a running platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jobsplatform_client import (
    AsyncClient,
    AsyncJobContext,
    AsyncWorker,
    BatchIncomplete,
    Client,
    Done,
    JobFilter,
    NewJob,
    Permanent,
    Release,
    Uncertain,
    errors,
)
from tests.clients.conftest import QUICK, Place
from tests.clients.cutter import AFTER, BEFORE, PASS, ReplyCutter, say_give_back

Counter = Callable[[str, str], int]
RESULTS = "SELECT count(*) FROM queue_result r JOIN queue_job j ON j.id = r.job_id WHERE j.kind = %s"
RELEASED = """
    SELECT count(*) FROM queue_attempt a JOIN queue_job j ON j.id = a.job_id
    WHERE a.outcome = 'released' AND j.kind = %s
"""
JOBS = "SELECT count(*) FROM queue_job WHERE kind = %s"


def run(work: Callable[[AsyncClient], Coroutine[Any, Any, None]], place: Place, url: str = "") -> None:
    async def with_client() -> None:
        async with AsyncClient(url or place.url, place.token, retry=QUICK) as client:
            await asyncio.wait_for(work(client), 120)

    asyncio.run(with_client())


def worker_of(client: AsyncClient, **options: Any) -> AsyncWorker:
    return AsyncWorker(client, **({"wait_s": 1, "lease_s": 30, "grace_s": 10} | options))


@asynccontextmanager
async def running(worker: AsyncWorker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run(handle_signals=False))
    try:
        yield
    finally:
        worker.drain()
        await asyncio.wait_for(task, 60)


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    while not await condition():  # the run as a whole is bounded
        await asyncio.sleep(0.05)


def test_enqueues_at_once_through_a_proxy_that_cuts_are_each_made_once(
    place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    plan = iter([BEFORE, AFTER] * 20)
    cutter.choose = lambda method, path: next(plan, PASS)

    async def work(client: AsyncClient) -> None:
        made = await asyncio.gather(*(client.enqueue(place.kind, n, delay_s=3_600) for n in range(40)))
        assert len({one.job_id for one in made}) == 40

    run(work, place, cutter.url)
    assert cutter.cuts == {BEFORE: 20, AFTER: 20}
    assert count(JOBS, place.kind) == 40


def test_jobs_are_listed_looked_at_and_cancelled(place: Place) -> None:
    async def work(client: AsyncClient) -> None:
        made = await client.enqueue_batch(NewJob(place.kind, n, delay_s=3_600) for n in range(3))
        assert {job.job_id async for job in client.jobs(JobFilter(kind=place.kind))} == {
            one.job_id for one in made
        }
        assert (await client.cancel(made[0].job_id)).state == "cancelled"
        assert (await client.result(made[0].job_id)).outcome == "cancelled"
        assert (await client.why(made[1].job_id))["state"] == "scheduled"
        with pytest.raises(BatchIncomplete):
            await client.enqueue_batch([NewJob("NOT A KIND", 1)])

    run(work, place)


def test_a_lease_is_claimed_renewed_and_ended_by_hand(place: Place) -> None:
    async def work(client: AsyncClient) -> None:
        made = [(await client.enqueue(place.kind, n)).job_id for n in range(3)]
        leases = {one.job_id: one for one in (await client.claim(capabilities=[place.kind], limit=3)).leases}
        assert set(leases) == set(made)
        assert not (await client.renew(leases[made[0]], lease_s=60, checkpoint={"page": 1})).cancel_requested
        assert (await client.complete(leases[made[0]], "done")).replayed is False
        assert (await client.fail(leases[made[1]], "permanent", "never")).state == "dead"
        assert (await client.release(leases[made[2]])).state == "ready"
        with pytest.raises(errors.LeaseLost):
            await client.complete(leases[made[2]])

    run(work, place)


def test_completions_through_a_proxy_that_cuts_are_each_made_once(
    client: Client, place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    made = client.enqueue_batch(NewJob(place.kind, n) for n in range(40))
    tried: set[str] = set()
    runs: list[str] = []

    def choose(method: str, path: str) -> str:
        if not path.endswith("/complete") or path in tried:
            return PASS
        tried.add(path)
        return AFTER if len(tried) % 2 else BEFORE

    cutter.choose = choose

    async def work(through: AsyncClient) -> None:
        worker = worker_of(through, concurrency=10, lease_s=120)

        @worker.handler(place.kind)
        async def note(job: AsyncJobContext) -> object:
            runs.append(job.job_id)
            return job.payload

        await worker.run_until_idle()

    run(work, place, cutter.url)
    assert cutter.cuts == {BEFORE: 20, AFTER: 20}
    assert sorted(runs) == sorted(one.job_id for one in made)
    assert count(RESULTS, place.kind) == 40


def test_outcomes_are_those_of_the_threads_worker(client: Client, place: Place) -> None:
    raised = {"dead": Permanent("never"), "scheduled": Release(3_600), "ready": Release()}
    made = {state: client.enqueue(place.kind, state).job_id for state in raised}
    seen: set[str] = set()

    async def work(through: AsyncClient) -> None:
        worker = worker_of(through)

        @worker.handler(place.kind)
        async def end(job: AsyncJobContext) -> object:
            if job.payload in seen:
                raise Release(3_600)
            seen.add(job.payload)
            raise raised[job.payload]

        await worker.run_until_idle()

    run(work, place)
    states = {state: client.job(job_id).state for state, job_id in made.items()}
    assert states == {"dead": "dead", "scheduled": "scheduled", "ready": "scheduled"}


def test_an_uncertain_attempt_is_reconciled(client: Client, place: Place) -> None:
    made = client.enqueue(place.kind, 1)

    async def work(through: AsyncClient) -> None:
        worker = worker_of(through)

        @worker.handler(place.kind)
        async def act(job: AsyncJobContext) -> object:
            await job.checkpoint({"sent": True})
            raise Uncertain("no answer", retry_after_s=0)

        @worker.reconciler(place.kind)
        async def look(job: AsyncJobContext) -> object:
            return Done(job.checkpoint_data)

        async def has_ended() -> bool:
            return (await through.job(made.job_id)).state == "succeeded"

        async with running(worker):
            await until(has_ended)

    run(work, place)
    assert client.result(made.job_id).result == {"sent": True}


@pytest.mark.parametrize("has_reconciler", [False, True])
def test_without_a_clear_answer_a_handler_does_not_act(
    client: Client, place: Place, has_reconciler: bool
) -> None:
    made, calls = client.enqueue(place.kind, 1, max_attempts=2), []

    async def work(through: AsyncClient) -> None:
        worker = worker_of(through)

        @worker.handler(place.kind)
        async def act(job: AsyncJobContext) -> object:
            calls.append(job.reconcile)
            raise Uncertain("no answer", retry_after_s=0)

        async def look(job: AsyncJobContext) -> None:
            return None

        if has_reconciler:
            worker.reconciler(place.kind)(look)

        async def has_ended() -> bool:
            return (await through.job(made.job_id)).state == "dead"

        async with running(worker):
            await until(has_ended)

    run(work, place)
    assert (client.job(made.job_id).dead_reason, calls) == ("uncertain", [False])


def test_a_handler_whose_lease_is_lost_is_cancelled(client: Client, place: Place) -> None:
    made = client.enqueue(place.kind, 1)
    ended = asyncio.Event()

    async def work(through: AsyncClient) -> None:
        worker = worker_of(through, lease_s=3)

        @worker.handler(place.kind)
        async def lose(job: AsyncJobContext) -> object:
            await through.complete(job._held.lease, "by another hand")
            try:
                await asyncio.sleep(100)
            finally:
                ended.set()
            return "too late"

        async with running(worker):
            await ended.wait()

    run(work, place)
    assert client.result(made.job_id).result == "by another hand"


def test_a_drain_gives_back_what_outlasts_the_grace(client: Client, place: Place) -> None:
    made = client.enqueue(place.kind, 1)

    async def work(through: AsyncClient) -> None:
        worker, begun = worker_of(through, grace_s=0.3), asyncio.Event()

        @worker.handler(place.kind)
        async def stay(job: AsyncJobContext) -> object:
            begun.set()
            await asyncio.sleep(100)
            return None

        async with running(worker):
            await begun.wait()

    run(work, place)
    job = client.job(made.job_id)
    assert (job.state, job.attempts_used) == ("ready", 0)


def test_prefetched_leases_that_have_not_begun_come_back_at_a_drain(client: Client, place: Place) -> None:
    made = [client.enqueue(place.kind, n).job_id for n in range(4)]

    async def work(through: AsyncClient) -> None:
        worker, begun = worker_of(through, concurrency=1, prefetch=3), asyncio.Event()

        @worker.handler(place.kind)
        async def wait(job: AsyncJobContext) -> object:
            begun.set()
            while not job.worker_ending:
                await asyncio.sleep(0.02)
            return "finished"

        async with running(worker):
            await begun.wait()

            async def all_are_held() -> bool:
                return [(await through.job(one)).state for one in made] == ["running"] * 4

            await until(all_are_held)

    run(work, place)
    assert [client.job(one).state for one in made] == ["succeeded", "ready", "ready", "ready"]


def test_what_has_not_begun_goes_back_when_urgent_work_waits(
    client: Client, place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    cutter.change = say_give_back
    client.enqueue_batch(NewJob(place.kind, n) for n in range(3))

    async def work(through: AsyncClient) -> None:
        worker, free = worker_of(through, concurrency=1, prefetch=2, lease_s=3), asyncio.Event()

        @worker.handler(place.kind)
        async def wait(job: AsyncJobContext) -> object:
            return await free.wait()

        async def have_gone_back() -> bool:
            return count(RELEASED, place.kind) >= 2

        async def are_done() -> bool:
            return count(RESULTS, place.kind) == 3

        async with running(worker):
            await until(have_gone_back)
            free.set()
            await until(are_done)

    run(work, place, cutter.url)
    assert [job.attempts_used for job in client.jobs(JobFilter(kind=place.kind))] == [1, 1, 1]


def test_a_token_that_is_refused_ends_the_worker(place: Place) -> None:
    async def work() -> None:
        async with AsyncClient(place.url, "jp_1_wrong") as stranger:
            worker = AsyncWorker(stranger)

            @worker.handler(place.kind)
            async def nothing(job: AsyncJobContext) -> object:
                return None

            with pytest.raises(errors.Unauthenticated):
                await worker.run(handle_signals=False)

    asyncio.run(work())


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), SystemExit(3)], ids=["cancelled", "exit"])
def test_an_end_that_a_handler_brings_along_fails_the_job_alone(place: Place, raised: BaseException) -> None:
    """A task that a handler awaited was cancelled: nobody cancelled the handler."""

    async def work(client: AsyncClient) -> None:
        worker = worker_of(client)

        @worker.handler(place.kind)
        async def end(job: AsyncJobContext) -> object:
            raise raised

        made = await client.enqueue(place.kind, 1)
        await worker.run_until_idle()
        job = await client.job(made.job_id)
        assert (job.state, job.attempts_used) == ("scheduled", 1)
        assert job.members["last_error"]["error_class"] == "transient"

    run(work, place)
