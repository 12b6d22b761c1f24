"""Who is served next, through the verbs: bands by their weights, tenants in turns, costs, ageing, pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from jobqueue import claiming, lanes, policies, upkeep
from jobqueue.claiming import Lease
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.policies import QueuePolicy
from tenants import registry
from tenants.models import Tenant
from tests import cast
from tests.cast import OPS, at

pytestmark = pytest.mark.django_db


def letters(leases: Iterable[Lease]) -> str:
    return "".join("HNL"[lease.priority] for lease in leases)


def one_by_one(count: int, *queues: str, **asked: Any) -> list[Lease]:
    return [cast.claim_one(*queues, now=at(1), **asked) for _ in range(count)]


def fill(queue: QueuePolicy, *counts: int, **changes: Any) -> None:
    """So many ready jobs a band."""
    for band, count in enumerate(counts):
        if count:
            cast.enqueue_many(count, queue=queue, priority=band, **changes)


def names(leases: Iterable[Lease]) -> Counter[str]:
    """How many leases each tenant has."""
    found = Counter(lease.tenant_id for lease in leases)
    slugs = dict(Tenant.objects.filter(pk__in=found).values_list("pk", "slug"))
    return Counter({slugs[tenant]: count for tenant, count in found.items()})


# Bands


def test_twelve_opportunities_one_by_one() -> None:
    fill(cast.queue("work", preset="hnl"), 12, 12, 12)
    assert letters(one_by_one(12, "work")) == "HHHNNLHHHNNL"


def test_twelve_opportunities_in_one_claim() -> None:
    fill(cast.queue("work", preset="hnl"), 12, 12, 12)
    assert letters(cast.claim("work", limit=12, now=at(1))) == "HHHNNLHHHNNL"


@pytest.mark.parametrize("limits", [(5, 7), (1, 4, 7), (11, 1)])
def test_the_turn_goes_on_from_claim_to_claim(limits: tuple[int, ...]) -> None:
    fill(cast.queue("work", preset="hnl"), 12, 12, 12)
    assert "".join(letters(cast.claim("work", limit=n, now=at(1))) for n in limits) == "HHHNNLHHHNNL"


def test_an_empty_band_lends_its_turns_by_weight() -> None:
    fill(cast.queue("work", preset="hnl"), 24, 0, 24)
    assert letters(one_by_one(8, "work")) == "HHHLHHHL"
    assert Counter(letters(cast.claim("work", limit=16, now=at(1)))) == {"H": 12, "L": 4}


def test_a_sentinel_in_a_flood_is_met_within_a_cycle() -> None:
    queue = cast.queue("work", preset="hnl")
    fill(queue, 30)
    one_by_one(4, "work")  # wherever in the cycle the claims stand
    fill(queue, 0, 0, 1)
    assert "L" in letters(one_by_one(6, "work"))


def test_a_band_earns_nothing_while_it_is_empty() -> None:
    queue = cast.queue("work", preset="hnl")
    fill(queue, 40)
    cast.claim("work", limit=20, now=at(1))
    fill(queue, 0, 20, 20)
    assert Counter(letters(cast.claim("work", limit=12, now=at(1)))) == {"H": 6, "N": 4, "L": 2}


def test_every_band_is_visited() -> None:
    """S79: whatever priority is accepted runs."""
    fill(cast.queue(), 5, 60, 60, 60, 60)
    taken = Counter(lease.priority for lease in cast.claim(limit=55, now=at(1)))
    assert taken == {0: 5, 1: 25, 2: 13, 3: 7, 4: 5}


def test_strict_work_is_first_but_for_the_reserved_share() -> None:
    fill(cast.queue(), 200, 0, 0, 20, 20)
    taken = Counter(lease.priority for _ in range(10) for lease in cast.claim(limit=10, now=at(1)))
    assert taken[0] == 100 - taken[3] - taken[4]
    assert 4 <= taken[3] + taken[4] <= 6


def test_why_each_was_chosen_is_kept() -> None:
    fill(cast.queue(), 1, 1, 0, 0, 0)
    lease = cast.claim_one(now=at(1))
    assert cast.row("queue_lease", lease.job_id)["chosen"] == "strict"
    cast.complete(lease, now=at(2))
    assert cast.row("queue_attempt", lease.job_id)["chosen"] == "strict"
    other = cast.claim_one(now=at(3))
    assert cast.row("queue_lease", other.job_id)["chosen"] == "share"


def test_claims_for_urgent_work_alone_do_not_use_up_the_turns_of_others() -> None:
    """A general pool beside nine times as many urgent claims: 3:2:1 of what it takes."""
    fill(cast.queue("work", preset="hnl"), 120, 20, 20)
    taken: list[Lease] = []
    for _ in range(24):
        cast.claim("work", limit=3, max_priority=0, now=at(1))
        taken += one_by_one(1, "work")
    assert Counter(letters(taken)) == {"H": 12, "N": 8, "L": 4}


# Tenants


def test_tenants_take_turns_in_a_batch() -> None:
    queue = cast.queue("work", preset="hnl")
    for index, count in enumerate([40, 10, 10, 1, 1]):
        fill(queue, 0, count, tenant_id=cast.tenant(f"t{index}").pk)
    taken = names(cast.claim("work", limit=10, now=at(1)))
    assert taken == {"t0": 3, "t1": 3, "t2": 2, "t3": 1, "t4": 1}


def test_a_tenant_that_calls_all_of_its_work_urgent_gets_no_more_than_its_limit() -> None:
    fill(cast.queue(), 30, tenant_id=cast.tenant("loud").pk)
    fill(cast.queue(), 0, 10, tenant_id=cast.tenant("calm").pk)
    registry.set_quota("loud", {"max_running": 3}, actor=OPS)
    assert names(cast.claim(limit=10, now=at(1))) == {"loud": 3, "calm": 7}


def test_weights_of_tenants() -> None:
    for slug in ("heavy", "light"):
        fill(cast.queue(), 0, 0, 30, tenant_id=cast.tenant(slug).pk)
    registry.set_quota("heavy", {"weight": 2}, queue="default", actor=OPS)
    assert names(cast.claim(limit=12, now=at(1))) == {"heavy": 8, "light": 4}
    assert names(one_by_one(12)) == {"heavy": 8, "light": 4}


def crowd(count: int, jobs: int) -> None:
    tenants = [cast.tenant(f"t{index}").pk for index in range(count)]
    queue = cast.queue()
    for start in range(0, count * jobs, 1_000):
        numbers = range(start, min(start + 1_000, count * jobs))
        batch = [cast.new_job(queue=queue, tenant_id=tenants[n % count]) for n in numbers]
        for outcome in enqueue_jobs(batch, now=at(0)):
            cast.accepted(outcome)


@pytest.mark.parametrize("limit", [1, 7, 40])
def test_every_tenant_is_served_once_before_any_is_served_twice(limit: int) -> None:
    crowd(40, 3)
    seen: list[int] = []
    while len(seen) < 40:
        seen += [lease.tenant_id for lease in cast.claim(limit=min(limit, 40 - len(seen)), now=at(1))]
    assert len(set(seen)) == 40


@pytest.mark.slow
def test_a_thousand_tenants_are_served_once_each_before_any_is_served_twice() -> None:
    crowd(1_000, 100)
    seen = [lease.tenant_id for _ in range(10) for lease in cast.claim(limit=100, now=at(1))]
    assert len(seen) == len(set(seen)) == 1_000


def test_the_cursor_survives_the_process() -> None:
    """S98: thirty single claims, each by a process that remembers nothing."""
    for slug in ("a", "b", "c"):
        fill(cast.queue(), 0, 0, 20, tenant_id=cast.tenant(slug).pk)
    taken = []
    for _ in range(30):
        for module in (claiming, policies, lanes):
            module.forget()
        taken.append(cast.claim_one(now=at(1)))
    assert names(taken) == {"a": 10, "b": 10, "c": 10}


# Pauses


def test_a_paused_tenant_at_the_head_hides_nobody() -> None:
    """S96 in short: more lanes than one walk looks at, all older than the others' work."""
    paused = [cast.tenant(slug) for slug in ("paused", "paused-too")]
    jobs = [cast.new_job(tenant_id=paused[n % 2].pk, kind=f"k{n}", priority=1) for n in range(700)]
    ids = [cast.accepted(outcome).job_id for outcome in enqueue_jobs(jobs, now=at(0))]
    for index in range(20):
        fill(cast.queue(), 0, 2, tenant_id=cast.tenant(f"t{index}").pk, now=at(1))
    for tenant in paused:
        registry.pause(tenant.slug, actor=OPS)
    assert len(names(cast.claim(limit=20, now=at(2)))) == 20
    assert len(cast.claim(limit=100, now=at(3))) == 20
    assert cast.claim(limit=10, now=at(3)) == []
    for tenant in paused:
        registry.resume(tenant.slug, actor=OPS)
    assert len(cast.claim(limit=10, now=at(4))) == 10
    assert cast.read("SELECT count(*) FROM queue_readyjob WHERE job_id = ANY(%s)", [ids]) == [(690,)]


