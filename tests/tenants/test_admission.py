"""Admission: sizes and depth against a tenant's limits, judged for a batch as for one."""

from __future__ import annotations

import pytest

from jobsplatform.errors import QuotaExceeded
from tenants import admission, registry
from tenants.admission import Ask
from tests.cast import OPS, acme, globex

pytestmark = pytest.mark.django_db


def _none_wait(queue: str, band: int | None, bound: int) -> int:
    return 0


def _verdicts(asks: list[Ask], waiting: int = 0, tenant_id: int | None = None) -> list[bool]:
    owner = acme().pk if tenant_id is None else tenant_id
    refusals = admission.refusals(owner, asks, lambda queue, band, bound: min(bound, waiting))
    return [refusal is None for refusal in refusals]


def test_without_limits_all_come_in_and_nothing_is_counted() -> None:
    def counted(*_: object) -> int:
        raise AssertionError("counted")

    assert admission.refusals(acme().pk, [Ask("default", 2, 10**9)], counted) == [None]


def test_depth_is_counted_within_a_batch() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 3}, actor=OPS)
    assert _verdicts([Ask("default", 2, 1)] * 5, waiting=1) == [True, True, False, False, False]


def test_a_full_tenant_takes_nothing() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 3}, actor=OPS)
    assert _verdicts([Ask("default", 2, 1)], waiting=7) == [False]


def test_a_limit_of_nothing_takes_nothing() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 0}, actor=OPS)
    assert _verdicts([Ask("default", 2, 1)]) == [False]


def test_a_large_payload_is_refused_and_takes_no_room() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 1, "max_payload_bytes": 10}, actor=OPS)
    assert _verdicts([Ask("default", 2, 11), Ask("default", 2, 10)]) == [False, True]


def test_a_limit_of_a_band_binds_that_band() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 1}, queue="default", band=0, actor=OPS)
    asks = [Ask("default", 0, 1), Ask("default", 0, 1), Ask("default", 1, 1), Ask("other", 0, 1)]
    assert _verdicts(asks) == [True, False, True, True]


def test_every_covering_limit_must_have_room() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 9}, actor=OPS)
    registry.set_quota("acme", {"max_depth": 1}, queue="default", actor=OPS)
    assert _verdicts([Ask("default", 2, 1), Ask("default", 2, 1), Ask("other", 2, 1)]) == [True, False, True]


def test_a_refused_ask_takes_no_room_from_others() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 2}, actor=OPS)
    registry.set_quota("acme", {"max_depth": 0}, queue="full", actor=OPS)
    assert _verdicts([Ask("full", 2, 1), Ask("default", 2, 1), Ask("default", 2, 1)]) == [False, True, True]


def test_limits_are_the_tenant_s_own() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 0}, actor=OPS)
    assert _verdicts([Ask("default", 2, 1)], tenant_id=globex().pk) == [True]


def test_a_lifted_limit_binds_no_more() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 0}, actor=OPS)
    registry.set_quota("acme", {"max_depth": None}, actor=OPS)
    assert _verdicts([Ask("default", 2, 1)]) == [True]


def test_a_refusal_says_when_to_return() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 0}, actor=OPS)
    (refusal,) = admission.refusals(acme().pk, [Ask("default", 2, 1)], _none_wait)
    assert isinstance(refusal, QuotaExceeded)
    assert (refusal.status, (refusal.retry_after or 0) >= 1) == (429, True)
