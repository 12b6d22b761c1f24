"""Campaigns under races and crashes: dispatchers side by side, people in between, a kill at any point."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from django.db import connections

from dlq import campaigns, fork, pacing
from dlq.campaigns import CampaignFilter
from dlq.models import Campaign
from jobqueue import fsck
from jobqueue.types import FLEET
from jobsplatform.errors import JobsPlatformError
from tests import cast
from tests.cast import OPS, acme, at, together
from tests.concurrency.test_crash_points import POINTS_MAX, crashing

pytestmark = pytest.mark.django_db(transaction=True)

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
PATIENCE_SECONDS = 120
RSS_GROWTH_KB_MAX = 30 * 1024


def _redrives(made: Campaign) -> list[int]:
    rows = cast.read("SELECT job_id FROM dlq_redrive WHERE campaign_id = %s ORDER BY 1", [made.pk])
    return [job_id for (job_id,) in rows]


def _state(made: Campaign) -> str:
    return str(Campaign.objects.get(pk=made.pk).state)


# Dispatchers side by side


def test_dispatchers_at_once_redrive_each_job_once() -> None:
    ids = cast.graveyard(120)
    made = cast.campaign(now=at(9))

    def dispatch() -> int:
        return sum(pacing.advance(now=at(10 + turn)) for turn in range(12))

    answers = together(*[dispatch] * 4)
    assert sum(answer for answer in answers if isinstance(answer, int)) == 120
    assert _redrives(made) == ids
    view = cast.progress_of(made)
    assert (view.campaign.state, view.redriven, dict(view.skipped)) == ("done", 120, {})
    assert cast.audited("job.redrive") == 120
    assert list(fsck.check()) == []


def test_people_and_a_campaign_redrive_the_same_letters_once() -> None:
    ids = cast.graveyard(60)
    made = cast.campaign(now=at(9), rate_per_s=20)

    def dispatch() -> None:
        for turn in range(20):
            pacing.advance(now=at(10 + turn))

    def people(part: list[int]) -> int:
        won = 0
        for job_id in part:
            try:
                cast.correct(job_id)
                cast.redriven(job_id)
                won += 1
            except JobsPlatformError:
                continue
        return won

    answers = together(dispatch, partial(people, ids[::-2]), partial(people, ids[::3]))
    won = sum(answer for answer in answers if isinstance(answer, int))
    pacing.advance(now=at(100))
    pacing.advance(now=at(101))
    view = cast.progress_of(made)
    assert view.redriven + won == 60
    assert view.redriven + view.skipped.get("already_redriven", 0) == 60
    assert cast.audited("job.redrive") == 60
    assert {cast.place(job_id) for job_id in ids} == {"readyjob"}


def test_nothing_is_redriven_after_a_pause_has_answered() -> None:
    cast.graveyard(100)
    made = cast.campaign(now=at(9), rate_per_s=10)
    counts: list[int] = []

    def dispatch() -> None:
        for turn in range(30):
            pacing.advance(now=at(10 + turn))

    def pause() -> None:
        campaigns.pause(made.pk, scope=FLEET, actor=OPS)
        counts.append(len(_redrives(made)))

    together(dispatch, dispatch, pause)
    assert _state(made) == "paused"
    assert len(_redrives(made)) == counts[0]


def test_the_same_key_at_once_makes_one_campaign() -> None:
    cast.graveyard(5)
    make = partial(cast.campaign, now=at(9), idempotency_key="k")
    answers = together(*[make] * 8)
    assert {answer.pk for answer in answers if isinstance(answer, Campaign)} == {Campaign.objects.get().pk}
    assert all(isinstance(answer, Campaign) for answer in answers), answers


def test_forks_with_one_key_at_once_are_one_job() -> None:
    job_id = cast.buried()
    new = fork.NewFork(request_key="new", note="n", actor=OPS)
    answers = together(*[partial(fork.fork, job_id, new, scope=cast.scope_of(acme()))] * 8)
    made = [answer for answer in answers if isinstance(answer, fork.Forked)]
    assert len(made) == 8, answers
    assert len({answer.job_id for answer in made}) == 1
    assert [answer.replayed for answer in made].count(False) == 1
    assert cast.read("SELECT count(*) FROM dlq_fork") == [(1,)]


# A session ends after every statement


def test_a_batch_that_dies_after_any_statement_is_done_once_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each point on fresh dead letters; the last run saw no crash, so every statement had its turn."""
    monkeypatch.setattr(
        pacing, "follow", int
    )  # one statement for each earlier campaign, and no part of a batch
    for point in range(1, POINTS_MAX):
        queue = cast.queue(f"q{point}")
        ids = cast.graveyard(3, queue=queue)
        made = cast.campaign(now=at(9), chosen=CampaignFilter(queue_id=queue.id))
        with crashing(point) as crash, suppress(JobsPlatformError):
            pacing.advance(now=at(10))
        connections.close_all()
        for turn in range(3):
            pacing.advance(now=at(20 + turn))
        view = cast.progress_of(made)
        assert (view.campaign.state, view.matches, view.redriven) == ("done", 3, 3), point
        assert _redrives(made) == ids
        if not crash.struck:
            break
    else:
        raise AssertionError("a pass has more statements than were tried")
    assert point > 6
    assert cast.audited("job.redrive") == 3 * point
    assert list(fsck.check()) == []