# Ageing


def test_age_raises_a_job_within_its_tenants_limit() -> None:
    """S102: L counts as N after half an hour; stored as L; not before its tenant has a slot."""
    queue = cast.queue("work", preset="hnl", ageing_s=1_800)
    held = cast.leased(queue=queue, priority=0)
    registry.set_quota("acme", {"max_running": 1}, actor=OPS)
    old = cast.enqueue(queue=queue, priority=2, now=at(0))
    for _ in range(10):
        cast.enqueue(queue=queue, priority=1, tenant_id=cast.globex().pk, now=at(1_795))
    now = at(1_801)
    assert old not in [lease.job_id for lease in cast.claim(queue, limit=4, now=now)]
    cast.renew(held, now=at(20), lease_s=3_600)
    cast.complete(held, now=at(1_802))
    taken = cast.claim(queue, limit=2, now=at(1_803))
    assert [lease.tenant_id for lease in taken].count(cast.acme().pk) == 1  # N's tenants take turns
    (aged,) = [lease for lease in taken if lease.job_id == old]
    assert aged.priority == 2


def test_age_never_reaches_a_strict_band() -> None:
    cast.queue(ageing_s=60)
    old = cast.enqueue(priority=4, now=at(0))
    urgent = cast.enqueue_many(5, priority=0, now=at(9_000))
    assert [lease.job_id for lease in cast.claim(limit=5, now=at(9_001))] == urgent
    assert cast.claim_one(now=at(9_002)).job_id == old


