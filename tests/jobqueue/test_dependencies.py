"""Dependencies: gated work stays where it is, uncharged, and nothing else waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import dependencies, gating, judging, upkeep
from jobqueue.claiming import Lease
from jobqueue.dependencies import Standing
from jobqueue.models import Dependency
from jobqueue.types import FLEET
from jobqueue.why import why
from jobsplatform import database
from jobsplatform.errors import Invalid, NotFound, Unavailable
from tests import cast
from tests.cast import OPS, at

pytestmark = pytest.mark.django_db

D = "smtp"


def bears(name: str = D, **settings: object) -> None:
    dependencies.set_dependency(name, settings, actor=OPS)


def stands(name: str = D, second: float = 0) -> Standing:
    (found,) = dependencies.standings(name, now=at(second))
    return found


def asked_of_dependencies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements on dependencies that claims send from now on."""
    asked: list[str] = []
    send = gating.Gate._send

    def noted(self: gating.Gate, verb: str, params: Mapping[str, object]) -> object:
        asked.append(verb)
        return send(self, verb, params)

    monkeypatch.setattr(gating.Gate, "_send", noted)
    return asked


def outage(calls: int = 20, *, second: float = 0, error_class: str = "overload") -> None:
    """So many calls that fail at one instant: with the defaults 20 of them open the breaker."""
    cast.enqueue_many(calls, now=at(second), dependency=D, max_attempts=100)
    for lease in cast.claim(now=at(second), limit=calls):
        cast.fail(lease, now=at(second), error_class=error_class)


def probe(second: float) -> Lease:
    judging.judge(now=at(second))
    return cast.claim_one(now=at(second))


# First use


def test_a_name_that_nobody_knows_is_made_without_limits_at_its_first_use() -> None:
    cast.enqueue(dependency=D)
    found = stands()
    assert (found.breaker, found.limit_now, found.version, found.running) == ("closed", None, 0, 0)
    assert len(cast.claim(limit=5)) == 1


def test_work_without_a_dependency_makes_no_state_and_no_counts() -> None:
    cast.complete(cast.leased(now=at(0)), now=at(1))
    assert dependencies.standings() == []
    assert cast.read("SELECT count(*) FROM queue_dependencydelta") == [(0,)]


def test_control_learns_of_a_name_that_was_used() -> None:
    cast.enqueue(dependency=D)
    dependencies.adopt()
    assert Dependency.objects.get(name=D).breaker_calls == 20


