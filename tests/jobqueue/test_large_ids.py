"""Ids beyond 2^31 go through every verb, every read and every table."""

from __future__ import annotations

import pytest
from django.db import connections

from dlq import reads as desk
from dlq.reads import DeadFilter
from jobqueue import listing, reads, upkeep
from jobqueue.ids import format_id, parse_id
from jobqueue.listing import JobFilter
from jobqueue.types import FLEET
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db

EDGE = 2**31


@pytest.fixture(autouse=True)
def _sequences_near_the_edge() -> None:
    """S130: every sequence of the job's path stands two before it."""
    cast.acme()
    for alias in ("default", cast.SHARD):
        names = cast.read(
            "SELECT sequencename FROM pg_sequences WHERE sequencename ~ '^(queue|dlq|tenants)_'", alias=alias
        )
        with connections[alias].cursor() as cursor:
            for (name,) in names:
                cursor.execute("SELECT setval(%s, %s)", [name, EDGE - 2])


def test_ten_jobs_live_across_the_edge() -> None:
    ids = [cast.enqueue(now=at(0), kind=f"kind-{turn}", request_key=f"k-{turn}") for turn in range(10)]
    assert ids[0] < EDGE < ids[-1]
    held = cast.claim(now=at(1), limit=10)
    assert [lease.job_id for lease in held] == ids
    for lease in held[:4]:
        cast.renew(lease, now=at(2), checkpoint="1")
        cast.complete(lease, now=at(3))
    for lease in held[4:7]:
        assert cast.fail(lease, now=at(3), error_class="permanent").state == "dead"
        cast.correct(lease.job_id)
        assert cast.redriven(lease.job_id, now=at(4)).state == "ready"
    cast.release(held[7], now=at(3))
    cast.cancel(held[7].job_id, now=at(4))
    upkeep.reap(now=at(60))
    again = cast.claim(now=at(61), limit=10)
    assert {lease.job_id for lease in again} == set(ids[4:7] + ids[8:])
    for lease in again:
        cast.complete(lease, now=at(62))
    states = [reads.job(job_id, scope=FLEET).state for job_id in ids]
    assert states == ["succeeded"] * 7 + ["cancelled"] + ["succeeded"] * 2


def test_lists_page_across_the_edge() -> None:
    ids = [cast.enqueue(now=at(0)) for _ in range(6)]
    seen, before = [], None
    while True:
        page, before = listing.page(JobFilter(), scope=FLEET, before=before, limit=2)
        seen += [view.job_id for view in page]
        if before is None:
            break
    assert seen == ids[::-1]


def test_dead_letters_page_across_the_edge() -> None:
    ids = [cast.buried(now=at(turn * 5)) for turn in range(5)]
    first, place = desk.page(DeadFilter(), scope=FLEET, before=None, limit=3)
    rest, _ = desk.page(DeadFilter(), scope=FLEET, before=place, limit=3)
    assert [view.job_id for view in first + rest] == ids[::-1]


def test_ids_are_text_outside() -> None:
    job_id = [cast.enqueue() for _ in range(4)][-1]
    assert format_id(job_id) == f"0-{job_id}"
    assert parse_id(format_id(job_id)) == job_id


def test_upkeep_folds_and_purges_across_the_edge() -> None:
    for _ in range(4):
        cast.complete(cast.leased(now=at(0)), now=at(1))
    assert upkeep.fold() == 8 + 3  # ledger rows, and scheduler states before the newest
    assert upkeep.purge(now=at(40 * 86_400)) >= 4
