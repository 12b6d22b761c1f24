"""Claims that race for a dependency: its limit holds, a half-open breaker gets one probe, budgets are spent once."""

from __future__ import annotations

from functools import partial

import pytest

from jobqueue import dependencies, judging, upkeep
from jobqueue.claiming import Lease
from tests import cast
from tests.cast import OPS, together

pytestmark = pytest.mark.django_db(transaction=True)


def _flat(answers: list[list[Lease] | BaseException]) -> list[Lease]:
    found: list[Lease] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found += answer
    return found


def test_parallel_claims_never_pass_what_a_dependency_bears() -> None:
    other = cast.queue("other")
    dependencies.set_dependency("d", {"max_running": 7}, actor=OPS)
    for queue in (cast.queue(), other):
        for tenant in (cast.acme(), cast.globex()):
            cast.enqueue_many(30, queue=queue, tenant_id=tenant.pk, dependency="d", priority=1, now=None)
            cast.enqueue_many(30, queue=queue, tenant_id=tenant.pk, dependency="d", priority=0, now=None)
    names = ("default", "other")
    found = _flat(together(*[partial(cast.claim, name, limit=3, now=None) for name in names] * 10))
    assert len(found) <= 7
    for name in names:
        found += cast.claim(name, limit=10, now=None)
    assert len(found) == 7
    assert cast.read("SELECT count(*) FROM queue_lease") == [(7,)]


def test_a_half_open_breaker_leases_one_job_to_a_hundred_claims() -> None:
    """S89: the others get other work, or nothing."""
    other = cast.queue("other")
    dependencies.set_dependency("d", {"breaker_calls": 1, "probe_after_s": 1}, actor=OPS)
    for turn in range(3):
        cast.enqueue_many(1, dependency="d", now=None)
        if turn == 0:
            (lease,) = cast.claim(now=None)
            cast.fail(lease, error_class="overload")
        for queue in (cast.queue(), other):
            cast.enqueue_many(20, queue=queue, dependency="d", now=None)
            cast.enqueue_many(25, queue=queue, kind="free", now=None)
        cast.read(
            "UPDATE queue_dependencystate SET probe_at = clock_timestamp() WHERE breaker = 'open' RETURNING 1"
        )
        judging.judge()
        claims = [partial(cast.claim, name, limit=2, now=None) for name in ("default", "other")] * 20
        found = _flat(together(*claims))
        probes = [lease for lease in found if lease.kind == "noop"]
        assert len(probes) <= 1
        probes += [
            lease
            for name in ("default", "other")
            for lease in cast.claim(name, limit=9, kinds=("noop",), now=None)
        ]
        assert len(probes) == 1
        cast.fail(probes[0], error_class="overload")


def test_judges_that_race_count_each_call_once() -> None:
    dependencies.set_dependency("d", {"max_running": 64, "breaker_share": None}, actor=OPS)
    cast.enqueue_many(60, dependency="d", now=None)
    held = cast.claim(limit=60, now=None)
    ends = [partial(cast.complete, lease) for lease in held[:30]] + [
        partial(cast.fail, lease, error_class="overload") for lease in held[30:]
    ]
    answers = together(*ends, *[judging.judge] * 4)
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    judging.judge()
    assert cast.read("SELECT sum(started), sum(succeeded), sum(failed) FROM queue_dependencytally") == [
        (60, 30, 30)
    ]
    assert cast.read("SELECT count(*) FROM queue_dependencydelta") == [(0,)]


def test_promoters_that_race_spend_a_budget_once() -> None:
    cast.queue(retry_budget_share=0, retry_budget_burst=5, backoff_base_s=0.1, backoff_cap_s=0.1)
    cast.enqueue_many(40, now=None)
    for lease in cast.claim(limit=40, now=None):
        cast.fail(lease)
    cast.read("UPDATE queue_scheduledjob SET due_at = clock_timestamp() RETURNING 1")
    answers = together(*[upkeep.promote] * 8)
    assert sum(answer for answer in answers if isinstance(answer, int)) == 5
    assert cast.read("SELECT count(*) FROM queue_readyjob") == [(5,)]