def test_a_name_that_was_met_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers choose names: a pass over many new ones must stay cheap."""
    monkeypatch.setattr(dependencies, "push", lambda dependency: pytest.fail("pushed"))
    for number in range(3):
        cast.enqueue(dependency=f"{D}-{number}")
    assert [dependencies.adopt() for _ in range(2)] == [3, 0]


def test_the_first_settings_of_a_name_that_was_met_reach_its_shard() -> None:
    cast.enqueue(dependency=D)
    dependencies.adopt()
    bears(max_running=7)
    assert cast.read("SELECT max_running, version FROM queue_dependencystate") == [(7, 1)]
    assert dependencies.adopt() == 0


def test_a_shard_that_missed_a_change_is_told() -> None:
    bears(max_running=7)
    cast.read("UPDATE queue_dependencystate SET version = 0, max_running = NULL RETURNING 1")
    dependencies.adopt()
    assert cast.read("SELECT max_running FROM queue_dependencystate") == [(7,)]


# The concurrency limit


def test_no_more_run_than_the_dependency_bears() -> None:
    bears(max_running=3)
    cast.enqueue_many(10, dependency=D)
    assert [len(cast.claim(limit=2)) for _ in range(3)] == [2, 1, 0]


def test_the_limit_holds_over_queues_bands_and_tenants() -> None:
    bears(max_running=2)
    other = cast.queue("other")
    cast.enqueue(dependency=D, priority=1)
    cast.enqueue(dependency=D, priority=3, tenant_id=cast.globex().pk)
    cast.enqueue(dependency=D, queue=other)
    assert len(cast.claim(limit=10)) == 2
    assert cast.claim("other", limit=10) == []


def test_one_that_ends_makes_room_for_one() -> None:
    bears(max_running=1)
    cast.enqueue_many(2, dependency=D)
    cast.complete(cast.claim_one(), now=at(1))
    assert len(cast.claim(now=at(1), limit=5)) == 1


def test_work_behind_a_full_dependency_starts() -> None:
    bears(max_running=1)
    cast.enqueue_many(50, dependency=D)
    free = cast.enqueue_many(3, now=at(1))
    found = cast.claim(now=at(2), limit=10)
    assert len(found) == 4
    assert {lease.job_id for lease in found} >= set(free)


def test_a_claim_that_meets_only_full_dependencies_goes_on_to_other_work() -> None:
    """Many more full dependencies than one listing has heads."""
    for number in range(60):
        bears(f"d{number}", max_running=1)
        cast.enqueue_many(2, dependency=f"d{number}")
    assert len(cast.claim(limit=100)) == 60
    gating.forget()
    free = cast.enqueue(now=at(1), tenant_id=cast.globex().pk)
    assert [lease.job_id for lease in cast.claim(now=at(2))] == [free]


def test_gated_work_is_not_charged_and_keeps_its_place() -> None:
    bears(max_running=1)
    first, second = cast.enqueue(now=at(0), dependency=D), cast.enqueue(now=at(1), dependency=D)
    lease = cast.claim_one(now=at(2))
    before = cast.row("queue_readyjob", second)
    assert cast.claim(now=at(3), limit=5) == []
    assert cast.row("queue_readyjob", second) == before
    assert before["attempt"] == 0
    assert lease.job_id == first


def test_overload_halves_the_limit_once_for_all_calls_that_were_under_way() -> None:
    bears(max_running=8)
    cast.enqueue_many(8, dependency=D)
    for lease in cast.claim(limit=8):
        cast.fail(lease, now=at(1), error_class="overload")
    assert stands().limit_now == 4


def test_overload_of_calls_that_began_after_halves_it_again() -> None:
    bears(max_running=8)
    for second in (0, 10):
        cast.enqueue(now=at(second), dependency=D)
        cast.fail(cast.claim_one(now=at(second)), now=at(second + 1), error_class="overload")
    assert stands().limit_now == 2


def test_a_round_of_successes_grows_the_limit_by_a_step() -> None:
    bears(max_running=8)
    cast.enqueue(dependency=D)
    cast.fail(cast.claim_one(), now=at(1), error_class="overload")
    cast.enqueue_many(4, now=at(2), dependency=D)
    for lease in cast.claim(now=at(2), limit=4):
        cast.complete(lease, now=at(3))
    judging.judge(now=at(4))
    assert stands().limit_now == pytest.approx((16 + 8) ** 0.5)


def test_a_limit_that_is_lowered_binds_at_once_and_one_that_is_lifted_binds_no_more() -> None:
    bears(max_running=5)
    cast.enqueue_many(9, dependency=D)
    cast.claim(limit=3)
    bears(max_running=2)
    assert cast.claim(limit=9) == []
    bears(max_running=None)
    assert len(cast.claim(limit=9)) == 6


# The rate


def test_no_window_of_the_rate_holds_more_starts_than_its_burst() -> None:
    bears(rate_per_s=2, rate_burst=4)
    cast.enqueue_many(20, dependency=D)
    assert [len(cast.claim(now=at(s), limit=3)) for s in (0, 1, 1.9, 2.1, 3.2)] == [3, 1, 0, 3, 1]


def test_the_rate_holds_when_its_starts_have_been_tallied() -> None:
    bears(rate_per_s=2, rate_burst=4)
    cast.enqueue_many(20, dependency=D)
    cast.claim(now=at(0), limit=4)
    judging.judge(now=at(0.5))
    assert cast.read("SELECT count(*) FROM queue_dependencydelta") == [(0,)]
    assert [len(cast.claim(now=at(s), limit=9)) for s in (1.9, 2.2)] == [0, 4]


# The breaker


def test_half_of_twenty_failing_calls_open_the_breaker() -> None:
    outage(10)
    assert stands().breaker == "closed"
    cast.enqueue_many(10, now=at(1), dependency=D)
    for lease in cast.claim(now=at(1), limit=10):
        cast.complete(lease, now=at(1))
    judging.judge(now=at(2))
    found = stands(second=2)
    assert (found.breaker, found.failures, found.calls) == ("open", 10, 20)


def test_the_failure_that_trips_it_opens_it_at_once() -> None:
    """No dispatcher runs here: the fail call itself judges."""
    outage(20)
    assert stands().breaker == "open"


def test_calls_older_than_the_window_do_not_count() -> None:
    outage(19, second=0)
    outage(1, second=61)
    assert (stands().breaker, stands(second=61).calls) == ("closed", 1)


@pytest.mark.parametrize(
    ("error_class", "breaker"),
    [("overload", "open"), ("transient", "open"), ("uncertain", "open"), ("permanent", "closed")],
)
def test_what_counts_as_a_failed_call(error_class: str, breaker: str) -> None:
    """S91."""
    outage(20, error_class=error_class)
    assert stands().breaker == breaker


def test_a_lease_that_is_lost_after_its_start_counts_as_failed() -> None:
    cast.enqueue_many(20, dependency=D)
    assert len(cast.claim(limit=20)) == 20
    upkeep.reap(now=at(40))
    assert stands().breaker == "open"


def test_nothing_starts_while_it_is_open_and_nothing_is_charged() -> None:
    outage()
    waiting = cast.enqueue(now=at(1), dependency=D)
    free = cast.enqueue(now=at(2))
    assert [lease.job_id for lease in cast.claim(now=at(3), limit=10)] == [free]
    assert cast.row("queue_readyjob", waiting)["attempt"] == 0


def test_another_dependency_s_work_goes_on() -> None:
    outage()
    other = cast.enqueue(now=at(1), dependency="crm")
    assert [lease.job_id for lease in cast.claim(now=at(2), limit=10)] == [other]


def test_after_half_a_minute_one_job_probes() -> None:
    outage()
    cast.enqueue_many(5, now=at(1), dependency=D)
    judging.judge(now=at(29.9))
    assert cast.claim(now=at(29.9), limit=10) == []
    judging.judge(now=at(30))
    assert len(cast.claim(now=at(30), limit=10)) == 1
    assert cast.claim(now=at(31), limit=10) == []


def test_a_probe_that_succeeds_closes_it() -> None:
    outage()
    cast.enqueue_many(5, now=at(1), dependency=D)
    cast.complete(probe(30), now=at(31))
    judging.judge(now=at(32))
    assert stands().breaker == "closed"
    assert len(cast.claim(now=at(32), limit=10)) == 4


@pytest.mark.parametrize("error_class", ["overload", "transient", "uncertain"])
def test_a_probe_that_fails_opens_it_again(error_class: str) -> None:
    outage()
    cast.enqueue_many(5, now=at(1), dependency=D)
    cast.fail(probe(30), now=at(31), error_class=error_class)
    assert (stands().breaker, stands().probe_at) == ("open", at(61))


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_probe_that_is_lost_has_failed(is_reaped: bool) -> None:
    outage()
    cast.enqueue_many(5, now=at(1), dependency=D)
    probe(30)
    if is_reaped:
        upkeep.reap(now=at(60))
    judging.judge(now=at(60))
    assert (stands().breaker, stands().probe_at) == ("open", at(90))


@pytest.mark.parametrize("ending", ["released", "invalid"])
def test_a_probe_that_tells_nothing_gives_way_to_another(ending: str) -> None:
    outage()
    cast.enqueue_many(5, now=at(1), dependency=D)
    lease = probe(30)
    if ending == "released":
        cast.release(lease, now=at(31))
    else:
        cast.fail(lease, now=at(31), error_class="permanent")
    judging.judge(now=at(31))
    assert stands().breaker == "half_open"
    assert len(cast.claim(now=at(32), limit=10)) == 1


def test_calls_from_before_the_recovery_do_not_open_it_again() -> None:
    outage()
    cast.enqueue_many(2, now=at(1), dependency=D)
    cast.complete(probe(30), now=at(31))
    judging.judge(now=at(32))
    cast.fail(cast.claim_one(now=at(33)), now=at(33), error_class="overload")
    assert (stands().breaker, stands(second=33).calls) == ("closed", 1)


def test_starts_ramp_up_after_the_recovery() -> None:
    bears(ramp_per_s=2, ramp_s=20)
    outage()
    cast.enqueue_many(100, now=at(1), dependency=D)
    cast.complete(probe(30), now=at(31))
    judging.judge(now=at(32))
    starts = [len(cast.claim(now=at(32 + s), limit=50)) for s in (0, 0.5, 1.1, 4.9, 6, 12)]
    assert starts == [2, 0, 2, 2, 4, 6]


def test_the_ramp_ends() -> None:
    bears(ramp_per_s=2, ramp_s=20)
    outage()
    cast.enqueue_many(100, now=at(1), dependency=D)
    cast.complete(probe(30), now=at(31))
    judging.judge(now=at(31))
    judging.judge(now=at(51))
    assert stands().ramp_from is None
    assert len(cast.claim(now=at(51), limit=60)) == 60


def test_a_breaker_that_is_off_never_opens() -> None:
    bears(breaker_share=None)
    outage(30)
    assert stands().breaker == "closed"


# An operator's hand


def test_an_operator_holds_it_open_and_nothing_probes() -> None:
    cast.enqueue_many(3, dependency=D)
    dependencies.open_breaker(D, actor=OPS, reason="maintenance")
    judging.judge(now=at(3_600))
    assert cast.claim(now=at(3_600), limit=5) == []
    assert cast.audited("dependency.open", alias="default") == 1


def test_an_operator_closes_it_and_work_ramps_up() -> None:
    bears(ramp_per_s=2)
    outage()
    cast.enqueue_many(5, now=at(1), dependency=D)
    dependencies.close_breaker(D, actor=OPS, now=at(2))
    assert (stands().breaker, stands().ramp_from) == ("closed", at(2))
    assert len(cast.claim(now=at(2), limit=5)) == 2
    assert cast.audited("dependency.close", alias="default") == 1


def test_a_name_that_is_nowhere_can_be_set_and_not_opened() -> None:
    with pytest.raises(NotFound):
        dependencies.open_breaker("nowhere", actor=OPS)
    bears("nowhere", max_running=1)
    dependencies.open_breaker("nowhere", actor=OPS)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_running": 0},
        {"rate_per_s": -1.0},
        {"rate_burst": 5},
        {"rate_per_s": 0.001, "rate_burst": 5},
        {"probe_after_s": 3_601},
        {"breaker_share": 1.5},
        {"colour": 1},
    ],
)
def test_what_a_dependency_cannot_bear_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        bears(**settings)
    assert dependencies.standings(D) == []


def test_a_name_that_no_job_could_have_is_refused() -> None:
    with pytest.raises(Invalid):
        bears("No Such Name", max_running=1)


# Several shards


def test_only_the_shard_with_the_permit_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    bears()
    outage()
    row = Dependency.objects.filter(name=D)

    def judged(second: float) -> tuple[str, int | None]:
        with monkeypatch.context() as patch:
            patch.setattr(database, "aliases", lambda: {0: cast.SHARD, 7: "elsewhere"})
            judging.judge_on(cast.SHARD, now=at(second))
        return stands(second=second).breaker, row.get().probe_shard

    assert judged(29) == ("open", None)
    row.update(probe_shard=7)
    assert judged(30) == ("open", 7)
    row.update(probe_shard=None)
    assert judged(31) == ("half_open", 0)
    cast.enqueue(now=at(31), dependency=D)
    cast.complete(cast.claim_one(now=at(31)), now=at(32))
    assert judged(33) == ("closed", None)


@given(st.integers(1, 20), st.integers(0, 10_000))
def test_the_ramps_of_all_shards_are_what_was_set(shards: int, more: int) -> None:
    whole = Dependency(name=D, max_running=1, ramp_per_s=shards + more)
    told = [dependencies.told(whole, index, shards) for index in range(shards)]
    assert sum(one["ramp_per_s"] for one in told) == shards + more
    assert max(one["ramp_per_s"] for one in told) - min(one["ramp_per_s"] for one in told) <= 1
    assert {one["is_shared"] for one in told} == {shards > 1}


# What it costs, and what is kept


def test_a_claim_without_limited_dependencies_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_of_dependencies(monkeypatch)
    bears("other", max_running=1)
    cast.enqueue(dependency=D)
    cast.enqueue()
    assert len(cast.claim(limit=5)) == 2
    assert asked == []
    cast.enqueue(dependency="other")
    assert len(cast.claim(limit=5)) == 1
    assert asked == ["dependency_hold", "dependency_rooms"]


def test_a_claim_that_knows_of_a_full_dependency_passes_over_it_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bears(max_running=1)
    cast.enqueue_many(5, dependency=D)
    cast.claim(limit=3)
    asked = asked_of_dependencies(monkeypatch)
    cast.enqueue(now=at(1))
    assert len(cast.claim(now=at(2), limit=3)) == 1
    assert asked == ["dependency_shut"]


def test_counts_that_no_window_reaches_are_forgotten() -> None:
    outage(3)
    upkeep.fold()
    for table in ("queue_dependencytally", "queue_queuesecond"):
        assert cast.read(f"SELECT count(*) > 0 FROM {table}") == [(True,)]
    upkeep.purge(now=at(7_199))
    assert cast.read("SELECT sum(failed)::int FROM queue_dependencytally") == [(3,)]
    upkeep.purge(now=at(7_202))
    for table in ("queue_dependencytally", "queue_queuesecond"):
        assert cast.read(f"SELECT count(*) FROM {table}") == [(0,)]


def test_a_failure_counts_though_it_cannot_be_judged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*arguments: object, **more: object) -> int:
        raise Unavailable

    with monkeypatch.context() as patch:
        patch.setattr(judging, "_judge_due", unreachable)
        outage()
    assert stands().breaker == "closed"
    judging.judge(now=at(1))
    assert stands().breaker == "open"


# Lanes


def test_an_enqueue_wakes_a_gated_lane_and_starts_nothing() -> None:
    outage()
    upkeep.sweep_lanes()
    cast.enqueue(now=at(1), dependency=D)
    assert cast.read("SELECT is_active FROM queue_lane") == [(True,)]
    assert cast.claim(now=at(2)) == []


def test_lanes_of_an_open_breaker_sleep_and_wake_after_it() -> None:
    outage()
    cast.enqueue(now=at(1), dependency=D)
    upkeep.sweep_lanes()
    assert cast.read("SELECT is_active FROM queue_lane") == [(False,)]
    judging.judge(now=at(30))
    upkeep.sweep_lanes()
    assert len(cast.claim(now=at(30))) == 1


# Why


def gates(job_id: int, second: float) -> list[tuple[str, object]]:
    answer = why(job_id, scope=FLEET, now=at(second))
    return [
        (gate.gate, gate.until)
        for gate in answer.gates
        if gate.gate not in ("no_capable_worker", "band_share")
    ]


def test_why_names_a_full_dependency() -> None:
    bears(max_running=1)
    cast.enqueue(dependency=D)
    cast.claim_one()
    assert gates(cast.enqueue(now=at(1), dependency=D), 2) == [("dependency", None)]


def test_why_names_an_open_breaker_and_when_it_probes() -> None:
    outage()
    assert gates(cast.enqueue(now=at(1), dependency=D), 2) == [("breaker", at(30))]


def test_why_names_a_spent_rate_and_when_it_allows_more() -> None:
    bears(rate_per_s=1, rate_burst=2)
    cast.enqueue_many(2, dependency=D)
    cast.claim(limit=2)
    assert gates(cast.enqueue(now=at(1), dependency=D), 1) == [("rate", at(2))]


def test_why_names_no_dependency_that_holds_nothing() -> None:
    bears(max_running=1)
    assert gates(cast.enqueue(now=at(1), dependency=D), 2) in ([("none", None)], [])
