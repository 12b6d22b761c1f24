"""Enqueueing by the client on a running platform: once, whatever becomes of the calls."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from jobsplatform_client import BatchIncomplete, Client, JobFilter, NewJob, Retry, Unreachable, errors
from tests.clients.conftest import Place
from tests.clients.cutter import AFTER, BEFORE, PASS, ReplyCutter

JOBS = "SELECT count(*) FROM queue_job WHERE kind = %s"
Counter = Callable[[str, str], int]


def test_a_job_comes_back_as_it_was_asked_for(client: Client, place: Place) -> None:
    made = client.enqueue(place.kind, {"to": ["a", 1.5, None]}, priority=1, max_attempts=2, delay_s=3_600)
    job = client.job(made.job_id, include_payload=True)
    assert (job.kind, job.priority, job.state) == (place.kind, 1, "scheduled")
    assert job.members["payload"] == {"to": ["a", 1.5, None]}
    assert job.request_key == made.request_key


def test_the_payload_null_is_a_payload(client: Client, place: Place) -> None:
    job = client.job(client.enqueue(place.kind, None).job_id, include_payload=True)
    assert job.members["payload"] is None


def test_the_same_key_is_the_same_job(client: Client, place: Place) -> None:
    first = client.enqueue(place.kind, 1, request_key=f"{place.kind}-one")
    second = client.enqueue(place.kind, 1, request_key=f"{place.kind}-one")
    assert (second.job_id, first.replayed, second.replayed) == (first.job_id, False, True)


def test_another_payload_under_the_same_key_is_a_typed_conflict(client: Client, place: Place) -> None:
    first = client.enqueue(place.kind, 1, request_key=f"{place.kind}-one")
    with pytest.raises(errors.RequestKeyConflict) as refused:
        client.enqueue(place.kind, 2, request_key=f"{place.kind}-one")
    assert refused.value.job_id == first.job_id
    assert not refused.value.is_outcome_unknown


def test_a_refusal_names_the_place(client: Client) -> None:
    with pytest.raises(errors.Invalid) as refused:
        client.enqueue("NOT A KIND", 1)
    assert [fault.pointer for fault in refused.value.faults] == ["/kind"]


def test_a_wrong_token_is_told_at_once(place: Place) -> None:
    with Client(place.url, "jp_1_wrong") as stranger, pytest.raises(errors.Unauthenticated) as refused:
        stranger.enqueue(place.kind, 1)
    assert refused.value.tries == 1


def test_a_naive_instant_is_refused_before_it_is_sent(client: Client, place: Place) -> None:
    with pytest.raises(ValueError, match="time zone"):
        client.enqueue(place.kind, 1, not_before=datetime(2035, 1, 1))
    client.enqueue(place.kind, 1, not_before=datetime(2035, 1, 1, tzinfo=UTC))


def test_a_batch_larger_than_a_call_is_several_calls(
    place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    with place.client(url=cutter.url) as client:
        made = client.enqueue_batch(NewJob(place.kind, number, delay_s=3_600) for number in range(1_100))
    assert len({one.job_id for one in made}) == count(JOBS, place.kind) == 1_100
    assert cutter.calls == ["POST /v1/jobs/batch"] * 2


def test_a_batch_tells_what_was_accepted_and_what_was_not(client: Client, place: Place) -> None:
    jobs = [NewJob(place.kind, 1), NewJob("NOT A KIND", 1), NewJob(place.kind, 2)]
    with pytest.raises(BatchIncomplete) as refused:
        client.enqueue_batch(jobs)
    assert [type(one).__name__ for one in refused.value.outcomes] == ["Accepted", "Invalid", "Accepted"]


def test_an_empty_batch_calls_nobody(place: Place, cutter: ReplyCutter) -> None:
    with place.client(url=cutter.url) as client:
        assert client.enqueue_batch([]) == []
    assert cutter.calls == []


def test_a_list_is_read_to_its_end(client: Client, place: Place) -> None:
    made = client.enqueue_batch(NewJob(place.kind, number, delay_s=3_600) for number in range(250))
    listed = [job.job_id for job in client.jobs(JobFilter(kind=place.kind))]
    assert sorted(listed) == sorted(one.job_id for one in made)
    assert len(set(listed)) == 250


def test_a_waiting_job_is_cancelled_once(client: Client, place: Place) -> None:
    made = client.enqueue(place.kind, 1)
    assert client.cancel(made.job_id).state == "cancelled"
    assert client.result(made.job_id).outcome == "cancelled"
    with pytest.raises(errors.AlreadyFinished):
        client.cancel(made.job_id)


def test_a_cancel_whose_answer_was_lost_is_no_conflict(place: Place, cutter: ReplyCutter) -> None:
    with place.client(url=cutter.url) as client:
        made = client.enqueue(place.kind, 1)
        cuts = iter([AFTER])
        cutter.choose = lambda method, path: next(cuts, PASS) if path.endswith("/cancel") else PASS
        assert client.cancel(made.job_id).state == "cancelled"


# Lost calls and answers


def enqueue_through_cuts(place: Place, cutter: ReplyCutter, count: Counter, jobs: int) -> None:
    """Each call's first try is lost, before the platform sees it or after it has committed, and some again."""
    chance = random.Random(jobs)
    plans = itertools.chain.from_iterable(
        [[BEFORE], [AFTER], [AFTER, BEFORE], [BEFORE, AFTER]][number % 4] + [PASS] for number in range(jobs)
    )
    cutter.choose = lambda method, path: next(plans)
    with place.client(url=cutter.url) as client:
        made = [
            client.enqueue(place.kind, {"n": chance.random()}, delay_s=86_400).job_id for _ in range(jobs)
        ]
    assert cutter.cuts[BEFORE] + cutter.cuts[AFTER] == jobs * 3 // 2
    assert len(set(made)) == jobs
    assert count(JOBS, place.kind) == jobs


def test_enqueues_through_a_proxy_that_cuts_are_each_made_once(
    place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    enqueue_through_cuts(place, cutter, count, 40)


@pytest.mark.slow
def test_five_hundred_enqueues_through_a_proxy_that_cuts_are_each_made_once(
    place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    enqueue_through_cuts(place, cutter, count, 500)


def test_a_batch_whose_answer_was_lost_is_made_once(
    place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    plan = iter([AFTER, BEFORE])
    cutter.choose = lambda method, path: next(plan, PASS)
    with place.client(url=cutter.url) as client:
        made = client.enqueue_batch(NewJob(place.kind, number, delay_s=3_600) for number in range(50))
    assert all(one.replayed for one in made)
    assert len({one.job_id for one in made}) == count(JOBS, place.kind) == 50


def test_a_call_that_was_given_up_can_be_repeated_by_its_key(
    place: Place, cutter: ReplyCutter, count: Counter
) -> None:
    cutter.choose = lambda method, path: AFTER
    retry = Retry(give_up_after_s=0.2, first_s=0.1)
    with place.client(url=cutter.url, retry=retry) as client, pytest.raises(Unreachable) as lost:
        client.enqueue(place.kind, 1)
    assert lost.value.is_outcome_unknown
    with place.client() as later:
        assert later.enqueue(place.kind, 1, request_key=lost.value.request_key).replayed
    assert count(JOBS, place.kind) == 1
