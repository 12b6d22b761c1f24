"""Finding jobs: by every field, page by page over all of them, never beyond the asker's tenant, in bounded reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobqueue import query, search
from jobqueue.query import BadQuery
from jobqueue.types import FLEET, Scope
from jobsplatform import merging, sql
from jobsplatform.errors import Invalid, Unavailable
from tests import cast
from tests.cast import SHARD, at
from tests.plans_cast import explained, rows_read

pytestmark = pytest.mark.django_db


def found(text: str, *, scope: Scope = FLEET, limit: int = 50, **more: Any) -> list[int]:
    return [line.job_id for line in asked(text, scope=scope, limit=limit, **more).rows]


def asked(text: str, *, scope: Scope = FLEET, limit: int = 50, **more: Any) -> search.Page:
    return search.page(query.parse(text), scope=scope, limit=limit, **more)


@pytest.fixture
def jobs() -> dict[str, int]:
    """One job in each state, and one of globex."""
    done = cast.leased(kind="mail", request_key="k-1")
    cast.complete(done, now=at(1))
    dead = cast.buried(now=at(2), kind="mail", error_class="permanent")
    cancelled = cast.enqueue(now=at(3))
    cast.cancel(cancelled, now=at(4))
    running = cast.leased(now=at(5), priority=0)
    theirs = cast.enqueue(now=at(6), tenant_id=cast.globex().pk, request_key="k-1")
    scheduled = cast.enqueue(now=at(7), delay_s=60, priority=4)
    return {
        "succeeded": done.job_id,
        "dead": dead,
        "cancelled": cancelled,
        "running": running.job_id,
        "ready": theirs,
        "scheduled": scheduled,
    }


@pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled", "running", "ready", "scheduled"])
def test_each_state_finds_its_job(jobs: dict[str, int], state: str) -> None:
    assert found(f"state:{state}") == [jobs[state]]
    (line,) = asked(f"state:{state}").rows
    assert line.state == state


def test_nothing_asked_finds_all_newest_first(jobs: dict[str, int]) -> None:
    assert found("") == sorted(jobs.values(), reverse=True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("kind:mail", ["dead", "succeeded"]),
        ("kind:mail state:succeeded", ["succeeded"]),
        ("kind:mail state:dead", ["dead"]),
        ("tenant:globex", ["ready"]),
        ("tenant:acme state:ready", []),
        ("tenant:acme state:cancelled", ["cancelled"]),
        ("key:k-1", ["ready", "succeeded"]),
        ("key:k-1 tenant:acme", ["succeeded"]),
        ("key:k-1 state:ready", ["ready"]),
        ("key:k", []),
        ("priority:0", ["running"]),
        ("priority:0..2 state:running", ["running"]),
        ("priority:P4 queue:default", ["scheduled"]),
        ("queue:default state:scheduled", ["scheduled"]),
        ("error:permanent", ["dead"]),
        ("error:invalid", ["dead"]),
        ("error:exhausted", []),
        ("error:BOOM", ["dead"]),
        ("error:boom state:succeeded", []),
        ("error:invalid state:running", []),
        ("state:expired", []),
    ],
)
def test_fields_narrow(jobs: dict[str, int], text: str, names: list[str]) -> None:
    assert found(text) == sorted((jobs[name] for name in names), reverse=True)


def test_an_error_is_found_by_its_fingerprint(jobs: dict[str, int]) -> None:
    print_of = cast.row("dlq_deadletter", jobs["dead"])["fingerprint"]
    assert found(f"error:{print_of}") == [jobs["dead"]]
    assert found("error:0123456789abcdef") == []


def test_a_job_is_found_by_its_id(jobs: dict[str, int]) -> None:
    assert found(f"0-{jobs['ready']}") == [jobs["ready"]]
    assert found(f"id:0-{jobs['ready']} state:dead") == []
    assert found("id:0-999999") == []
    assert found("id:9-1") == []


def test_age_is_since_acceptance() -> None:
    ids = [cast.enqueue(now=at(600 * n)) for n in range(6)]
    now = at(3_000)
    assert found("age:>20m", now=now) == ids[2::-1]
    assert found("age:<20m", now=now) == ids[:3:-1]
    assert found("age:>10m age:<40m", now=now) == ids[3:1:-1]


def test_a_place_in_the_ids_is_found_by_halving() -> None:
    ids = [cast.enqueue(now=at(10 * n)) for n in range(40)]
    for n in (0, 1, 17, 39):
        assert sql.rows("jobqueue/job_id_at", {"at": at(10 * n)}, alias=SHARD) == [(ids[n],)]
    assert sql.rows("jobqueue/job_id_at", {"at": at(9_999)}, alias=SHARD) == [(ids[-1] + 1,)]


@pytest.mark.parametrize(
    "text",
    ["tenant:nobody", "queue:nowhere", "priority:P9 queue:default", "priority:H", "priority:7 queue:nowhere"],
)
def test_names_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        asked(text)


# Pages


@pytest.mark.parametrize("text", ["", "kind:noop", "tenant:acme", "state:ready", "state:ready kind:noop"])
def test_pages_join_without_gap_or_repeat(text: str) -> None:
    cast.acme()
    ids = cast.enqueue_many(23)
    seen: list[int] = []
    place: search.Place | None = None
    while True:
        page = asked(text, limit=5, before=place)
        seen += [line.job_id for line in page.rows]
        if page.following is None:
            break
        place = merging.parse_place(merging.place_text(page.following))
    assert seen == ids[::-1]


def test_jobs_made_meanwhile_do_not_move_a_page() -> None:
    ids = cast.enqueue_many(6)
    first = asked("", limit=3)
    cast.enqueue_many(4)
    assert [line.job_id for line in asked("", limit=3, before=first.following).rows] == ids[2::-1]


def test_a_window_ends_a_search_and_says_how_far_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WINDOW", 6)
    old = cast.enqueue(now=at(0), kind="rare")
    for n in range(1, 11):
        cast.enqueue(now=at(n))
    page = asked("kind:rare", limit=5)
    assert page.rows == []
    assert page.searched_back_to == at(5)
    rest = asked("kind:rare", limit=5, before=page.following)
    assert [line.job_id for line in rest.rows] == [old]
    assert (rest.following, rest.searched_back_to) == (None, None)


def test_few_jobs_of_a_lane_are_found_behind_many_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WINDOW", 6)
    old = cast.enqueue(now=at(0), kind="rare")
    cast.enqueue_many(10)
    page = asked("kind:rare state:ready", limit=5)
    assert [line.job_id for line in page.rows] == [old]
    assert page.following is None


@pytest.mark.parametrize(
    "text", ["x", "0.-1", "0.1~", "1.99999999999999999999", "0.9223372036854775808", "٣.1"]
)
def test_a_text_that_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        merging.parse_place(text)


def _merged(parts: Any, limit: int) -> search.Page:
    return merging.merged(parts, limit=limit, at=lambda one: one.created_at, id_of=lambda one: one.job_id)


def test_two_shards_are_one_list() -> None:
    """By the pure part: each shard goes on where its last shown line stands."""

    def line(job_id: int, second: int) -> Any:
        values: dict[str, Any] = dict.fromkeys(search.JobLine._fields)
        return search.JobLine(**values | {"job_id": job_id, "created_at": at(second)})

    parts = [
        merging.Part(0, [line(9, 9), line(5, 5)], 5),
        merging.Part(1, [line(104, 8), line(103, 7), line(102, 3)], 0),
    ]
    page = _merged(parts, 3)
    assert [one.job_id for one in page.rows] == [9, 104, 103]
    assert page.following == {0: 9, 1: 103}
    page = _merged(parts, 1)
    assert page.following == {0: 9, 1: 105}


def test_a_shard_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise Unavailable

    monkeypatch.setattr(search, "_read", away)
    page = asked("", before={0: 17})
    assert page.unknown == [0]
    assert page.rows == []
    assert page.following == {0: 17}


# Whose


def test_a_tenants_search_stays_within_the_tenant(jobs: dict[str, int]) -> None:
    theirs = cast.mallory()
    assert found("", scope=theirs) == [jobs["ready"]]
    for name, job_id in jobs.items():
        if name != "ready":
            assert found(f"id:0-{job_id}", scope=theirs) == []
            assert found(f"state:{name}", scope=theirs) == []
    assert found("key:k-1", scope=theirs) == [jobs["ready"]]
    assert found("error:boom", scope=theirs) == []
    assert found("error:invalid", scope=theirs) == []


def test_a_tenant_named_in_a_query_of_another_tenant_matches_nothing(jobs: dict[str, int]) -> None:
    """Even where an edge let the field through: and existing and absent tenants look the same."""
    assert asked("tenant:acme", scope=cast.mallory()) == asked("tenant:nobody", scope=cast.mallory())
    assert found("tenant:acme", scope=cast.mallory()) == []
    assert found("tenant:globex", scope=cast.mallory()) == [jobs["ready"]]


@pytest.mark.parametrize(
    "text", ["state:ready", "kind:noop state:ready", "", "kind:other", "error:boom", "age:>1s"]
)
def test_a_tenants_search_ends_at_no_job_of_another(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where it goes on nor how far back it got tells of jobs that are not its own."""
    monkeypatch.setattr(search, "WINDOW", 4)
    monkeypatch.setattr(search, "FEW", 2)
    mine = set()
    for n in range(12):
        mine.add(cast.enqueue(now=at(100 * n), tenant_id=cast.globex().pk))
        cast.enqueue_many(10, now=at(100 * n + 50))
    place: search.Place | None = None
    for _ in range(12):
        page = asked(text, scope=cast.mallory(), limit=3, before=place, now=at(9_999))
        assert {line.job_id for line in page.rows} <= mine
        assert page.searched_back_to is None or page.searched_back_to in {at(100 * n) for n in range(12)}
        if page.following is None:
            break
        assert set(page.following.values()) <= mine | {0}
        place = page.following
    assert page.following is None


