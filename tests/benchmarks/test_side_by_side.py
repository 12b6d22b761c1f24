"""The pure halves of the side-by-side measurement: counting, medians, tables, verdicts, ratios, the page's marks."""

from __future__ import annotations

import json
import os
import threading

import pytest

from benchmarks import bed, regress
from benchmarks.peers import counter, tables
from benchmarks.peers.catalog import FLOOR, OURS, PEERS
from benchmarks.peers.tables import Verdict

OURS_ROW = {
    "single": 2_000.0,
    "bulk": 90_000.0,
    "drain1": 40_000.0,
    "drain2": 60_000.0,
    "p50_ms": 3.0,
    "p99_ms": 6.0,
}
PGQUEUER = {
    "single": 1_900.0,
    "bulk": 45_000.0,
    "drain1": 16_000.0,
    "drain2": 25_000.0,
    "p50_ms": 2.0,
    "p99_ms": 7.0,
}
GRAPHILE = {
    "single": 800.0,
    "bulk": 60_000.0,
    "drain1": 42_000.0,
    "drain2": 53_000.0,
    "p50_ms": 4.0,
    "p99_ms": 8.0,
}
ROWS = {OURS: OURS_ROW, FLOOR: {"drain1": 99_000.0}, "pgqueuer": PGQUEUER, "graphile-worker": GRAPHILE}


def test_the_median_is_of_the_repetitions_that_have_the_figure():
    found = tables.medians([{"bulk": 1.0, "drain1": 5.0}, {"bulk": 9.0}, {"bulk": 3.0}])
    assert found == {"bulk": 3.0, "drain1": 5.0}


def test_a_table_has_a_dash_where_a_figure_is_missing_and_no_column_that_nobody_has():
    text = tables.table({"a": {"bulk": 12_345.6}, "b": {"p50_ms": 1.234}})
    assert text.splitlines() == [
        "| queue | bulk enqueue/s | start p50 ms |",
        "|---|---:|---:|",
        "| a | 12,346 | – |",
        "| b | – | 1.23 |",
    ]


@pytest.mark.parametrize(
    ("value", "shown"), [(1_234_567.0, "1,234,567"), (99.96, "100.0"), (12.34, "12.3"), (0.5, "0.50")]
)
def test_numbers_show_digits_that_mean_something(value, shown):
    assert tables.number(value) == shown


def test_verdicts_are_against_the_best_peer_and_never_against_the_floor():
    found = {one.claim: one for one in tables.verdicts(ROWS)}
    assert found["drain, 1 process, against pgqueuer"].ratio == 2.5
    assert found["drain, 1 process, against graphile-worker"].is_kept
    assert found["bulk enqueue against the best, graphile-worker"].ratio == 1.5
    assert not found["single enqueue against the best, pgqueuer"].is_kept  # 1.05 where 1.1 is claimed
    assert not found["start p50 against the best, pgqueuer"].is_kept
    assert found["start p99 against the best, pgqueuer"].is_kept


def test_a_claim_against_a_missing_peer_is_left_out():
    found = [one.claim for one in tables.verdicts({OURS: OURS_ROW, "pgqueuer": PGQUEUER})]
    assert not any("graphile" in claim for claim in found)
    assert tables.verdicts({"pgqueuer": PGQUEUER}) == []


def test_a_ratio_at_its_bound_is_kept_on_both_sides():
    assert Verdict("a", 1.0, 1.0).is_kept
    assert Verdict("a", 1.0, 1.0, less_is_better=True).is_kept
    assert not Verdict("a", 1.01, 1.0, less_is_better=True).is_kept
    assert "NOT KEPT" in str(Verdict("a", 0.99, 1.0))


def test_losses_name_every_peer_that_is_better_and_not_the_floor():
    found = tables.losses(ROWS)
    assert found == [
        "drain/s, 1 process: graphile-worker 42,000, ours 40,000",
        "start p50 ms: pgqueuer 2.00, ours 3.00",
    ]


def test_text_between_marks_is_replaced_and_the_rest_stays():
    page = "a\n<!-- x -->\nold\n<!-- end of x -->\nb"
    assert tables.between(page, "x", "new\n") == "a\n<!-- x -->\n\nnew\n\n<!-- end of x -->\nb"
    assert tables.between(tables.between(page, "x", "new"), "x", "new").count("new") == 1


@pytest.mark.parametrize("page", ["", "<!-- x -->", "<!-- end of x -->"])
def test_a_page_without_both_marks_is_refused(page):
    with pytest.raises(ValueError, match="no marks"):
        tables.between(page, "x", "new")


def test_the_page_has_the_marks_that_are_written():
    text = (bed.ROOT / "docs" / "performance.md").read_text()
    for mark in ("side by side", "scale", "horizon", "worksheet"):
        assert tables.between(text, mark, "new") != text


def test_ratios_are_medians_of_repetitions_and_not_ratios_of_medians():
    ours = [{"bulk": 10.0}, {"bulk": 50.0}, {"bulk": 30.0}]
    floor = [{"bulk": 20.0}, {"bulk": 50.0}, {"bulk": 100.0}]
    assert regress.ratios(ours, floor) == {"bulk": 0.5}


@pytest.mark.parametrize(
    ("figure", "now", "is_worse", "is_better"),
    [
        ("drain1", 0.79, True, False),
        ("drain1", 0.81, False, False),
        ("drain1", 1.21, False, True),
        ("drain1_wal", 1.11, False, False),
        ("drain1_wal", 1.21, True, False),
        ("drain1_wal", 0.79, False, True),
    ],
)
def test_a_figure_is_worse_when_it_is_off_by_more_than_its_tolerance_in_its_own_direction(
    figure, now, is_worse, is_better
):
    [found] = regress.compared({figure: {"ratio": 1.0, "tolerance": 0.2}}, {figure: now})
    assert (found.is_worse, found.is_better) == (is_worse, is_better)
    assert ("WORSE" in str(found)) == is_worse


def test_the_stored_ratios_are_of_figures_that_are_measured():
    stored = json.loads(regress.STORED.read_text())
    assert set(stored) == set(regress.TOLERANCES)
    assert all(0 < one["tolerance"] < 1 and one["ratio"] > 0 for one in stored.values())


def test_jobs_are_counted_over_threads_and_processes_and_waits_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(counter, "_own", threading.local())
    counter.tick()
    counter.tick(1)
    (tmp_path / "1.counts").write_bytes(counter.COUNTS.pack(40, 7, 9))
    (tmp_path / "2.counts").write_bytes(b"half")  # being written
    jobs, first, last = counter.read(tmp_path)
    assert (jobs, first) == (42, 7)
    assert last > 9
    assert len(counter.waits_ms(tmp_path)) == 1
    counter._own.counter.waits.close()


def test_a_run_without_jobs_counts_none(tmp_path):
    assert counter.read(tmp_path) == (0, 0, 0)
    assert counter.waits_ms(tmp_path) == []


def test_the_processor_time_of_this_process_is_seen_from_outside():
    before = bed.cpu_s([os.getpid()])
    bed.gauge_s()
    bed.gauge_s()
    assert before < bed.cpu_s([os.getpid()]) < before + 30
    assert bed.peak_mib([os.getpid()]) > 10


def test_every_adapter_is_there():
    for peer in PEERS.values():
        name = peer.adapter if peer.is_node else f"{peer.adapter}.py"
        assert (bed.ROOT / "benchmarks" / "peers" / name).is_file()
