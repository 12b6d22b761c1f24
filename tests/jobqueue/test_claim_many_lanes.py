"""A tenant with more lanes in a band than one walk looks at."""

from __future__ import annotations

import pytest

from jobqueue.enqueue import enqueue
from jobqueue.limits import CLAIM_PROBES_MAX, LANES_MAX
from jobqueue.types import FLEET, Scope
from tests import cast
from tests.cast import BEGINNING, acme, at, globex

pytestmark = pytest.mark.django_db(transaction=True)

LAST_KIND = f"k{LANES_MAX - 1:03}"


def crowd_of_kinds(tenant_id: int | None = None) -> int:
    """Work of as many kinds as a tenant may have; returns the job of the newest."""
    tenant_id = tenant_id or acme().pk
    jobs = [cast.new_job(kind=f"k{number:03}", tenant_id=tenant_id) for number in range(LANES_MAX)]
    return cast.accepted(enqueue(jobs, now=BEGINNING)[-1]).job_id


@pytest.mark.parametrize("is_fleet", [True, False])
def test_the_newest_of_a_tenant_s_many_kinds_is_found(is_fleet: bool) -> None:
    """One walk meets all lanes that a tenant may have in a band."""
    last = crowd_of_kinds()
    scope = FLEET if is_fleet else Scope(tenant_id=acme().pk)
    assert [lease.job_id for lease in cast.claim(kinds=(LAST_KIND,), scope=scope)] == [last]


def test_the_newest_kind_of_a_tenant_is_found_behind_another_with_as_many() -> None:
    """The first walk ends among the second tenant's lanes, the next begins with them all."""
    acme(), globex()
    first, second = (crowd_of_kinds(tenant.pk) for tenant in (acme(), globex()))
    found = [lease.job_id for _ in range(2) for lease in cast.claim(kinds=(LAST_KIND,))]
    assert found == [first, second]


def test_a_walk_looks_at_more_lanes_than_a_tenant_may_have() -> None:
    assert LANES_MAX < CLAIM_PROBES_MAX


def test_the_oldest_job_of_a_tenant_is_first_however_many_kinds_it_has() -> None:
    kinds = [f"k{number}" for number in range(12)]
    for kind in kinds:  # lanes in this order
        cast.enqueue(kind=kind, now=at(0))
    cast.claim(limit=12, now=at(0))
    oldest = cast.enqueue(kind=kinds[-1], now=at(10))
    for kind in kinds[:-1]:
        cast.enqueue(kind=kind, now=at(20))
    assert [lease.job_id for lease in cast.claim(now=at(30))] == [oldest]


def test_no_kind_of_a_tenant_starves_behind_others_that_are_never_empty() -> None:
    kinds = [f"k{number}" for number in range(12)]
    for kind in kinds:
        cast.enqueue_many(5, kind=kind, now=at(0))
    met: set[str] = set()
    for turn in range(200):
        (lease,) = cast.claim(now=at(turn))
        met.add(lease.kind)
        cast.complete(lease, now=at(turn))
        cast.enqueue(kind=lease.kind, now=at(turn))  # each kind always has work
    assert met == set(kinds)