def test_a_scope_of_queues_holds_too(jobs: dict[str, int]) -> None:
    other = cast.queue("other")
    there = cast.enqueue(queue=other)
    for text in ("", "state:ready", "tenant:acme", f"id:0-{there}"):
        assert found(text, scope=Scope(queue_ids=(other.id,))) == [there]


# Bounds


QUERIES = [
    "",
    "state:ready",
    "state:dead",
    "state:succeeded",
    "state:cancelled",
    "tenant:acme",
    "tenant:acme state:succeeded",
    "kind:rare",
    "kind:rare state:ready",
    "priority:0..1 state:scheduled",
    "key:k-7",
    "error:boom",
    "error:exhausted tenant:acme",
    "age:>1h queue:default",
]


@pytest.mark.parametrize("text", QUERIES)
def test_every_search_reads_along_indexes_and_no_more_than_its_window(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "WINDOW", 40)
    monkeypatch.setattr(search, "FEW", 40)
    cast.graveyard(60)
    cast.enqueue_many(300, kind="common")
    cast.enqueue_many(60, delay_s=60)
    cast.enqueue(kind="rare", request_key="k-7")
    plans = explained(
        lambda: asked(text, limit=20, now=at(0) + timedelta(hours=2)), "jobqueue/search", "jobqueue/job_lines"
    )
    assert plans
    for plan in plans:
        assert max(rows_read(plan).values(), default=0) <= 130, plan
