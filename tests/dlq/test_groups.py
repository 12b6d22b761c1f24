"""Dead letters by the fault that they share, lists of some lanes, and the alarm when they grow."""

from __future__ import annotations

from typing import Any

import pytest

from dlq import groups, reads
from dlq.groups import GrowthAlarm
from dlq.reads import DeadFilter
from jobqueue import upkeep
from jobqueue.types import FLEET, Scope
from jobsplatform import events
from tests import cast
from tests.cast import acme, at, globex
from tests.commands_cast import run

pytestmark = pytest.mark.django_db


def _dead(count: int, message: str, *, now: float = 0, **changes: Any) -> None:
    cast.enqueue_many(count, now=at(now), max_attempts=1, **changes)
    cast.kill(cast.claim(now=at(now), limit=100), now=at(now + 1), message=message)


def _page(scope: Scope = FLEET, limit: int = 50) -> list[groups.Group]:
    return groups.page(scope=scope, before=None, limit=limit)[0]


def test_a_group_spans_lanes_and_tells_first_and_last() -> None:
    _dead(2, "user 1 is gone", now=0, kind="a")
    _dead(3, "user 2 is gone", now=10, kind="b", priority=1)
    (group,) = _page()
    assert (group.count, group.kinds, group.is_capped) == (5, ["a", "b"], False)
    assert (group.first_seen, group.last_seen) == (at(1), at(11))
    assert (group.error_class, group.sample) == ("transient", "user 2 is gone")


def test_the_latest_group_comes_first_and_pages_have_no_gaps() -> None:
    words = ["one", "two", "three", "four", "five"]
    for turn, word in enumerate(words):
        _dead(1, word, now=10 * turn)
    seen, before = [], None
    while True:
        page, before = groups.page(scope=FLEET, before=before, limit=2)
        seen += [group.sample for group in page]
        if before is None:
            break
    assert seen == words[::-1]


def test_a_noisy_tenant_hides_nobody_s_groups_and_a_cut_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for turn, word in enumerate("abcdefgh"):
        _dead(1, f"fault {word}", now=10 * turn)
    _dead(1, "quiet", now=100, tenant_id=globex().pk)
    assert (len(_page()), any(group.is_cut for group in _page())) == (9, False)
    monkeypatch.setattr(groups, "ERRORS_MAX", 8)
    monkeypatch.setattr(groups, "PAIRS_MAX", 4)
    assert len(_page()) == 4
    assert "quiet" in [group.sample for group in _page()]
    assert all(group.is_cut and group.is_capped for group in _page())
    assert "Not all errors were looked at" in run("dlq", "groups").out


def test_a_count_ends_at_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "COUNT_CAP", 3)
    _dead(5, "boom")
    assert (_page()[0].count, _page()[0].is_capped) == (4, True)


def test_a_tenant_s_groups_count_its_own_alone() -> None:
    _dead(3, "boom")
    _dead(2, "boom", now=5, tenant_id=globex().pk)
    assert [group.count for group in _page(cast.mallory())] == [2]
    assert _page()[0].tenant_ids == sorted([acme().pk, globex().pk])


def test_a_narrow_token_s_groups_are_of_its_queues() -> None:
    other = cast.queue("other")
    _dead(3, "boom")
    job_id = cast.buried(queue=other, now=at(5))
    (group,) = _page(Scope(acme().pk, (other.id,)))
    assert (group.count, group.fingerprint) == (1, reads.dead_letter(job_id, scope=FLEET).fingerprint)


def test_what_was_redriven_is_in_no_group() -> None:
    cast.redriven(cast.buried())
    assert _page() == []


# Lists of some lanes


def _ids(wanted: DeadFilter, scope: Scope = FLEET) -> list[int]:
    seen, before = [], None
    while True:
        page, before = reads.page(wanted, scope=scope, before=before, limit=2)
        seen += [view.job_id for view in page]
        if before is None:
            return seen


@pytest.mark.parametrize("by", ["tenant", "kind", "queue", "fingerprint"])
def test_a_list_of_some_lanes_is_newest_first_without_gaps(by: str) -> None:
    q = cast.queue("other")
    mine = [
        cast.buried(
            now=at(10 * turn),
            kind="odd",
            queue=q,
            priority=turn % 3,
            tenant_id=globex().pk,
            error_class="uncertain",
        )
        for turn in range(7)
    ]
    cast.graveyard(4, now=at(90))
    fingerprint = reads.dead_letter(mine[0], scope=FLEET).fingerprint
    found = {
        "tenant": lambda: _ids(DeadFilter(), cast.mallory()),
        "kind": lambda: _ids(DeadFilter(kind="odd")),
        "queue": lambda: _ids(DeadFilter(queue_id=q.id)),
        "fingerprint": lambda: _ids(DeadFilter(fingerprint=fingerprint)),
    }[by]()
    assert found == mine[::-1]


def test_a_list_ends_before_an_instant() -> None:
    early = cast.buried(now=at(0))
    cast.buried(now=at(10))
    assert _ids(DeadFilter(failed_before=at(5))) == [early]
    assert _ids(DeadFilter(failed_before=at(5), kind="noop")) == [early]


# Growth


def _growth(recent: int, before: int) -> None:
    if before:
        _dead(before, "boom", now=60)
    if recent:
        _dead(recent, "boom", now=3_600)
    upkeep.fold()


def test_growth_compares_lately_with_usually() -> None:
    _growth(recent=60, before=24)
    (one,) = groups.growth(now=at(3_650))
    assert (one.queue, one.recent, one.usual) == ("default", 60, 2.0)
    assert one.is_alarming


@pytest.mark.parametrize(("recent", "before"), [(groups.GROWTH_MIN - 1, 0), (0, 90)])
def test_few_or_none_lately_alarm_nobody(recent: int, before: int) -> None:
    _growth(recent, before)
    assert not any(one.is_alarming for one in groups.growth(now=at(3_650)))


def test_what_is_usual_alarms_nobody() -> None:
    assert not groups.Growth(1, "q", recent=100, usual=50.0).is_alarming
    assert groups.Growth(1, "q", recent=150, usual=50.0).is_alarming


def test_the_alarm_is_told_once_while_it_lasts() -> None:
    told: list[dict[str, Any]] = []
    stop = events.subscribe(
        lambda name, fields: told.append(fields) if name == "dead_letters_growing" else None
    )
    try:
        _growth(recent=60, before=0)
        alarm = GrowthAlarm()
        assert [alarm.watch(now=at(3_650)), alarm.watch(now=at(3_651))] == [1, 0]
        assert alarm.watch(now=at(9_000)) == 0
        assert alarm.watch(now=at(3_652)) == 1  # it was over, and began anew
    finally:
        stop()
    assert told[0] == {"queue": "default", "count": 1, "recent": 60, "usual": 0.0}
