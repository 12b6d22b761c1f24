"""The operators' first page: what it calls attention to, what it leaves alone, and that its cost is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.urls import reverse
from django.utils import timezone

from dlq import overview
from jobqueue import dependencies, policies, processes, upkeep
from jobqueue.models import Horizon, LaneMinute, Process
from jobsplatform import asking, sql
from tenants import registry
from tests import admin_cast, cast
from tests.cast import OPS, SHARD

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    overview.forget()
    yield
    overview.forget()


def _titles() -> set[str]:
    overview.forget()
    return {one.title for one in overview.present().attention}


def _everybody_lives() -> None:
    for kind in (Process.Kind.DISPATCHER, Process.Kind.REAPER, Process.Kind.WORKER):
        processes.Beacon(kind).beat()


def _waiting(count: int = 1, *, seconds: float = 90, **more: object) -> None:
    queue = cast.queue("mail", preset="hnl", age_objective_s={"H": 60, "N": 600})
    early = timezone.now() - timedelta(seconds=seconds)
    cast.enqueue_many(count, queue=queue, now=early, **{"priority": 0, **more})


def test_a_calm_platform_needs_no_attention() -> None:
    _everybody_lives()
    assert _titles() == set()
    assert "Nothing needs attention" in admin_cast.page(admin_cast.operator(), reverse("admin:index"))


def test_a_tenant_starves_when_its_eligible_work_waits_beyond_the_objective() -> None:
    _everybody_lives()
    _waiting()
    _waiting(priority=1, tenant_id=cast.globex().pk)
    assert _titles() == {"acme starves in mail / H"}
    (wait, calm) = overview.present().oldest
    assert (wait.tenant, wait.level, wait.is_starving) == ("acme", "bad", True)
    assert (calm.tenant, calm.level) == ("globex", "ok")


@pytest.mark.parametrize("held", ["queue", "tenant", "breaker", "limit"])
def test_work_that_something_holds_back_does_not_starve(held: str) -> None:
    """A pause, an open breaker, a limit that is used up: each is somebody's wish, and shown as such."""
    _everybody_lives()
    if held == "limit":
        registry.set_quota(cast.acme().slug, {"max_running": 1}, actor=OPS)
        cast.leased(now=None, lease_s=600)
    _waiting(dependency="smtp" if held == "breaker" else None)
    if held == "queue":
        policies.pause("mail", actor=OPS)
    elif held == "tenant":
        registry.pause("acme", actor=OPS)
    elif held == "breaker":
        dependencies.open_breaker("smtp", actor=OPS)
    assert {title for title in _titles() if "starves" in title} == set()


def test_a_limit_with_room_left_is_no_excuse() -> None:
    _everybody_lives()
    registry.set_quota(cast.acme().slug, {"max_running": 5}, actor=OPS)
    _waiting()
    assert _titles() == {"acme starves in mail / H"}


def test_missing_and_late_upkeep_is_told() -> None:
    assert {"No dispatcher is seen", "No reaper is seen"} <= _titles()
    _everybody_lives()
    lease = cast.leased(now=timezone.now() - timedelta(seconds=120), lease_s=30)
    assert lease.generation == 1
    assert _titles() == {"The reaper is late"}


def test_a_silent_dispatcher_is_no_dispatcher() -> None:
    _everybody_lives()
    Process.objects.filter(kind="dispatcher").update(beat_at=timezone.now() - timedelta(seconds=40))
    assert _titles() == {"No dispatcher is seen"}


def test_work_without_a_worker_is_told() -> None:
    for kind in (Process.Kind.DISPATCHER, Process.Kind.REAPER):
        processes.Beacon(kind).beat()
    assert _titles() == set()
    cast.enqueue(now=None)
    assert _titles() == {"No worker is seen"}


