"""When a call is repeated, how long it waits, and what its caller is told: in virtual time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsplatform_client import NewJob, Retry, Unreachable, errors
from jobsplatform_client.exchange import Answer, NoReply, Reply, Request, encode
from tests.clients.virtual import World, accepted, problem

LOST = NoReply(was_sent=True, reason="reset")
NEVER_SENT = NoReply(was_sent=False, reason="refused")
JOB = NewJob("a", 1)


def world_of(*answers: Answer, retry: Retry | None = None) -> World:
    """A platform that answers so, one after the other; then it accepts."""
    script: Iterator[Answer] = iter(answers)
    return World(lambda now, request: next(script, accepted(request)), retry=retry)


def enqueue(world: World) -> World:
    world.begin(world.core.enqueue(JOB))
    return world.run()


def waits(world: World) -> list[float]:
    times = [at for at, _ in world.calls]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.mark.parametrize(
    "answer",
    [
        LOST,
        NEVER_SENT,
        problem(503, "unavailable", retry_after="1"),
        problem(503, "unknown_outcome", retry_after="1"),
        Reply(502, b"<html>bad gateway</html>"),
        problem(429, "queue_full", retry_after="1"),
    ],
    ids=["lost", "never sent", "unavailable", "unknown", "gateway", "full"],
)
def test_what_may_pass_is_repeated_with_the_same_bytes(answer: Answer) -> None:
    world = enqueue(world_of(answer, answer))
    assert len(world.values) == 1
    bodies = {request.body for _, request in world.calls}
    assert (len(world.calls), len(bodies)) == (3, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 415, 422, 500])
def test_what_will_not_pass_is_told_at_once(status: int) -> None:
    world = enqueue(world_of(problem(status, "some_newer_code")))
    (error,) = world.errors
    assert isinstance(error, errors.Refused)
    assert (error.status, error.tries, len(world.calls)) == (status, 1, 1)


def test_every_enqueue_has_a_key_of_its_own() -> None:
    world = world_of()
    for _ in range(2):
        world.begin(world.core.enqueue(JOB))
    world.run()
    keys = [json.loads(request.body or b"")["request_key"] for _, request in world.calls]
    assert len(set(keys)) == 2
    assert all(keys)


def test_a_caller_s_key_is_kept() -> None:
    world = world_of()
    world.begin(world.core.enqueue(NewJob("a", 1, request_key="mine")))
    world.run()
    assert json.loads(world.calls[0][1].body or b"")["request_key"] == "mine"


@given(st.integers(1, 60), st.integers(0, 2**32))
def test_retry_after_is_a_floor(seconds: int, seed: int) -> None:
    answers = iter([problem(429, "rate_limited", retry_after=str(seconds))])
    world = World(lambda now, request: next(answers, accepted(request)), seed=seed)
    (wait,) = waits(enqueue(world))
    assert seconds <= wait <= 1.3 * max(seconds, 1)


def test_a_retry_after_beyond_the_end_is_not_waited_for() -> None:
    retry = Retry(give_up_after_s=10)
    world = enqueue(world_of(problem(429, "queue_full", retry_after="3600"), retry=retry))
    (error,) = world.errors
    assert isinstance(error, errors.QueueFull)
    assert (error.retry_after_s, len(world.calls)) == (3_600, 1)


@given(st.integers(1, 200), st.floats(0.01, 10), st.floats(0.01, 100), st.floats(0, 1))
def test_a_wait_is_within_half_and_all_of_its_bound(
    failures: int, first: float, cap: float, at: float
) -> None:
    retry = Retry(first_s=first, cap_s=cap)
    bound = min(cap, first * 2.0 ** (failures - 1))
    wait = retry.wait_s(failures, lambda low, high: low + (high - low) * at)
    assert bound / 2 * 0.999 <= wait <= bound * 1.001


def test_a_call_is_given_up_in_time() -> None:
    world = World(lambda now, request: LOST, retry=Retry(give_up_after_s=20))
    enqueue(world)
    (error,) = world.errors
    assert isinstance(error, Unreachable)
    assert 10 < world.now <= 20.1


def test_a_lost_answer_leaves_the_outcome_unknown() -> None:
    world = enqueue(World(lambda now, request: LOST, retry=Retry(give_up_after_s=1)))
    (error,) = world.errors
    assert isinstance(error, Unreachable)
    assert error.is_outcome_unknown
    assert error.request_key


@pytest.mark.parametrize("answer", [NEVER_SENT, problem(503, "unavailable")], ids=["refused", "unavailable"])
def test_what_never_reached_the_platform_has_a_known_outcome(answer: Answer) -> None:
    world = enqueue(World(lambda now, request: answer, retry=Retry(give_up_after_s=1)))
    (error,) = world.errors
    assert isinstance(error, errors.JobsPlatformError)
    assert not error.is_outcome_unknown


def test_a_refusal_after_a_lost_answer_does_not_settle_it() -> None:
    world = enqueue(world_of(LOST, problem(401, "unauthenticated")))
    (error,) = world.errors
    assert isinstance(error, errors.Unauthenticated)
    assert error.is_outcome_unknown


def test_a_conflict_after_a_lost_answer_settles_it() -> None:
    world = enqueue(world_of(LOST, problem(409, "request_key_conflict")))
    (error,) = world.errors
    assert isinstance(error, errors.RequestKeyConflict)
    assert not error.is_outcome_unknown


def test_a_success_that_is_not_the_platform_s_is_an_error() -> None:
    world = enqueue(world_of(Reply(200, b"<html>Welcome to the hotel's network</html>")))
    assert [type(error) for error in world.errors] == [errors.NotUnderstood]


# Batches


def batch_of(*rounds: list[int]) -> World:
    """A platform that answers the items of each call with these statuses."""
    script = iter(rounds)
    codes = {429: "queue_full", 503: "unknown_outcome", 400: "invalid"}

    def serve(now: float, request: Request) -> Answer:
        asked = json.loads(request.body or b"")["jobs"]
        statuses = next(script, [201] * len(asked))
        assert len(statuses) == len(asked)
        items = [
            {"status": status, "job_id": f"0-{job['payload']}", "replayed": False}
            if status == 201
            else {"status": status, "problem": {"code": codes[status], "status": status}}
            for status, job in zip(statuses, asked, strict=True)
        ]
        return Reply(200, encode({"results": items}))

    return World(serve, retry=Retry(give_up_after_s=30))


def send_batch(world: World, jobs: int) -> World:
    world.begin(world.core.enqueue_batch([NewJob("a", number) for number in range(jobs)]))
    return world.run()


def test_only_the_open_items_of_a_batch_are_sent_again() -> None:
    world = send_batch(batch_of([201, 503, 201, 429], [201, 429], [201]), 4)
    sent = [[job["payload"] for job in json.loads(request.body or b"")["jobs"]] for _, request in world.calls]
    assert sent == [[0, 1, 2, 3], [1, 3], [3]]
    assert [one.job_id for one in world.values[0]] == ["0-0", "0-1", "0-2", "0-3"]


def test_an_item_keeps_its_key_through_all_calls() -> None:
    world = send_batch(batch_of([503, 503], [201, 503], [201]), 2)
    keys = [
        (job["payload"], job["request_key"])
        for _, request in world.calls
        for job in json.loads(request.body or b"")["jobs"]
    ]
    assert len(set(keys)) == 2


def test_an_item_that_stays_open_is_told_as_what_it_is() -> None:
    world = send_batch(batch_of(*[[201, 429, 400]], *[[429]] * 100), 3)
    (error,) = world.errors
    assert isinstance(error, errors.BatchIncomplete)
    names = [type(one).__name__ for one in error.outcomes]
    assert names == ["Accepted", "QueueFull", "Invalid"]
    assert error.outcomes[1].request_key


# The platform is away


def outage(callers: int, seconds: float, *, later: int = 0, seed: int = 0) -> World:
    """It is down from the beginning, for so long; `later` callers come one after the other meanwhile."""
    world = World(lambda now, request: accepted(request) if now >= seconds else LOST, seed=seed)
    for _ in range(callers):
        world.begin(world.core.enqueue(JOB))
    for number in range(later):
        world.begin(world.core.enqueue(JOB), at=seconds * number / later)
    return world.run()


ROUNDS_30_S = 14  # 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 s at the least, then at least 5 s each


@given(st.integers(0, 2**32))
def test_a_caller_makes_few_calls_while_the_platform_is_down(seed: int) -> None:
    world = outage(1, 30, seed=seed)
    assert len(world.values) == 1
    assert 5 <= sum(at < 30 for at, _ in world.calls) <= ROUNDS_30_S


@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_callers_are_no_louder_than_one(seed: int) -> None:
    world = outage(100, 30, seed=seed)
    assert (len(world.values), world.errors) == (100, [])
    assert sum(at < 30 for at, _ in world.calls) <= 100 + ROUNDS_30_S  # 100 were under way when it began


@pytest.mark.parametrize("seed", range(5))
def test_callers_that_come_during_an_outage_wait_without_a_call(seed: int) -> None:
    world = outage(1, 30, later=1_000, seed=seed)
    assert (len(world.values), world.errors) == (1_001, [])
    assert sum(at < 30 for at, _ in world.calls) <= ROUNDS_30_S + 10  # those before the first answer


@pytest.mark.parametrize("seed", range(5))
def test_the_callers_return_soon_after_the_platform_and_not_all_at_once(seed: int) -> None:
    world = outage(100, 30, seed=seed)
    after = [at for at, _ in world.calls if at >= 30]
    assert max(after) < 30 + 2 * Retry().cap_s * 1.25
    busiest = max(sum(start <= at < start + 0.1 for at in after) for start in after)
    assert busiest < 50


def test_a_paused_intake_holds_back_nobody_else() -> None:
    def serve(now: float, request: Request) -> Answer:
        if b'"paused"' in (request.body or b""):
            content = {"code": "unavailable", "status": 503, "reason": "intake_paused"}
            return Reply(503, encode(content), {"retry-after": "5"})
        return accepted(request)

    world = World(serve, retry=Retry(give_up_after_s=60))
    world.begin(world.core.enqueue(NewJob("a", 1, queue="paused")))
    for number in range(50):
        world.begin(world.core.enqueue(NewJob("a", number, queue="open")), at=1 + number)
    world.run()
    sent = [at for at, request in world.calls if b'"open"' in (request.body or b"")]
    assert sent == [1.0 + number for number in range(50)]
    assert [type(error) for error in world.errors] == [errors.Unavailable]
