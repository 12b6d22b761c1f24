"""How many lanes a tenant may have, and how those are forgotten that nobody uses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue import dependencies, judging, lanes, upkeep
from jobqueue.enqueue import Accepted, NewJob
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.lanes import LaneKey
from jobqueue.limits import BATCH_JOBS_MAX, LANES_MAX
from jobqueue.models import Dependency
from jobsplatform.errors import QuotaExceeded
from tests import cast
from tests.cast import OPS, SHARD, at, globex, together

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


def of_kinds(count: int, prefix: str = "k", **changes: Any) -> list[NewJob]:
    return [cast.new_job(kind=f"{prefix}{number:04}", **changes) for number in range(count)]


def fill_band() -> None:
    """All lanes that acme may have in the default queue's band 2."""
    keys = [LaneKey(job.queue.id, 2, job.tenant_id, job.kind, "") for job in of_kinds(LANES_MAX)]
    assert len(lanes.lane_ids(keys, alias=SHARD)) == LANES_MAX


def verdicts(jobs: Sequence[NewJob]) -> Counter[type]:
    return Counter(type(outcome) for outcome in enqueue_jobs(jobs, now=at(0)))


# How many


def test_a_tenant_has_only_so_many_lanes_in_a_band() -> None:
    assert verdicts(of_kinds(LANES_MAX + 3)) == {Accepted: LANES_MAX, QuotaExceeded: 3}
    assert cast.read("SELECT count(*) FROM queue_lane") == [(LANES_MAX,)]


def test_lanes_that_a_tenant_has_are_open_to_it_when_it_may_have_no_more() -> None:
    fill_band()
    assert verdicts(of_kinds(2) + of_kinds(1, "other")) == {Accepted: 2, QuotaExceeded: 1}


def test_another_band_and_another_tenant_have_lanes_of_their_own() -> None:
    fill_band()
    elsewhere = of_kinds(1, "other", priority=3) + of_kinds(1, "other", tenant_id=globex().pk)
    assert verdicts(elsewhere) == {Accepted: 2}


def test_names_of_dependencies_count_as_kinds_do() -> None:
    fill_band()
    assert verdicts([cast.new_job(kind="k0000", dependency="smtp")]) == {QuotaExceeded: 1}
    assert cast.read("SELECT count(*) FROM queue_dependencystate") == [(0,)]


def test_a_replay_is_answered_though_its_lane_is_gone_and_no_more_may_be_made() -> None:
    job = cast.new_job(kind="old", request_key="r")
    first = cast.accepted(enqueue_jobs([job], now=at(0))[0])
    cast.complete(cast.claim_one(now=at(1)), now=at(2))
    cast.read("DELETE FROM queue_lane RETURNING 1")
    lanes.forget()
    fill_band()
    (again,) = enqueue_jobs([job], now=at(3))
    assert (cast.accepted(again).job_id, cast.accepted(again).replayed) == (first.job_id, True)


def test_concurrent_first_uses_make_no_more_lanes_than_allowed() -> None:
    racers = [of_kinds(300, prefix) for prefix in "abc"]
    answers = together(*[lambda jobs=jobs: verdicts(jobs) for jobs in racers])
    assert sum(answer[Accepted] for answer in answers if isinstance(answer, Counter)) == LANES_MAX, answers
    assert cast.read("SELECT count(*) FROM queue_lane") == [(LANES_MAX,)]


def test_a_batch_of_new_kinds_is_refused_item_by_item() -> None:
    fill_band()
    assert verdicts(of_kinds(BATCH_JOBS_MAX, "n")) == {QuotaExceeded: BATCH_JOBS_MAX}


# Forgetting


def doze(days: float = 2) -> None:
    """Let every lane sleep, unused for so long."""
    cast.read(
        "UPDATE queue_lane SET is_active = false, used_at = used_at - %s * interval '1 day' RETURNING 1",
        [days],
    )


def lane_count() -> int:
    return int(cast.read("SELECT count(*) FROM queue_lane")[0][0])


def finished(**changes: Any) -> None:
    cast.complete(cast.leased(now=at(0), **changes), now=at(1))


def test_a_lane_that_nobody_used_for_a_day_is_forgotten() -> None:
    finished()
    doze()
    upkeep.purge()
    assert lane_count() == 0


def test_a_lane_that_slept_less_than_a_day_is_kept() -> None:
    finished()
    doze(0.9)
    upkeep.purge()
    assert lane_count() == 1