# Costs: two tenants with long and short jobs on the same slots


class Work(NamedTuple):
    ends: float
    lease: Lease


class Shop:
    """Slots that run jobs of known length, by the verbs at chosen instants; neither tenant ever runs out."""

    def __init__(self, lengths: dict[str, float], slots: int, cost_model: str) -> None:
        self.lengths, self.slots = lengths, slots
        self.queue = cast.queue("work", preset="hnl", cost_model=cost_model)
        self.tenants = {cast.tenant(slug).pk: slug for slug in lengths}
        self.running: list[Work] = []
        self.used: Counter[str] = Counter()

    def run(self, seconds: float) -> Counter[str]:
        """Slot-seconds that each tenant had."""
        now, folded = 0.0, 0.0
        while now < seconds:
            self.keep_full(at(now))
            free = self.slots - len(self.running)
            for lease in cast.claim(self.queue, limit=free, lease_s=600, now=at(now)) if free else []:
                slug = self.tenants[lease.tenant_id]
                self.running.append(Work(now + self.lengths[slug], lease))
                self.used[slug] += min(self.lengths[slug], seconds - now)  # type: ignore[assignment]
            now = min(work.ends for work in self.running)
            for work in [work for work in self.running if work.ends <= now]:
                self.running.remove(work)
                cast.complete(work.lease, now=at(now))
            if now - folded > 1:
                folded = now
                upkeep.fold()
                upkeep.sweep_lanes()
        return self.used

    def keep_full(self, now: datetime) -> None:
        for tenant in self.tenants:
            (ready,) = cast.read(
                "SELECT count(*) FROM queue_readyjob r JOIN queue_lane l ON l.id = r.lane_id WHERE l.tenant_id = %s",
                [tenant],
            )[0]
            if ready < self.slots:
                cast.enqueue_many(100, queue=self.queue, priority=1, tenant_id=tenant, now=now)


def share(used: Counter[str], slug: str) -> float:
    return used[slug] / sum(used.values())


def test_service_time_gives_tenants_equal_slot_seconds() -> None:
    used = Shop({"long": 30, "short": 1}, 4, "service_time").run(180)
    assert share(used, "long") == pytest.approx(0.5, abs=0.1)


def test_unit_cost_gives_the_slots_to_the_longer_jobs() -> None:
    used = Shop({"long": 30, "short": 1}, 4, "unit").run(120)
    assert share(used, "long") > 0.9


@pytest.mark.slow
def test_jobs_of_ten_milliseconds_beside_jobs_of_thirty_seconds() -> None:
    """S104 through the verbs."""
    used = Shop({"long": 30, "short": 0.01}, 2, "service_time").run(120)
    assert share(used, "long") == pytest.approx(0.5, abs=0.1)


def test_an_attempt_that_failed_is_settled_as_well() -> None:
    queue = cast.queue("work", preset="hnl", cost_model="service_time")
    lease = cast.leased(queue=queue, priority=1, now=at(0))
    cast.fail(lease, now=at(20))
    assert served(queue) == pytest.approx(20)


def served(queue: QueuePolicy) -> float:
    """What all tenants have had of a queue, in seconds."""
    upkeep.fold()
    rows: Sequence[tuple[float]] = cast.read(
        "SELECT coalesce(sum(served_s), 0) FROM queue_tenantservice WHERE queue_id = %s", [queue.id]
    )
    return rows[0][0]


def test_a_crash_is_settled_as_well() -> None:
    queue = cast.queue("work", preset="hnl", cost_model="service_time")
    cast.leased(queue=queue, priority=1, now=at(0), lease_s=30)
    upkeep.reap(now=at(40))
    assert served(queue) >= 30


# What claims leave behind


def test_old_states_are_trimmed_and_the_newest_stays() -> None:
    fill(cast.queue("work", preset="hnl"), 20, 20, 20)
    first = letters(one_by_one(4, "work"))
    upkeep.fold()
    assert cast.read("SELECT count(*) FROM queue_schedulerstate") == [(1,)]
    assert first + letters(one_by_one(8, "work")) == "HHHNNLHHHNNL"


def test_what_claims_ask_for_is_noted_now_and_then() -> None:
    for second in range(0, 40, 2):
        cast.claim(kinds=("b", "a"), max_priority=3, now=at(second))
    notes = cast.read("SELECT kinds, max_priority, seen_at FROM queue_claimclass")
    assert [(kinds, last) for kinds, last, _ in notes] == [(["b", "a"], 3)]
    assert notes[0][2] >= at(20)
    upkeep.purge(now=at(86_500))
    assert cast.read("SELECT count(*) FROM queue_claimclass") == [(0,)]
