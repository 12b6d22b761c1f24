"""Limits beside their use, and what a change would do: sentences from what the tenant really does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import quotas, upkeep
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.quotas import would_refuse
from tenants import registry
from tenants.measures import Place
from tests import cast
from tests.cast import OPS, acme, at, globex
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


def line(name: str, now: float = 0) -> quotas.Line:
    (found,) = [one for one in quotas.lines(acme().pk, now=at(now)) if one.name == name]
    return found


def effects(now: float = 30, **limits: object) -> list[str]:
    return quotas.effects("acme", limits, now=at(now))


def test_a_line_tells_use_peak_and_refusals() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 5, "max_running": 4}, actor=OPS)
    enqueue_jobs([cast.new_job()] * 7, now=at(0))
    cast.claim(limit=1)
    upkeep.sample_usage(now=at(1))
    depth, running = line("max_depth", 2), line("max_running", 2)
    assert (depth.used, depth.value, depth.peak, depth.refused) == (4, 5, 4, 2)
    assert (depth.share, depth.is_near) == (0.8, True)
    assert (running.used, running.peak, running.refused, running.is_near) == (1, 1, None, False)


def test_a_limit_of_nothing_is_used_up() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 0}, actor=OPS)
    assert (line("max_depth").share, line("max_depth").is_near) == (1.0, True)


def test_the_rate_is_that_of_the_last_minute() -> None:
    acme()
    registry.set_quota("acme", {"enqueue_rate_per_s": 10}, actor=OPS)
    cast.enqueue_many(9, now=at(0))
    cast.enqueue_many(3, now=at(1))
    assert line("enqueue_rate_per_s", 30).used == 0.2
    assert line("enqueue_rate_per_s", 90).used == 0


def test_what_is_not_counted_is_said_to_be_so() -> None:
    acme()
    registry.set_quota("acme", {"weight": 3}, actor=OPS)
    weight = line("weight")
    assert (weight.used, weight.share, weight.peak, weight.refused, weight.is_near) == (None,) * 4 + (False,)


# Effects


def test_jobs_above_a_new_depth_stay() -> None:
    cast.enqueue_many(8)
    assert effects(max_depth=5) == [
        "3 jobs above the new depth stay; new ones are refused until fewer than 5 wait."
    ]
    assert effects(max_depth=7) == [
        "1 job above the new depth stays; new ones are refused until fewer than 7 wait."
    ]
    assert effects(max_depth=10) == ["8 jobs wait now: room for 2 more."]


def test_running_jobs_above_a_new_limit_run_on() -> None:
    cast.enqueue_many(3)
    cast.claim(limit=3)
    assert effects(max_running=1) == [
        "2 jobs above the new limit run on; none starts before they have ended."
    ]
    assert effects(max_running=3) == ["3 jobs run now: room for 0 more."]


def test_a_new_rate_says_what_it_would_have_refused_a_minute() -> None:
    for minute in range(60):
        cast.enqueue_many(18, now=at(minute * 60))
    said = quotas.effects("acme", {"enqueue_rate_per_s": 0.1, "enqueue_burst": 1}, now=at(59 * 60 + 30))
    assert "it would have refused 12 a minute." in said[0]
    (harmless,) = quotas.effects("acme", {"enqueue_rate_per_s": 1}, now=at(59 * 60 + 30))
    assert harmless == "At the rate of the last hour nothing would have been refused."


def test_jobs_that_a_rate_refuses_now_count_as_asked_for() -> None:
    acme()
    registry.set_quota("acme", {"enqueue_rate_per_s": 1, "enqueue_burst": 60}, actor=OPS)
    enqueue_jobs([cast.new_job()] * 660, now=at(0))
    (said,) = quotas.effects("acme", {"enqueue_burst": None}, now=at(30))[:1]
    assert said == "No limit on new jobs at once any more."
    (said,) = quotas.effects("acme", {"enqueue_rate_per_s": 0.05}, now=at(30))
    assert "it would have refused 7 a minute" in said


def test_a_new_size_says_how_many_payloads_were_larger() -> None:
    cast.enqueue_many(3, payload='"' + "x" * 100 + '"')
    cast.enqueue_many(2)
    assert effects(max_payload_bytes=50) == ["Of 5 jobs of the last hour it would have refused 3."]


def test_only_what_changes_is_spoken_of_and_nothing_is_stored() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 5}, actor=OPS)
    assert effects(max_depth=5) == []
    assert effects(max_depth=None, weight=2) == [
        "No limit on waiting any more.",
        "Where tenants wait beside each other it gets 2 turns for 1 of a tenant of weight 1.",
    ]
    assert registry.quota_history("acme")[0].limits["max_depth"] == 5


def test_another_tenants_work_is_not_counted() -> None:
    acme()
    cast.enqueue_many(8, tenant_id=globex().pk)
    assert effects(max_depth=5) == ["0 jobs wait now: room for 5 more."]
    assert effects(enqueue_rate_per_s=1) == [
        "No job came in within the last hour: nothing would have been refused."
    ]


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=60),
    st.floats(0.01, 100),
    st.integers(1, 1_000),
)
def test_a_larger_rate_never_refuses_more(minutes: list[int], rate: float, burst: int) -> None:
    refused_ = would_refuse(minutes, rate, burst)
    assert 0 <= would_refuse(minutes, rate * 2, burst) <= refused_ <= sum(minutes)
    assert would_refuse(minutes, 10_000 / 60, burst) == 0


def test_places_have_names() -> None:
    cast.queue("mail", preset="hnl")
    assert [quotas.where(place) for place in (Place("", None), Place("mail", None), Place("mail", 0))] == [
        "all queues",
        "mail",
        "mail, H",
    ]
    assert quotas.where(Place("gone", 3)) == "gone, band 3"


# The command


def test_quota_shows_tells_and_goes_back() -> None:
    acme()
    run("setquota", "acme", "max_depth=10", "--reason", "small plan")
    assert run("quota", "show", "acme").out == "all queues: max_depth 0 of 10 (0%), refused in 24 h 0\n"
    assert run("quota", "effect", "acme", "max_depth=5").out == "0 jobs wait now: room for 5 more.\n"
    run("setquota", "acme", "max_depth=5")
    lines = run("quota", "history", "acme").out.splitlines()
    assert [text.split(";")[0] for text in lines] == [
        "3  all queues: max_depth=5",
        "2  all queues: max_depth=10",
        "1  all queues: no limits",
    ]
    assert "max_depth=10, as in version 2" in run("quota", "revert", "acme", "2").out
    assert ", back to 2" in run("quota", "history", "acme").out.splitlines()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nobody"),
        ("history", "nobody"),
        ("revert", "acme", "7"),
        ("effect", "acme", "max=5"),
        ("effect", "acme", "max_depth=many"),
        ("effect", "acme", "max_depth=5", "--queue", "nowhere"),
    ],
)
def test_quota_refuses_in_one_line(arguments: tuple[str, ...]) -> None:
    acme()
    assert refused("quota", *arguments)
