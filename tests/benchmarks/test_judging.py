"""The pure halves of horizon, scale and worksheet."""

from __future__ import annotations

import pytest

from benchmarks import horizon, scale, worksheet
from benchmarks.horizon import Window

COSTS = worksheet.Costs(
    enqueue_server_us=10,
    finish_server_us=20,
    enqueue_client_us=5,
    worker_us=30,
    wal=2_000,
    disk_waiting=1_500,
    disk_finished=500,
    drained_per_s=20_000,
    cores=2,
)


def windows(*rates, claim_ms=2.0):
    return [Window(jobs=rate * 2, seconds=2.0, claims_ms=[claim_ms] * 10) for rate in rates]


def test_a_row_has_medians_of_windows_and_percentiles_of_claims():
    row = horizon.summed(windows(90, 100, 300), windows(60, 50, 40, 40, 30, 30, claim_ms=3.0))
    assert (row["free"], row["under"]) == (100, 40)
    assert (row["first"], row["last"]) == (55, 30)
    assert (row["free_p50"], row["under_p99"]) == (2.0, 3.0)


def test_a_decline_is_told_even_where_throughput_is_kept():
    row = horizon.summed(windows(100, 100), windows(100, 90, 90, 60, 60, 60))
    found = {one.claim: one.is_kept for one in horizon.judged("x", row)}
    assert found == {
        "x: throughput": True,
        "x: last third against first": False,
        "x: claim p50": True,
        "x: claim p99": True,
    }


def test_slow_claims_are_told():
    row = horizon.summed(windows(100), windows(100, claim_ms=6.1))
    found = {one.claim: one.is_kept for one in horizon.judged("x", row, declines=False)}
    assert found == {"x: throughput": True, "x: claim p50": False, "x: claim p99": False}


@pytest.mark.parametrize(
    ("count", "share", "batch", "jobs"), [(2_000, 1.0, 1_000, 2_000), (2_000, 0.01, 100, 100)]
)
def test_jobs_of_a_case_are_whole_batches_and_at_least_one(count, share, batch, jobs):
    assert scale._jobs(count, share, batch) == jobs


def test_points_of_plots_come_from_the_tables():
    rows = {"workers": {"1 processes": {"drain": 5.0}, "8 processes": {"drain": 9.0}}}
    assert scale.plotted(rows) == {
        "workers": [{"processes": 1.0, "rate": 5.0}, {"processes": 8.0, "rate": 9.0}]
    }


def test_the_worksheet_keeps_average_and_peak_apart():
    load = worksheet.Load(
        name="x", average_per_s=1_000, peak_per_s=4_000, service_s=0.2, retries=0.1, utilisation=0.5, shards=4
    )
    found = worksheet.needs(load, COSTS)
    assert found["handlers at once"] == pytest.approx((220, 880))
    assert found["cores of databases"] == pytest.approx((0.064, 0.256))  # (10 + 1.1 × 20) µs / 0.5
    assert found["cores of a shard's primary"] == pytest.approx((0.016, 0.064))
    assert found["WAL MB/s"] == pytest.approx((2.2, 8.8))
    assert found["operations/s (enqueue, receive, ack, retries)"] == pytest.approx((3_200, 12_800))


def test_the_worst_backlog_counts_every_replica_and_drains_by_what_the_peak_leaves():
    load = worksheet.LOADS[1]
    found = worksheet.needs(load, COSTS)
    assert found["disk of waiting jobs, GB, all replicas"][1] == pytest.approx(1.2e9 * 1_500 * 3 / 1e9)
    assert found["hours to drain the backlog at peak capacity"][1] == pytest.approx(7.9, abs=0.1)


def test_loads_of_the_design_are_its_own_figures():
    by_name = {load.name: load for load in worksheet.LOADS}
    jobs, messages = by_name["10,000 jobs/s at 200 ms"], by_name["1.2 billion messages a day"]
    assert jobs.average_per_s * jobs.service_s == 2_000
    assert 3 + 2 * messages.retries == pytest.approx(3.2)
    assert messages.peak_per_s / messages.shards == 1_750
