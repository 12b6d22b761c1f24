"""`/metrics`: what the work looks like, within bounds whatever there is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from prometheus_client.parser import text_string_to_metric_families

from jobqueue import metrics as work_metrics
from jobqueue import policies, upkeep
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.models import Queue
from jobsplatform import events, metrics, sql
from jobsplatform.errors import JobsPlatformError
from tenants.models import Tenant
from tests import cast

pytestmark = pytest.mark.django_db

Labels = tuple[tuple[str, str], ...]


def minutes_ago() -> datetime:
    return datetime.now(UTC) - timedelta(minutes=5)


@pytest.fixture(autouse=True)
def _read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics.forget()
    monkeypatch.setattr(work_metrics, "_shares", work_metrics.Shares())


def scraped() -> dict[str, dict[Labels, float]]:
    """The page, read as Prometheus reads it."""
    metrics.forget()
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        for one in family.samples:
            found.setdefault(one.name, {})[tuple(sorted(one.labels.items()))] = one.value
    return found


def value(name: str, **labels: str) -> float | None:
    return scraped().get(f"jobsplatform_{name}", {}).get(tuple(sorted(labels.items())))


# What it says


def test_the_age_of_the_oldest_runnable_job_is_told_by_queue_and_band_and_by_tenant() -> None:
    cast.enqueue(now=minutes_ago(), priority=0)
    cast.enqueue(now=None, priority=3)
    page = scraped()
    ages = page["jobsplatform_oldest_ready_seconds"]
    assert 300 <= ages[("band", "P0"), ("queue", "default")] < 400
    assert ages[("band", "P3"), ("queue", "default")] < 60
    assert page["jobsplatform_tenant_oldest_ready_seconds"][(("tenant", "acme"),)] >= 300


def test_a_lapsed_job_at_the_front_counts_though_it_stands_before_the_lane_s_bound() -> None:
    cast.leased(now=minutes_ago(), lease_s=1)
    upkeep.reap()
    age = value("oldest_ready_seconds", queue="default", band="P2")
    assert age is not None
    assert age >= 300


def test_runnable_and_running_jobs_are_counted() -> None:
    cast.enqueue_many(5, now=None)
    cast.claim(limit=2, now=None)
    page = scraped()
    assert page["jobsplatform_ready_jobs"][("band", "P2"), ("queue", "default")] == 3
    assert page["jobsplatform_running_jobs"][("band", "P2"), ("queue", "default")] == 2
    assert page["jobsplatform_tenant_running_jobs"][(("tenant", "acme"),)] == 2


def test_counts_end_at_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_metrics, "JOBS_MAX", 3)
    cast.enqueue_many(5, now=None)
    assert value("ready_jobs", queue="default", band="P2") == 3


def test_starts_and_outcomes_are_counted_by_the_ledger_over_all_processes() -> None:
    for _ in range(3):
        cast.complete(cast.leased(now=None))
    cast.fail(cast.leased(now=None))
    upkeep.fold()
    page = scraped()
    assert page["jobsplatform_starts_total"][()] == 4
    assert page["jobsplatform_queue_successes_total"][("band", "P2"), ("queue", "default")] == 3
    assert page["jobsplatform_retries_total"][()] == 1
    cast.complete(cast.leased(now=None))
    upkeep.fold()
    assert value("starts_total") == 5


def test_a_lost_lease_and_a_late_completion_are_counted() -> None:
    lease = cast.leased(now=minutes_ago(), lease_s=1)
    upkeep.reap()
    cast.claim_one(now=None)
    before = value("stale_calls_total", call="complete", code="stale_generation") or 0
    with pytest.raises(JobsPlatformError):
        cast.complete(lease, now=None)
    upkeep.fold()
    page = scraped()
    assert page["jobsplatform_lease_losses_total"][()] == 1
    stale = page["jobsplatform_stale_calls_total"]
    assert stale[("call", "complete"), ("code", "stale_generation")] == before + 1


def test_an_objective_is_told_with_how_near_its_age_is() -> None:
    cast.queue("default", age_objective_s={"P1": 100})
    cast.enqueue(now=minutes_ago(), priority=1)
    page = scraped()
    key = (("band", "P1"), ("queue", "default"))
    assert page["jobsplatform_age_objective_seconds"][key] == 100
    assert 3 <= page["jobsplatform_age_objective_ratio"][key] < 4


def test_refusals_at_the_door_are_counted_by_queue_and_code() -> None:
    cast.queue("default", depth_limit=1)
    before = value("admission_refusals_total", queue="default", code="queue_full") or 0
    enqueue_jobs([cast.new_job(), cast.new_job(), cast.new_job()])
    assert value("admission_refusals_total", queue="default", code="queue_full") == before + 2


def test_dead_letters_are_counted_and_dated_by_reason() -> None:
    cast.buried(now=minutes_ago())
    cast.buried(now=minutes_ago(), error_class="permanent")
    page = scraped()
    assert page["jobsplatform_dead_letters"][(("reason", "exhausted"),)] == 1
    assert page["jobsplatform_dead_letters"][(("reason", "poison"),)] == 0
    assert page["jobsplatform_oldest_dead_letter_seconds"][(("reason", "invalid"),)] >= 290


def test_redrives_are_counted_by_what_came_of_them() -> None:
    job_id = cast.buried(now=minutes_ago())
    before = scraped().get("jobsplatform_redrives_total", {})
    cast.redriven(job_id, note="again")
    with pytest.raises(JobsPlatformError):
        cast.redriven(job_id, note="and again")
    after = scraped()["jobsplatform_redrives_total"]
    for outcome in ("ready", "already_redriven"):
        key = (("outcome", outcome),)
        assert after[key] == before.get(key, 0) + 1


def test_campaigns_count_what_they_redrove() -> None:
    assert value("campaign_redrives_total", outcome="redriven") == 0


def test_work_that_nobody_moves_is_late() -> None:
    cast.enqueue(now=minutes_ago(), delay_s=1)
    cast.leased(now=minutes_ago(), lease_s=1)
    page = scraped()
    assert page["jobsplatform_promotion_late_seconds"][(("shard", cast.SHARD),)] >= 290
    assert page["jobsplatform_reaping_late_seconds"][(("shard", cast.SHARD),)] >= 290


def test_every_database_says_that_it_is_up_writable_and_durable() -> None:
    page = scraped()
    for name in ("database_up", "database_writable", "database_durable"):
        assert page[f"jobsplatform_{name}"] == {
            (("database", alias),): 1.0 for alias in ("default", cast.SHARD)
        }


def test_a_database_that_is_away_is_down_and_the_page_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sql.short_transaction

    def away(alias: str, action: Any) -> Any:
        if alias == cast.SHARD:
            raise JobsPlatformError
        return real(alias, action)

    monkeypatch.setattr(sql, "short_transaction", away)
    page = scraped()
    assert page["jobsplatform_database_up"][(("database", cast.SHARD),)] == 0
    assert page["jobsplatform_database_up"][(("database", "default"),)] == 1


def test_an_open_breaker_is_listed() -> None:
    cast.enqueue(now=None, dependency="smtp")
    with connections[cast.SHARD].cursor() as cursor:
        cursor.execute(
            "UPDATE queue_dependencystate SET breaker = 'open', probe_at = clock_timestamp() WHERE name = 'smtp'"
        )
        if not cursor.rowcount:
            cursor.execute(
                "INSERT INTO queue_dependencystate (name, breaker, probe_at)"
                " VALUES ('smtp', 'open', clock_timestamp())"
            )
    assert value("breaker_open", shard=cast.SHARD, dependency="smtp") == 1


# Shares of starts


def test_a_share_of_starts_is_measured_against_the_weights_of_those_that_started() -> None:
    named = {7: work_metrics._Name("work", ("H", "N", "L"), (3, 2, 1), {})}
    shares = work_metrics.Shares()
    assert shares.ratios({(7, 0): [100], (7, 1): [100]}, named, now=0) == {}
    found = shares.ratios({(7, 0): [190], (7, 1): [160]}, named, now=60)
    assert found == {("work", "H"): pytest.approx(1.0), ("work", "N"): pytest.approx(1.0)}


def test_shares_forget_what_is_older_than_their_window() -> None:
    named = {7: work_metrics._Name("work", ("H", "N"), (1, 1), {})}
    shares = work_metrics.Shares()
    for now, high in ((0, 0), (200, 1_000), (501, 1_000), (502, 1_060)):
        found = shares.ratios({(7, 0): [high], (7, 1): [high]}, named, now=now)
    assert found == {("work", "H"): pytest.approx(1.0), ("work", "N"): pytest.approx(1.0)}
    assert shares.ratios({(7, 0): [1_061], (7, 1): [1_061]}, named, now=900) == {}


# Bounds


def test_names_beyond_the_most_pressing_are_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_metrics, "QUEUES_MAX", 1)
    monkeypatch.setattr(work_metrics, "TENANTS_MAX", 1)
    cast.queue("older", preset="hnl")
    cast.enqueue(now=minutes_ago() - timedelta(hours=1), queue=policies.by_name("older"), priority=0)
    cast.enqueue(now=minutes_ago(), tenant_id=cast.globex().pk)
    page = scraped()
    ages = page["jobsplatform_oldest_ready_seconds"]
    assert set(ages) == {(("band", "H"), ("queue", "older")), (("band", ""), ("queue", "other"))}
    assert 300 <= ages[("band", ""), ("queue", "other")] < 400
    tenants = page["jobsplatform_tenant_oldest_ready_seconds"]
    assert {dict(labels)["tenant"] for labels in tenants} == {"acme", "other"}


def test_a_missed_objective_is_named_before_older_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_metrics, "QUEUES_MAX", 1)
    cast.queue("aimed", preset="hnl", age_objective_s={"H": 10})
    cast.enqueue(now=minutes_ago() - timedelta(hours=1))
    cast.enqueue(now=minutes_ago(), queue=policies.by_name("aimed"), priority=0)
    ratio = value("age_objective_ratio", queue="aimed", band="H")
    assert ratio is not None
    assert ratio >= 30


def test_a_process_counts_no_more_queues_by_name_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_queues", set())
    monkeypatch.setattr(events, "QUEUES_MAX", 2)
    assert [events.bounded_queue(name) for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]


def test_databases_are_read_once_in_five_seconds() -> None:
    line = b'jobsplatform_oldest_ready_seconds{band="P2",queue="default"}'
    metrics.page()
    cast.enqueue(now=minutes_ago())
    assert line not in metrics.page()
    metrics.forget()
    assert line in metrics.page()


@pytest.fixture
def crowd(request: pytest.FixtureRequest) -> tuple[int, int]:
    """`request.param`: queues, tenants, lanes of each queue; each lane holds a job."""
    queues, tenants, lanes = request.param
    Queue.objects.bulk_create(
        Queue(
            name=f"q{number}",
            bands=Queue.objects.get(name="default").bands,
            age_objective_s={"P2": 60} if number % 10 == 0 else None,
        )
        for number in range(queues)
    )
    first = Queue.objects.get(name="q0").pk
    Tenant.objects.bulk_create(Tenant(slug=f"t{number}") for number in range(tenants))
    with connections[cast.SHARD].cursor() as cursor:
        cursor.execute(
            """
            WITH lane AS (
                INSERT INTO queue_lane (queue_id, priority, tenant_id, kind, dependency, is_active, low)
                SELECT %(first)s + q, n %% 5, %(tenant)s + (q * 7 + n) %% %(tenants)s, 'noop', '', true,
                    clock_timestamp() - interval '1 hour'
                FROM generate_series(0, %(queues)s - 1) q, generate_series(0, %(lanes)s - 1) n
                RETURNING id, queue_id, priority
            ),
            tally AS (
                INSERT INTO queue_queuetally (queue_id, priority, started)
                SELECT queue_id, priority, 7 FROM lane GROUP BY 1, 2
            )
            INSERT INTO queue_readyjob (job_id, lane_id, max_attempts, generation, releases, attempt, crashes, lapses,
                payload_version, redrive_generation, reconcile, position, fresh)
            SELECT id, id, 5, 0, 0, 0, 0, 0, 0, 0, false, clock_timestamp() - id %% 1000 * interval '1 second', true
            FROM lane
            """,
            {
                "first": first,
                "tenant": Tenant.objects.get(slug="t0").pk,
                "queues": queues,
                "tenants": tenants,
                "lanes": lanes,
            },
        )
        cursor.execute("ANALYZE queue_lane, queue_readyjob")
    return queues, tenants


def _survives(seconds: float) -> None:
    metrics.forget()
    metrics.page()
    metrics.forget()
    began = time.monotonic()
    page = metrics.page()
    took_s = time.monotonic() - began
    print(f"{len(page):,} bytes in {took_s:.3f} s")
    names = [line.split("{")[0] for line in page.decode().splitlines() if not line.startswith("#")]
    assert len(page) < 5 * 1024**2
    assert took_s < seconds
    assert max(names.count(name) for name in set(names)) <= 5 * work_metrics.QUEUES_MAX + 1


@pytest.mark.parametrize("crowd", [(400, 100, 10)], indirect=True)
def test_a_page_of_many_queues_and_tenants_is_bounded(crowd: tuple[int, int]) -> None:
    _survives(2)


@pytest.mark.slow
@pytest.mark.parametrize("crowd", [(10_000, 1_000, 20)], indirect=True)
def test_ten_thousand_queues_and_a_thousand_tenants_cost_less_than_a_second(crowd: tuple[int, int]) -> None:
    _survives(1)
