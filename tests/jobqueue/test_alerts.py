"""Alert rules and the dashboard name what exists, and every rule fires when its trouble is provoked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import connections
from prometheus_client.parser import text_string_to_metric_families

from jobqueue import metrics as work_metrics
from jobqueue import upkeep
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.hub.listener import Listener
from jobsplatform import events, metrics, sql
from jobsplatform.errors import JobsPlatformError
from jobsplatform.servers import Server
from tests import cast
from tests.jobqueue.test_metrics import scraped

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[2]
RULES: list[dict[str, Any]] = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text("utf-8"))[
    "groups"
][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/dashboard.json").read_text("utf-8"))
AGO = datetime.now(UTC) - timedelta(minutes=5)

EXPRESSION = re.compile(
    r"(?:increase\((?P<counter>\w+)\[(?P<window>\d+m)\]\)|(?P<gauge>\w+)) (?P<op>[<>]|==) (?P<bound>[0-9.]+)"
)
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
    "==": lambda value, bound: value == bound,
}
Page = dict[str, dict[tuple[tuple[str, str], ...], float]]


def fires(rule: dict[str, Any], before: Page, after: Page) -> bool:
    """Whether the rule's expression holds for some series; `increase` is the difference of the two pages."""
    match = EXPRESSION.fullmatch(rule["expr"])
    assert match is not None
    name = match["counter"] or match["gauge"]
    values = after.get(name, {})
    if match["counter"]:
        values = {key: value - before.get(name, {}).get(key, 0) for key, value in values.items()}
    holds = OPERATORS[match["op"]]
    return any(holds(value, float(match["bound"])) for value in values.values())


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the server say something of itself that no test can make true within seconds."""
    real = metrics._read

    def change(**values: Any) -> None:
        def read(connection: Any, statement: str, params: Any) -> list[Any]:
            rows = real(connection, statement, params)
            if statement != "jobsplatform/doctor_server":
                return rows
            server = replace(Server(*rows[0]), **values)
            return [tuple(getattr(server, name) for name in Server.__dataclass_fields__ if name != "off_s")]

        monkeypatch.setattr(metrics, "_read", read)

    return change


# One provocation for each rule, by its name


def _no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(alias: str, action: object) -> None:
        raise JobsPlatformError

    monkeypatch.setattr(sql, "short_transaction", away)


def _read_only() -> None:
    with connections[cast.SHARD].cursor() as cursor:
        cursor.execute("SET LOCAL transaction_read_only = on")


def _not_durable() -> None:
    with connections[cast.SHARD].cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")


def _held(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metrics._read

    def read(connection: Any, statement: str, params: Any) -> list[Any]:
        if statement == "jobsplatform/doctor_horizon":
            return [("session 7", "psql", 61.0)]
        return real(connection, statement, params)

    monkeypatch.setattr(metrics, "_read", read)


def _dead_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metrics._read

    def read(connection: Any, statement: str, params: Any) -> list[Any]:
        rows = real(connection, statement, params)
        return [(*row[:3], 1_000_001, row[4]) for row in rows] if "doctor_work" in statement else rows

    monkeypatch.setattr(metrics, "_read", read)


def _objective_missed() -> None:
    cast.queue("default", age_objective_s={"P2": 60})
    cast.enqueue(now=AGO)


def _leases_lost() -> None:
    cast.enqueue_many(11, now=AGO)
    cast.claim(limit=11, now=AGO, lease_s=1)
    upkeep.reap()
    upkeep.fold()


def _stale_calls() -> None:
    cast.enqueue_many(11, now=AGO)
    held = cast.claim(limit=11, now=AGO, lease_s=1)
    upkeep.reap()
    for lease in held:
        with pytest.raises(JobsPlatformError):
            cast.complete(lease, now=None)


def _jobs_die() -> None:
    cast.graveyard(11, now=AGO)
    upkeep.fold()


def _old_letter() -> None:
    cast.buried(now=datetime.now(UTC) - timedelta(days=8))


def _refused() -> None:
    cast.queue("default", depth_limit=1)
    enqueue_jobs([cast.new_job()] * 102)


def _breaker_open() -> None:
    with connections[cast.SHARD].cursor() as cursor:
        cursor.execute(
            "INSERT INTO queue_dependencystate (name, breaker, probe_at) VALUES ('smtp', 'open', clock_timestamp())"
        )


def _ledger_late() -> None:
    cast.leased(now=AGO)


def _deaf() -> None:
    Listener(cast.SHARD, "test", lambda *_: None, lambda: None)._note(False)


PROVOKED: dict[str, Callable[[pytest.MonkeyPatch, Callable[..., None]], object]] = {
    "AgeObjectiveMissed": lambda patch, say: _objective_missed(),
    "DatabaseDown": lambda patch, say: _no_database(patch),
    "DatabaseReadOnly": lambda patch, say: _read_only(),
    "DatabaseNotDurable": lambda patch, say: _not_durable(),
    "StandbyMissing": lambda patch, say: say(standbys_wanted="ANY 1 (a, b)", standbys=0),
    "PromotionLate": lambda patch, say: cast.enqueue(now=AGO, delay_s=1),
    "ReapingLate": lambda patch, say: cast.leased(now=AGO, lease_s=1),
    "LedgerLate": lambda patch, say: _ledger_late(),
    "HorizonHeld": lambda patch, say: _held(patch),
    "DeadRowsPileUp": lambda patch, say: _dead_rows(patch),
    "ConnectionsNearlyUsedUp": lambda patch, say: say(connections=95, connections_max=100),
    "TransactionIdsNearlyUsedUp": lambda patch, say: say(xid_age=390_000_000, xid_age_max=200_000_000),
    "ClockOff": lambda patch, say: say(clock=datetime.now(UTC).timestamp() + 60),
    "LeasesLost": lambda patch, say: _leases_lost(),
    "StaleCalls": lambda patch, say: _stale_calls(),
    "DeadLettersGrow": lambda patch, say: _jobs_die(),
    "DeadLettersForgotten": lambda patch, say: _old_letter(),
    "WorkRefused": lambda patch, say: _refused(),
    "BreakerOpen": lambda patch, say: _breaker_open(),
    "NotificationsLost": lambda patch, say: _deaf(),
    "MetricsIncomplete": lambda patch, say: (
        patch.setattr(work_metrics, "LANES_MAX", 0),
        cast.enqueue(now=None),
    ),
}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    events._queues.clear()
    yield
    Listener(cast.SHARD, "test", lambda *_: None, lambda: None)._note(True)


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_rule_fires_when_its_trouble_is_provoked_and_not_before(
    rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch, changed: Callable[..., None]
) -> None:
    Listener(cast.SHARD, "test", lambda *_: None, lambda: None)._note(True)
    before = scraped()
    assert not fires(rule, before, before)
    PROVOKED[rule["alert"]](monkeypatch, changed)
    assert fires(rule, before, scraped())


def test_every_rule_has_its_provocation() -> None:
    assert set(PROVOKED) == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_rule_says_how_bad_it_is_and_where_its_runbook_is(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    file, anchor = rule["annotations"]["runbook"].split("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text("utf-8"), re.M)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


# Names


def _names() -> set[str]:
    """Every name that a query can use, of families with and without values."""
    Listener(cast.SHARD, "test", lambda *_: None, lambda: None)._note(True)
    metrics.forget()
    found: set[str] = set()
    for family in text_string_to_metric_families(metrics.page().decode()):
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        found |= {family.name + suffix for suffix in suffixes}
    return found


def test_rules_and_dashboard_use_names_that_exist() -> None:
    names = _names()
    rules = {name for rule in RULES for name in re.findall(r"jobsplatform_\w+", rule["expr"])}
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    shown = {name for query in queries for name in re.findall(r"jobsplatform_\w+", query)}
    assert len(rules) == len(RULES)
    assert rules <= names
    assert shown <= names


def test_every_family_that_an_operator_needs_is_on_the_dashboard() -> None:
    queries = " ".join(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    for name in (
        "oldest_ready_seconds",
        "tenant_oldest_ready_seconds",
        "ready_jobs",
        "running_jobs",
        "starts_total",
        "share_ratio",
        "retries_total",
        "lease_losses_total",
        "stale_calls_total",
        "dead_letters",
        "oldest_dead_letter_seconds",
        "redrives_total",
        "admission_refusals_total",
        "wakeup_seconds_bucket",
        "horizon_age_seconds",
    ):
        assert f"jobsplatform_{name}" in queries


def test_panels_are_complete_and_lie_beside_each_other() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    corners = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(corners) == len(panels)