def _minute(ago: int, **counts: int) -> None:
    cast.enqueue(now=None)
    ((lane_id,),) = cast.read("SELECT min(id) FROM queue_lane")
    at = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=ago)
    LaneMinute.objects.using(SHARD).create(lane_id=lane_id, minute=at, **counts)


def test_growth_of_dead_letters_and_lost_leases_is_told_above_the_usual() -> None:
    _everybody_lives()
    _minute(2, dead=60, lease_lost=30)
    assert _titles() == {"Dead letters of default grow", "Leases are lost"}
    for ago in range(8, 28):
        _minute(ago, dead=60, lease_lost=30)
    assert _titles() == set()


def test_an_open_breaker_is_told() -> None:
    _everybody_lives()
    dependencies.set_dependency("smtp", {"max_running": 5}, actor=OPS)
    dependencies.open_breaker("smtp", actor=OPS)
    assert _titles() == {"Breaker of smtp is held open"}


def test_a_clock_that_was_set_back_is_told() -> None:
    _everybody_lives()
    Horizon.objects.using(SHARD).create(at=timezone.now() + timedelta(seconds=90), next_xid=1)
    assert _titles() == {"The clock of shard 0 was set back"}


def test_an_unknown_shard_is_told_and_breaks_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    _everybody_lives()

    def away(statement: str, params: object, *, alias: str, writes: bool = False) -> object:
        if alias == SHARD and statement.split("/")[1].startswith("overview"):
            raise OperationalError("gone")
        return known(statement, params, alias=alias, writes=writes)  # type: ignore[arg-type]

    known = sql.rows
    monkeypatch.setattr(sql, "rows", away)
    asking.forget()
    assert _titles() == {"Shard 0 is unknown"}
    client = admin_cast.operator()
    assert "Shard 0 is unknown" in admin_cast.page(client, reverse("admin:index"))
    assert "state-unknown" in admin_cast.page(client, reverse("admin:shards"))


def test_shares_are_compared_with_their_targets() -> None:
    _everybody_lives()
    queue = cast.queue("work", preset="hnl")
    now = timezone.now()
    for priority in range(3):
        cast.enqueue_many(12, queue=queue, priority=priority, now=now)
    cast.claim(queue, limit=12, now=now)
    upkeep.fold()
    overview.forget()
    shares = {share.band: (round(share.target or 0, 2), share.actual) for share in overview.present().shares}
    assert shares == {"H": (0.5, 0.5), "N": (0.33, pytest.approx(1 / 3)), "L": (0.17, pytest.approx(1 / 6))}


def test_what_operators_did_is_shown_and_what_the_platform_did_is_not() -> None:
    policies.pause("default", actor="user:mary", reason="<i>later</i>")
    text = admin_cast.page(admin_cast.operator(), reverse("admin:index"))
    acts = text.split('id="acts"')[1]
    assert "user:mary" in acts
    assert "&lt;i&gt;later" in acts
    assert "platform" not in acts.split("</table>")[0]


def test_who_may_not_see_jobs_or_the_audit_sees_neither_here() -> None:
    _waiting()
    text = admin_cast.page(admin_cast.staff("tenants.view_tenant"), reverse("admin:index"))
    assert "starves" not in text
    assert 'id="acts"' not in text


def test_the_page_asks_the_same_for_one_tenant_and_for_many() -> None:
    client = admin_cast.operator()
    counts = []
    for number in range(2):
        for slug in ("a", "b", "c", "d") if number else ("a",):
            _waiting(3, tenant_id=cast.tenant(slug).pk)
        overview.forget()
        with admin_cast.statements() as seen:
            client.get(reverse("admin:index"))
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_only_so_many_lanes_are_looked_at_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "LANES_MAX", 1)
    _waiting(tenant_id=cast.tenant("a").pk)
    _waiting(tenant_id=cast.tenant("b").pk)
    overview.forget()
    seen = overview.present()
    assert (len(seen.waits), seen.has_more_lanes) == (1, True)
