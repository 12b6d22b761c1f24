"""Why a job waits: each gate, its place in line under the policy, and a start range that the pace justifies."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobqueue import policies, upkeep
from jobqueue import why as module
from jobqueue.ids import format_id
from jobqueue.types import FLEET, Gate, Scope
from jobqueue.why import Why
from jobsplatform.errors import NotFound
from tenants import registry
from tests import cast
from tests.cast import OPS, at

pytestmark = pytest.mark.django_db


def why(job_id: int, *, seconds: float = 1, scope: Scope = FLEET) -> Why:
    return module.why(job_id, scope=scope, now=at(seconds))


def names(answer: Why) -> list[str]:
    return [gate.gate for gate in answer.gates]


def gate(answer: Why, name: str) -> Gate:
    (found,) = [one for one in answer.gates if one.gate == name]
    return found


def ask(**asked: Any) -> None:
    """A worker asks and finds nothing."""
    assert cast.claim(**({"now": at(0)} | asked)) == []


# Gates


def test_nothing_holds_the_next_one() -> None:
    ask()
    job_id = cast.enqueue()
    assert why(job_id) == Why(
        "ready", (Gate("none", "Nothing holds it: it starts with the next claim."),), 1, 0
    )


def test_a_delayed_job_is_not_due() -> None:
    job_id = cast.enqueue(delay_s=60)
    assert why(job_id) == Why("scheduled", (Gate("not_due", "It is delayed until then.", at(60)),))


def test_a_failed_job_waits_for_its_retry() -> None:
    lease = cast.leased(now=at(0))
    failed = cast.fail(lease, now=at(1))
    answer = why(lease.job_id)
    assert names(answer) == ["retry_wait"]
    assert answer.gates[0].until == failed.next_attempt_at


def test_running_and_ended_jobs_are_held_by_nothing() -> None:
    lease = cast.leased(now=at(0))
    assert why(lease.job_id) == Why("running", (Gate("none", "It runs."),))
    cast.complete(lease, now=at(1))
    assert why(lease.job_id) == Why("succeeded", (Gate("none", "It has ended."),))


def test_a_paused_queue() -> None:
    ask()
    job_id = cast.enqueue()
    policies.pause("default", actor=OPS)
    answer = why(job_id)
    assert (names(answer), answer.position, answer.start_between) == (["paused"], 1, None)
    assert answer.gates[0].detail == "Queue default is paused."
    delayed = cast.enqueue(delay_s=60)
    assert names(why(delayed)) == ["not_due", "paused"]


def test_a_paused_tenant() -> None:
    ask()
    first, second = cast.enqueue_many(2)
    registry.pause("acme", actor=OPS)
    answer = why(second)
    assert names(answer) == ["paused", "band_share"]
    assert (answer.gates[0].detail, answer.position) == ("Its tenant is paused.", 2)
    assert why(first).position == 1


def test_a_deadline_that_has_passed() -> None:
    ask()
    job_id = cast.enqueue(deadline=at(5))
    assert names(why(job_id, seconds=4)) == ["none"]
    answer = why(job_id, seconds=5)
    assert names(answer) == ["deadline"]
    assert answer.gates[0].until == at(5)


def test_a_tenant_at_its_limit() -> None:
    cast.leased(now=at(0))
    job_id = cast.enqueue()
    registry.set_quota("acme", {"max_running": 1}, actor=OPS)
    answer = why(job_id)
    assert names(answer) == ["tenant_quota"]
    assert answer.gates[0].detail == "Its tenant runs 1 of 1 jobs over all queues."
    assert (answer.position, answer.ahead) == (1, 0)


def test_every_limit_that_is_met_is_named() -> None:
    cast.leased(now=at(0), priority=3)
    job_id = cast.enqueue(priority=3)
    registry.set_quota("acme", {"max_running": 1}, queue="default", actor=OPS)
    registry.set_quota("acme", {"max_running": 1}, queue="default", band=3, actor=OPS)
    registry.set_quota("acme", {"max_running": 1}, queue="default", band=2, actor=OPS)
    details = [one.detail for one in why(job_id).gates]
    assert details == [
        "Its tenant runs 1 of 1 jobs in queue default.",
        "Its tenant runs 1 of 1 jobs in queue default, band P3.",
    ]


def test_others_at_their_limit_are_not_ahead() -> None:
    globex = cast.globex().pk
    ask()
    cast.leased(now=at(0), tenant_id=globex)
    cast.enqueue_many(3, tenant_id=globex)
    job_id = cast.enqueue(now=at(1))
    assert why(job_id).position in (1, 2)  # tenants take turns
    registry.set_quota("globex", {"max_running": 1}, actor=OPS)
    assert names(why(job_id)) == ["none"]


# Capable workers


@pytest.mark.parametrize(
    ("asked", "gates"),
    [
        ({}, ["none"]),
        ({"kinds": ("noop", "other")}, ["none"]),
        ({"kinds": ("other",)}, ["no_capable_worker"]),
        ({"max_priority": 2}, ["none"]),
        ({"max_priority": 1}, ["no_capable_worker"]),
        ({"now": at(-60)}, ["no_capable_worker"]),
        ({"now": at(-58)}, ["none"]),
        (None, ["no_capable_worker"]),
    ],
)
def test_somebody_must_ask_for_such_work(asked: dict[str, Any] | None, gates: list[str]) -> None:
    cast.queue()
    if asked is not None:
        ask(**asked)
    assert names(why(cast.enqueue())) == gates


def test_a_worker_of_another_tenant_or_queue_is_none() -> None:
    cast.queue("other")
    ask(scope=cast.mallory())
    assert cast.claim("other", now=at(0)) == []
    job_id = cast.enqueue()
    assert names(why(job_id)) == ["no_capable_worker"]
    assert why(job_id).gates[0].detail == "No worker has asked for noop in P2 within 60 s."


def test_a_worker_that_is_busy_with_such_work_is_capable() -> None:
    cast.leased(now=at(0), lease_s=3_600)
    job_id = cast.enqueue()
    assert names(why(job_id, seconds=300)) == ["none"]
    assert names(why(cast.enqueue(kind="other"), seconds=300)) == ["no_capable_worker", "band_share"]


# The place in line


def test_positions_are_those_of_the_policy() -> None:
    queue = cast.queue("work", preset="hnl")
    assert cast.claim("work", now=at(0)) == []
    ids = [cast.enqueue_many(12, queue=queue, priority=band) for band in range(3)]
    assert [why(ids[band][0]).position for band in range(3)] == [1, 4, 6]
    answer = why(ids[2][1])
    assert (answer.position, answer.ahead, names(answer)) == (12, 11, ["band_share"])
    assert answer.gates[0].detail == "11 jobs first: 6 in H, 4 in N, 1 in L."


def test_positions_are_what_claims_then_do() -> None:
    """Told before any of them starts, and kept: strict bands, the floor, tenants, several kinds."""
    ask()
    for slug in ("acme", "globex"):
        tenant = cast.tenant(slug).pk
        for band in range(5):
            for kind in ("a", "b"):
                cast.enqueue_many(3, priority=band, tenant_id=tenant, kind=kind)
    waiting = [row[0] for row in cast.read("SELECT job_id FROM queue_readyjob")]
    told = {job_id: why(job_id, seconds=2).position for job_id in waiting}
    order = [lease.job_id for _ in range(3) for lease in cast.claim(limit=20, now=at(3))]
    assert [told[job_id] for job_id in order] == list(range(1, 61))


def test_only_work_of_the_kinds_that_are_asked_for_is_ahead() -> None:
    ask(kinds=("mine",))
    cast.enqueue_many(5, kind="other")
    assert why(cast.enqueue(kind="mine", now=at(1)), seconds=2).position == 1


def test_a_job_far_behind_is_told_about_where() -> None:
    globex = cast.globex().pk
    ask()
    cast.enqueue_many(700)
    cast.enqueue_many(700, tenant_id=globex)
    last = cast.enqueue(now=at(1))
    answer = why(last, seconds=2)
    assert answer.ahead == 1_400  # seven hundred of its own, and as many of the other's
    assert answer.gates[0].detail.startswith("About 1,400 jobs first; of the next 200: 200 in P2")


def test_a_job_put_back_stands_before_fresh_ones() -> None:
    lease = cast.leased(now=at(0))
    fresh = cast.enqueue(now=at(1))
    cast.release(lease, now=at(2))
    assert [why(job_id, seconds=3).position for job_id in (lease.job_id, fresh)] == [1, 2]


def test_age_is_counted() -> None:
    queue = cast.queue("work", preset="hnl", ageing_s=600)
    cast.claim("work", now=at(1_300))
    old = cast.enqueue(queue=queue, priority=2, now=at(0))
    cast.enqueue_many(9, queue=queue, priority=1, tenant_id=cast.globex().pk, now=at(1_300))
    assert why(old, seconds=1_310).position == 1


def test_a_tenant_is_told_of_its_own_jobs_alone() -> None:
    globex = cast.globex()
    ask()
    cast.enqueue_many(20, priority=0, tenant_id=globex.pk)
    cast.enqueue_many(2, priority=2)
    job_id = cast.enqueue(now=at(1))
    mine = why(job_id, seconds=2, scope=cast.scope_of(cast.acme()))
    assert (mine.position, mine.ahead) == (3, 2)
    assert gate(mine, "band_share").detail == "2 jobs of its tenant first: 2 in P2."
    assert why(job_id, seconds=2).ahead == 22
    with pytest.raises(NotFound):
        why(job_id, scope=cast.scope_of(globex))


# When


def started(count: int, *, minute: int, **changes: Any) -> None:
    """So many jobs of the default queue start within a minute and are done at once; workers go on asking."""
    cast.enqueue_many(count, now=at(60 * minute), **changes)
    for lease in cast.claim(limit=count, now=at(60 * minute)):
        cast.complete(lease, now=at(60 * minute + 1))
    ask(now=at(60 * minute + 59))


def test_no_start_is_told_without_a_pace() -> None:
    ask()
    assert why(cast.enqueue()).start_between is None


def test_the_start_range_is_made_of_the_slowest_and_the_quickest_minute() -> None:
    for minute, count in enumerate([10, 20, 10, 30, 10]):
        started(count, minute=minute)
    upkeep.fold()
    ids = cast.enqueue_many(31, now=at(300))
    now = at(301)
    assert why(ids[30], seconds=301).start_between == (
        now + timedelta(minutes=30 / 30),
        now + timedelta(minutes=31 / 10),
    )


def test_idle_minutes_slow_the_pace() -> None:
    started(10, minute=0)
    upkeep.fold()
    ask(now=at(119))
    ids = cast.enqueue_many(5, now=at(120))
    start = why(ids[4], seconds=121).start_between
    assert start == (at(121) + timedelta(minutes=4 / 10), at(121) + timedelta(minutes=5 / 2))


def test_a_tenants_start_comes_from_its_own_pace() -> None:
    started(10, minute=0)
    started(40, minute=0, tenant_id=cast.globex().pk)
    upkeep.fold()
    (job_id,) = cast.enqueue_many(1, now=at(61))
    start = why(job_id, seconds=61, scope=cast.scope_of(cast.acme())).start_between
    assert start == (at(61), at(61) + timedelta(minutes=1 / 2))


def test_a_deadline_before_its_turn_is_told_early() -> None:
    started(2, minute=0)
    upkeep.fold()
    cast.enqueue_many(30, now=at(61))
    job_id = cast.enqueue(deadline=at(120), now=at(61))
    answer = why(job_id, seconds=62)
    assert names(answer) == ["deadline", "band_share"]
    assert answer.gates[0].until == at(120)


# The command


def told(*arguments: str) -> str:
    out = io.StringIO()
    call_command("why", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_says_it_in_words_and_as_the_api() -> None:
    policies.pause("default", actor=OPS)
    job_id = format_id(cast.enqueue(now=None))
    text = told(job_id)
    assert f"Job {job_id} is ready.\n  no_capable_worker: No worker" in text
    assert "  paused: Queue default is paused.\nPosition 1, 0 ahead." in text
    answer = json.loads(told(job_id, "--json"))
    assert [one["gate"] for one in answer["gates"]] == ["no_capable_worker", "paused"]


def test_the_command_knows_no_such_job() -> None:
    with pytest.raises(CommandError):
        call_command("why", "0-999999")
