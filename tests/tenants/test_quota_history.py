"""Versions of quotas: each change is one, the state before the first too, and any of them can hold again."""

from __future__ import annotations

import pytest

from jobsplatform.errors import Invalid, NotFound
from tenants import registry
from tenants.models import AuditEntry, Quota, QuotaVersion, TenantLimit
from tests.cast import OPS, SHARD, acme, globex, queue

pytestmark = pytest.mark.django_db


def limits(**values: object) -> dict[str, object]:
    return dict.fromkeys(registry.LIMITS) | values


def test_the_first_change_keeps_what_was_before_it_too() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS, reason="small plan")
    changed, before = registry.quota_history("acme")
    assert (before.number, before.limits) == (1, limits())
    assert (changed.number, changed.limits, changed.reason, changed.actor) == (
        2,
        limits(max_depth=10),
        "small plan",
        OPS,
    )


def test_a_quota_from_before_there_were_versions_can_be_restored() -> None:
    Quota.objects.create(tenant=acme(), max_depth=7)
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    registry.revert_quota("acme", 1, actor=OPS)
    assert Quota.objects.get().max_depth == 7


def test_what_changes_nothing_is_no_version() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    assert [version.number for version in registry.quota_history("acme")] == [2, 1]


def test_going_back_restores_every_limit_of_the_place_and_tells_the_shard() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 10, "max_running": 2}, actor=OPS)
    registry.set_quota("acme", {"max_depth": 99, "weight": 3}, actor=OPS)
    quota = registry.revert_quota("acme", 2, actor=OPS, reason="too much")
    assert registry.limits_of(quota) == limits(max_depth=10, max_running=2)
    told = TenantLimit.objects.using(SHARD).get()
    assert (told.max_depth, told.max_running, told.weight) == (10, 2, None)
    newest = registry.quota_history("acme")[0]
    assert (newest.number, newest.reverts_to, newest.reason) == (4, 2, "too much")
    entry = AuditEntry.objects.get(action="quota.revert")
    assert (entry.reason, entry.details["reverts_to"], entry.details["version"]) == ("too much", 2, 4)
    assert entry.details["before"] == limits(max_depth=99, max_running=2, weight=3)


def test_going_back_before_the_first_change_lifts_all_limits() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    registry.revert_quota("acme", 1, actor=OPS)
    assert not TenantLimit.objects.using(SHARD).exists()


def test_each_place_goes_back_by_itself() -> None:
    acme()
    queue("mail", preset="hnl")
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    registry.set_quota("acme", {"max_depth": 5}, queue="mail", band=1, actor=OPS)
    registry.set_quota("acme", {"max_depth": 6}, queue="mail", band=1, actor=OPS)
    registry.revert_quota("acme", 4, actor=OPS)
    assert Quota.objects.get(queue="").max_depth == 10
    assert Quota.objects.get(queue="mail", band=1).max_depth == 5


def test_another_tenants_version_is_none_of_ones_own() -> None:
    acme(), globex()
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    for slug, number in (("globex", 1), ("globex", 2), ("acme", 3), ("nobody", 1)):
        with pytest.raises(NotFound):
            registry.revert_quota(slug, number, actor=OPS)
    assert QuotaVersion.objects.count() == 2


def test_a_refused_change_leaves_no_version() -> None:
    acme()
    with pytest.raises(Invalid):
        registry.set_quota("acme", {"max_depth": -1}, actor=OPS)
    assert not QuotaVersion.objects.exists()
    assert not AuditEntry.objects.filter(action="quota.set").exists()