# kill -9


def _dispatcher(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(MANAGE), "rundispatcher"], env=environment)


def _until(condition: Callable[[], bool], seconds: float) -> None:
    started_at = time.monotonic()
    while not condition():
        assert time.monotonic() - started_at < seconds, "it did not happen in time"
        time.sleep(0.2)


def _rss_kb(process: subprocess.Popen[bytes]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def _killed_twice(environment: dict[str, str], count: int, seconds: float) -> None:
    """A campaign over `count` dead letters whose dispatcher is killed at a third and at two thirds."""
    made = cast.campaign(rate_per_s=200)
    assert made.first_matches == count

    def reached(share: float) -> bool:
        return len(_redrives(made)) >= count * share

    for share in (1 / 3, 2 / 3):
        victim = _dispatcher(environment)
        try:
            _until(lambda share=share: reached(share), seconds)  # type: ignore[misc]
        finally:
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait(30)
    left_at = len(_redrives(made))
    last = _dispatcher(environment)
    try:
        # Its memory is measured once it has worked itself: the one before may have gone far before it was killed.
        _until(lambda: len(_redrives(made)) > left_at or _state(made) == "done", seconds)
        before = _rss_kb(last)
        _until(lambda: _state(made) == "done", seconds)
        assert _rss_kb(last) - before < RSS_GROWTH_KB_MAX
    finally:
        last.send_signal(signal.SIGTERM)
        assert last.wait(60) == 0
    view = cast.progress_of(made)
    assert (view.matches, view.redriven, dict(view.skipped)) == (count, count, {})
    assert len(_redrives(made)) == count == len(set(_redrives(made)))
    assert cast.read("SELECT count(*) FROM dlq_deadletter") == [(0,)]
    assert cast.read(
        "SELECT count(*), min(redrive_generation), max(redrive_generation) FROM queue_readyjob"
    ) == [(count, 1, 1)]
    assert cast.audited("job.redrive") == count
    assert list(fsck.check()) == []


def test_a_campaign_whose_dispatcher_is_killed_twice_redrives_each_job_once(
    process_environment: dict[str, str],
) -> None:
    cast.graveyard(2_000, now=LONG_AGO)
    _killed_twice(process_environment, 2_000, PATIENCE_SECONDS)


@pytest.mark.slow
def test_a_campaign_over_100_000_dead_letters_killed_twice_redrives_each_job_once(
    process_environment: dict[str, str],
) -> None:
    many_dead(100_000)
    _killed_twice(process_environment, 100_000, 3_600)


LONG_AGO = at(0).replace(year=2025)


def many_dead(count: int) -> None:
    """So many dead letters, copied from one that the verbs made."""
    (first,) = cast.graveyard(1, now=LONG_AGO)
    copies = {
        "queue_job": "id",
        "queue_attempt": "job_id",
        "dlq_deadletter": "job_id",
    }
    with connections[cast.SHARD].cursor() as cursor:
        for table, key in copies.items():
            cursor.execute(
                "SELECT string_agg(column_name, ', ') FROM information_schema.columns"
                " WHERE table_name = %s AND column_name <> %s",
                [table, key],
            )
            columns = cursor.fetchone()[0]
            cursor.execute(
                f"INSERT INTO {table} ({key}, {columns}) SELECT {first} + n, {columns}"
                f" FROM {table}, generate_series(1, %s) n WHERE {key} = %s",
                [count - 1, first],
            )
        cursor.execute("SELECT setval('queue_job_id_seq', %s)", [first + count])
        cursor.execute("ANALYZE")


@pytest.mark.slow
def test_an_action_over_100_000_dead_letters_starts_one_campaign_and_needs_no_memory() -> None:
    """S143: the selection is a filter, never a list of rows."""
    from django.urls import reverse

    from tests import admin_cast

    many_dead(100_000)
    client, peak = admin_cast.operator(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    form = {"note": "n", "rate_per_s": "200", "canary": "0", "stop_at_failure_share": "0.5", "apply": "1"}
    chosen = {"action": "redrive_selected", "_selected_action": ["1"], "select_across": "1"}
    response = client.post(reverse("admin:dlq_deadletter_changelist"), {**chosen, **form})
    assert response.status_code == 302
    assert Campaign.objects.get().first_matches == 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 100 * 1024