def test_a_lane_is_kept_while_a_job_stands_in_any_of_its_places() -> None:
    cast.buried(kind="dead", now=at(0))
    cast.leased(kind="running", now=at(0))
    cast.enqueue(kind="ready", now=at(0))
    cast.enqueue(kind="scheduled", delay_s=60, now=at(0))
    doze()
    upkeep.purge()
    assert lane_count() == 4


def test_a_lane_that_was_forgotten_is_made_anew_by_who_remembers_it() -> None:
    finished()
    doze()
    upkeep.purge()
    job_id = cast.enqueue(now=at(4))
    assert lane_count() == 1
    assert cast.claim_one(now=at(5)).job_id == job_id


def test_forgetting_takes_no_more_than_its_limit() -> None:
    for kind in "abc":
        finished(kind=kind)
    doze()
    lanes.purge(SHARD, limit=2)
    assert lane_count() == 1


def test_an_enqueue_that_meets_its_lane_being_forgotten_makes_it_anew() -> None:
    finished()
    doze()
    with cast.second_session() as upkeeper:
        upkeeper.execute("SELECT FROM queue_lane FOR UPDATE")
        upkeeper.execute("DELETE FROM queue_lane")

        def commit() -> int:
            time.sleep(0.5)  # the enqueue waits for the lane by then
            upkeeper.commit()
            return 0

        job_id, _ = together(lambda: cast.enqueue(now=at(4)), commit)
    assert [lease.job_id for lease in cast.claim(now=at(5))] == [job_id]


def test_a_lane_into_which_somebody_is_just_putting_a_job_is_kept() -> None:
    finished()
    doze()
    with cast.second_session() as producer:
        producer.execute("SELECT FROM queue_lane FOR UPDATE")  # as an enqueue does with a lane that slept
        assert lanes.purge(SHARD, limit=10) == 0
    assert lane_count() == 1


def test_no_job_is_lost_to_a_lane_that_is_forgotten_at_that_moment() -> None:
    for turn in range(40):
        finished()
        doze()
        job_id, forgotten = together(lambda: cast.enqueue(now=at(4)), lambda: lanes.purge(SHARD, limit=10))
        assert forgotten in (0, 1), (turn, forgotten)
        assert [lease.job_id for lease in cast.claim(now=at(5))] == [job_id], (turn, forgotten)
        cast.forget_job(job_id)  # type: ignore[arg-type]


def test_a_name_of_a_dependency_goes_with_its_last_lane_everywhere() -> None:
    finished(dependency="smtp")
    dependencies.adopt()
    judging.judge()  # consumes what was counted of its calls
    doze()
    upkeep.purge()
    dependencies.adopt()
    assert cast.read("SELECT count(*) FROM queue_dependencystate") == [(0,)]
    assert not Dependency.objects.exists()


def test_a_dependency_that_somebody_has_set_is_kept() -> None:
    finished(dependency="smtp")
    dependencies.set_dependency("smtp", {"max_running": 3}, actor=OPS)
    doze()
    upkeep.purge()
    dependencies.adopt()
    assert cast.read("SELECT name, max_running FROM queue_dependencystate") == [("smtp", 3)]
    assert Dependency.objects.get().max_running == 3


def test_a_dependency_that_was_forgotten_is_made_anew_with_its_lane() -> None:
    finished(dependency="smtp")
    doze()
    upkeep.purge()
    cast.enqueue(dependency="smtp")
    assert cast.read("SELECT name FROM queue_dependencystate") == [("smtp",)]


def test_a_lane_that_is_woken_is_not_put_to_sleep_at_once() -> None:
    finished()
    doze()
    cast.leased(now=at(5))
    upkeep.sweep_lanes()
    assert cast.read("SELECT is_active FROM queue_lane") == [(True,)]


# The scheduler's states


def test_states_of_classes_that_asked_for_a_day_are_forgotten_but_the_newest() -> None:
    cast.enqueue_many(3, now=None)
    for kind in ("noop", "other"):
        cast.claim(kinds=(kind, "noop"), now=None)
    cast.claim(now=None)
    assert cast.read("SELECT count(DISTINCT claim_class) FROM queue_schedulerstate") == [(3,)]
    later = timezone.now() + DAY * 1.1
    upkeep.purge(now=later)
    assert cast.read("SELECT count(*) FROM queue_schedulerstate") == [(1,)]


def test_states_of_classes_that_still_ask_are_kept() -> None:
    cast.enqueue_many(3, now=None)
    cast.claim(kinds=("noop",), now=None)
    cast.claim(now=None)
    upkeep.purge(now=timezone.now() + DAY * 0.5)
    assert cast.read("SELECT count(*) FROM queue_schedulerstate") == [(2,)]
