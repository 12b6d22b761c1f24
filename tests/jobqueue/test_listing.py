"""The API's list of jobs: whatever is asked of however long a past, a page is made of few reads along indexes."""

from __future__ import annotations

import itertools
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from jobqueue import listing, search
from jobqueue.listing import JobFilter
from jobqueue.types import FLEET, Scope
from jobsplatform.errors import Unavailable
from tests import cast
from tests.cast import acme, at
from tests.plans_cast import explained, rows_read

pytestmark = pytest.mark.django_db

STATES = ("scheduled", "ready", "running", "succeeded", "dead", "cancelled", "expired")


def all_ids(wanted: JobFilter, *, scope: Scope = FLEET, limit: int = 5) -> list[int]:
    """Through all pages."""
    seen: list[int] = []
    before: listing.Place | None = None
    while True:
        views, before = listing.page(wanted, scope=scope, before=before, limit=limit)
        seen += [view.job_id for view in views]
        if before is None:
            return seen


@pytest.fixture
def past(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Some jobs in each state, old ones of a rare kind below many others; and windows far smaller than all of it."""
    monkeypatch.setattr(search, "WINDOW", 40)
    monkeypatch.setattr(search, "FEW", 40)
    cast.graveyard(60, now=at(0))
    for n in range(3):
        cast.cancel(cast.enqueue(now=at(1 + n)), now=at(5))
        cast.complete(cast.leased(now=at(1 + n), kind="done"), now=at(2 + n))
        cast.leased(now=at(3 + n), kind="long", lease_s=43_200)
    old = cast.enqueue(now=at(8), kind="rare", request_key="k-7", priority=1)
    cast.enqueue_many(300, now=at(3_600), kind="common")
    cast.enqueue_many(60, now=at(3_600), delay_s=86_400)
    return {"old": old}


NARROWING: dict[str, Any] = {
    "queue_id": 0,  # of the queue `default`
    "kind": "rare",
    "priority": 1,
    "created_after": at(-60),
    "created_before": at(1_800),
}
FILTERS = [
    dict(chosen) for count in (0, 1, 2, 5) for chosen in itertools.combinations(NARROWING.items(), count)
]


def test_every_combination_of_filters_reads_along_indexes_and_no_more_than_a_window(
    past: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the fleet and for a tenant, in any state and in none; one look for a page, not the looks of a full answer."""
    monkeypatch.setattr(listing, "LOOK_SECONDS", 0)
    queue_id = cast.queue().id
    asked = [
        (JobFilter(state=state, **chosen | ({"queue_id": queue_id} if "queue_id" in chosen else {})), scope)
        for chosen in FILTERS
        for state in (None, *STATES)
        for scope in (FLEET, cast.scope_of(acme()))
    ]
    asked += [(JobFilter(state=state), Scope(queue_ids=(queue_id,))) for state in (None, *STATES)]
    for wanted, scope in asked:
        plans = explained(
            partial(listing.page, wanted, scope=scope, before=None, limit=20),
            "jobqueue/search",
            "jobqueue/job_views",
        )
        assert plans, wanted
        for plan in plans:
            assert max(rows_read(plan).values(), default=0) <= 130, (wanted, scope, plan)


@pytest.mark.parametrize("scope", ["fleet", "tenant"])
def test_all_pages_together_are_all_that_fits(past: dict[str, int], scope: str) -> None:
    """However many windows lie between."""
    whose = FLEET if scope == "fleet" else cast.scope_of(acme())
    assert all_ids(JobFilter(kind="rare"), scope=whose) == [past["old"]]
    assert all_ids(JobFilter(kind="rare", state="ready"), scope=whose) == [past["old"]]
    assert all_ids(JobFilter(priority=1), scope=whose) == [past["old"]]
    assert all_ids(JobFilter(request_key="k-7"), scope=whose) == [past["old"]]
    assert all_ids(JobFilter(request_key="k-7", state="dead"), scope=whose) == []
    assert len(all_ids(JobFilter(state="dead"), scope=whose)) == 60
    assert len(all_ids(JobFilter(created_before=at(1_800)), scope=whose)) == 10 + 60
    assert len(all_ids(JobFilter(created_after=at(1_800), kind="common"), scope=whose)) == 300
    everything = all_ids(JobFilter(), scope=whose, limit=50)
    assert len(everything) == 10 + 60 + 360
    assert everything == sorted(everything, reverse=True)


def test_each_state_lists_its_own(past: dict[str, int]) -> None:
    counts = {state: len(all_ids(JobFilter(state=state))) for state in STATES}
    assert counts == {
        "scheduled": 60,
        "ready": 301,
        "running": 3,
        "succeeded": 3,
        "dead": 60,
        "cancelled": 3,
        "expired": 0,
    }


def test_a_page_that_finds_nothing_yet_says_where_to_go_on(
    past: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOK_SECONDS", 0)
    views, before = listing.page(JobFilter(kind="rare"), scope=FLEET, before=None, limit=5)
    assert views == []
    assert before is not None


def test_a_short_past_is_looked_through_by_one_call(
    past: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOK_SECONDS", 60)
    views, before = listing.page(JobFilter(kind="rare"), scope=FLEET, before=None, limit=5)
    assert ([view.job_id for view in views], before) == ([past["old"]], None)


def test_another_tenants_jobs_are_on_no_page(past: dict[str, int]) -> None:
    mine = cast.enqueue(now=at(0), tenant_id=cast.globex().pk)
    for wanted in (JobFilter(), JobFilter(state="ready"), JobFilter(created_after=at(-60))):
        assert all_ids(wanted, scope=cast.mallory()) == [mine]
    assert all_ids(JobFilter(request_key="k-7"), scope=cast.mallory()) == []
    assert all_ids(JobFilter(state="dead"), scope=cast.mallory()) == []


def test_a_list_without_any_shard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> object:
        raise Unavailable

    monkeypatch.setattr(search, "_read", away)
    with pytest.raises(Unavailable):
        listing.page(JobFilter(), scope=FLEET, before=None, limit=5)
    with pytest.raises(Unavailable):
        listing.page(JobFilter(), scope=FLEET, before=None, limit=5, unknown=[])


def test_instants_bound_a_list_to_the_microsecond() -> None:
    ids = [cast.enqueue(now=at(n)) for n in range(4)]
    step = timedelta(microseconds=1)
    assert all_ids(JobFilter(created_after=at(1))) == [ids[3], ids[2]]
    assert all_ids(JobFilter(created_after=at(1) - step)) == [ids[3], ids[2], ids[1]]
    assert all_ids(JobFilter(created_before=at(1))) == [ids[0]]
    assert all_ids(JobFilter(created_before=at(1) + step, created_after=at(0))) == [ids[1]]
