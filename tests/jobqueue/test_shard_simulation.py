"""32 shards and 56,000 messages a second on a virtual clock, with the routing that claims run."""

from __future__ import annotations

from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from jobqueue.policy.shard_simulation import Run, Setup, quantile, simulate


@pytest.fixture(scope="module")
def calm() -> Run:
    return simulate(Setup(seconds=1.5))


def test_urgent_messages_wait_less_than_50_ms_at_the_99th_percentile(calm: Run) -> None:
    assert len(calm.waits(0)) > 1_000
    assert quantile(calm.waits(0), 0.99) < 0.05


def test_no_start_outside_a_share_passes_over_work_that_was_visible_for_100_ms(calm: Run) -> None:
    assert quantile(calm.inversions(), 1.0) < 0.1


def test_the_load_is_carried_evenly(calm: Run) -> None:
    assert len(calm.starts) > 0.95 * calm.arrived
    assert calm.skew() < 1.15


def test_in_an_overload_bands_share_by_weight_and_bulk_keeps_its_part() -> None:
    run = simulate(Setup(seconds=2.0, spare=-0.4, seed=3))
    late = Counter(start.band for start in run.starts if start.at > 1.0)
    share = (late[3] + late[4]) / sum(late.values())
    assert share >= 0.05
    assert quantile(run.waits(0), 0.99) < 0.05
    assert quantile(run.inversions(), 1.0) < 0.1


def test_a_shard_that_falls_costs_the_others_nothing_and_comes_back() -> None:
    run = simulate(Setup(seconds=3.0, falls_at=1.0, heals_at=2.0))
    others = frozenset(range(1, 32))
    assert quantile(run.waits(0, others), 0.99) < 0.05
    assert quantile(run.inversions(), 1.0) < 0.1
    of_shard = [start.at for start in run.starts if start.shard == 0]
    assert not [at for at in of_shard if 1.0 < at < 2.0]
    assert min(at for at in of_shard if at >= 2.0) < 2.6


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = (simulate(Setup(seconds=0.2, seed=9)) for _ in range(2))
    assert one.starts == other.starts


def test_the_command_shows_a_run_and_draws_it(tmp_path: Path) -> None:
    out = StringIO()
    call_command("simulateshards", seconds=0.3, svg=tmp_path / "run.svg", stdout=out)
    assert "inversions" in out.getvalue()
    assert (tmp_path / "run.svg").read_text().startswith("<svg")
    with pytest.raises(CommandError):
        call_command("simulateshards", shards=1)
