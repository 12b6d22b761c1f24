"""A tenant with more lanes in a band than one walk looks at."""

from __future__ import annotations

import pytest

from jobqueue.enqueue import enqueue
from jobqueue.limits import CLAIM_PROBES_MAX
from jobqueue.types import FLEET, Scope
from tests import cast
from tests.cast import BEGINNING, acme, at

pytestmark = pytest.mark.django_db(transaction=True)


def crowd_of_kinds() -> int:
    """Work of more kinds than a walk looks at; returns the job of the newest."""
    jobs = [cast.new_job(kind=f"k{number:03}") for number in range(CLAIM_PROBES_MAX + 20)]
    return cast.accepted(enqueue(jobs, now=BEGINNING)[-1]).job_id


@pytest.mark.xfail(strict=True, reason="a walk goes on behind a tenant, never within one")
@pytest.mark.parametrize("is_fleet", [True, False])
def test_the_newest_of_a_tenant_s_many_kinds_is_found(is_fleet: bool) -> None:
    last = crowd_of_kinds()
    scope = FLEET if is_fleet else Scope(tenant_id=acme().pk)
    kind = f"k{CLAIM_PROBES_MAX + 19:03}"
    found = [lease.job_id for _ in range(5) for lease in cast.claim(kinds=(kind,), scope=scope)]
    assert found == [last]


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
