"""Tenants and their limits: every change is audited and told to the shard."""

from __future__ import annotations

import pytest

from jobsplatform.errors import Invalid, NotFound, Unavailable
from tenants import registry
from tenants.models import Quota, Tenant, TenantLimit, TenantState
from tests import cast
from tests.cast import OPS, SHARD, acme

pytestmark = pytest.mark.django_db


def _state() -> TenantState:
    return TenantState.objects.using(SHARD).get(tenant_id=acme().pk)


def _told(name: str) -> list[tuple[str, int | None, object]]:
    """What the shard was told of one limit: queue, band, value."""
    limits = TenantLimit.objects.using(SHARD).filter(tenant_id=acme().pk).order_by("queue", "band")
    return [(limit.queue, limit.band, getattr(limit, name)) for limit in limits]


def test_a_new_tenant_has_no_limits() -> None:
    assert (_state().limits_running, _state().limits_intake, _state().is_paused) == (False, False, False)
    assert not Quota.objects.exists()


@pytest.mark.parametrize("slug", ["", "Acme", "a b", "-a", "a" * 64, "ä", "a_b", "a\n"])
def test_a_bad_slug_is_refused(slug: str) -> None:
    with pytest.raises(Invalid) as refused:
        registry.create_tenant(slug, actor=OPS)
    assert refused.value.errors[0].pointer == "/slug"
    assert not Tenant.objects.exists()


def test_a_taken_slug_is_refused() -> None:
    acme()
    with pytest.raises(Invalid):
        registry.create_tenant("acme", actor=OPS)


@pytest.mark.parametrize("verb", ["pause", "resume", "suspend", "reinstate"])
def test_an_unknown_tenant_is_not_found(verb: str) -> None:
    with pytest.raises(NotFound):
        getattr(registry, verb)("nobody", actor=OPS)


def test_a_pause_reaches_the_shard_and_is_undone() -> None:
    acme()
    registry.pause("acme", actor=OPS)
    assert _state().is_paused
    registry.resume("acme", actor=OPS)
    assert not _state().is_paused


def test_a_suspended_tenant_is_reinstated() -> None:
    acme()
    registry.suspend("acme", actor=OPS)
    assert registry.get("acme").is_suspended
    registry.reinstate("acme", actor=OPS)
    assert not registry.get("acme").is_suspended


def test_a_limit_on_running_reaches_the_shard_and_is_lifted() -> None:
    acme()
    registry.set_quota("acme", {"max_running": 3}, actor=OPS)
    assert _state().limits_running
    assert _told("max_running") == [("", None, 3)]
    registry.set_quota("acme", {"max_running": None}, actor=OPS)
    assert not _state().limits_running
    assert _told("max_running") == []


def test_setting_one_limit_leaves_the_others() -> None:
    acme()
    registry.set_quota("acme", {"max_running": 3, "max_depth": 9}, actor=OPS)
    quota = registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    assert (quota.max_running, quota.max_depth) == (3, 10)
    assert Quota.objects.count() == 1


def test_each_scope_has_its_own_limits() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 9}, actor=OPS)
    registry.set_quota("acme", {"max_depth": 5}, queue="default", actor=OPS)
    registry.set_quota("acme", {"max_depth": 1}, queue="default", band=0, actor=OPS)
    assert set(Quota.objects.values_list("max_depth", flat=True)) == {1, 5, 9}


def test_a_limit_keeps_its_queue_and_band_on_the_shard() -> None:
    acme()
    registry.set_quota("acme", {"max_running": 1}, queue="default", actor=OPS)
    registry.set_quota("acme", {"max_running": 2}, queue="default", band=0, actor=OPS)
    assert _told("max_running") == [("default", 0, 2), ("default", None, 1)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", 3),
        ("max_depth", 0),
        ("enqueue_rate_per_s", 0.5),
        ("enqueue_burst", 9),
        ("max_payload_bytes", 10),
    ],
)
def test_every_limit_that_a_statement_uses_reaches_the_shard(name: str, value: float) -> None:
    acme()
    registry.set_quota("acme", {name: value}, actor=OPS)
    assert _told(name) == [("", None, value)]


@pytest.mark.parametrize(
    ("limits", "scope", "pointer"),
    [
        ({"speed": 1}, {}, "/speed"),
        ({"max_running": -1}, {}, "/max_running"),
        ({"weight": 0}, {}, "/weight"),
        ({"enqueue_burst": 0}, {}, "/enqueue_burst"),
        ({"enqueue_rate_per_s": 0}, {}, "/__all__"),
        ({"max_depth": 1}, {"band": 0}, "/__all__"),
        ({"max_depth": "many"}, {}, "/max_depth"),
    ],
)
def test_a_limit_without_sense_is_refused(
    limits: dict[str, object], scope: dict[str, int], pointer: str
) -> None:
    acme()
    with pytest.raises(Invalid) as refused:
        registry.set_quota("acme", limits, actor=OPS, **scope)  # type: ignore[arg-type]
    assert refused.value.errors[0].pointer == pointer
    assert not Quota.objects.exists()


def test_an_older_push_never_overwrites_a_newer() -> None:
    tenant = acme()
    registry.pause("acme", actor=OPS)
    assert registry.push(tenant) == []  # as it was before the pause
    assert _state().is_paused


def test_changes_are_audited_with_before_and_after() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 9}, actor=OPS)
    registry.set_quota("acme", {"max_depth": 5}, actor=OPS, reason="smaller plan")
    entries = cast.read(
        "SELECT actor, reason, details FROM tenants_auditentry WHERE action = 'quota.set' ORDER BY id",
        alias="default",
    )
    assert len(entries) == 2
    assert entries[1][:2] == (OPS, "smaller plan")
    assert '"max_depth": 9' in str(entries[1][2]).replace("'", '"')


def test_a_shard_that_is_not_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    acme()
    monkeypatch.setattr(registry, "push", lambda tenant: [0])
    with pytest.raises(Unavailable) as told:
        registry.pause("acme", actor=OPS)
    assert "0" in told.value.detail
    assert registry.get("acme").is_paused


def test_each_verb_leaves_one_entry() -> None:
    acme()
    for verb in ("pause", "resume", "suspend", "reinstate"):
        getattr(registry, verb)("acme", actor=OPS)
        assert cast.audited(f"tenant.{verb}", alias="default") == 1
