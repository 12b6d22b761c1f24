"""Tenants that can start nothing hide nobody: a claim's bounded walk passes over them."""

from __future__ import annotations

import pytest

from tenants import registry
from tests import cast

pytestmark = pytest.mark.django_db(transaction=True)


def test_tenants_at_their_running_limit_hide_nobody() -> None:
    """More of them than a claim of one looks at, before and behind the one that could start."""
    tenants = [cast.tenant(f"tenant{number:02}") for number in range(25)]
    free = tenants.pop(12)
    for full in tenants:
        registry.set_quota(full.slug, {"max_running": 1}, actor=cast.OPS)
        cast.enqueue_many(2, tenant_id=full.pk)
    assert len(cast.claim(limit=24)) == 24
    cast.enqueue(tenant_id=free.pk)
    assert [lease.tenant_id for lease in cast.claim(limit=1)] == [free.pk]
