"""No race of this folder may end in a deadlock: each is rolled back and repeated, so nobody would notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django.plugin import DjangoDbBlocker


@pytest.fixture(scope="module", autouse=True)
def _no_deadlock(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    from tests import cast

    with django_db_blocker.unblock():
        before = cast.deadlocks()
    yield
    with django_db_blocker.unblock():
        assert cast.deadlocks() == before, "a race ended in a deadlock"
