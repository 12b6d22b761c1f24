"""`site`: see `tests/tasks_cast.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pytest_django import DjangoDbBlocker, Settings

if TYPE_CHECKING:
    from tests.tasks_cast import Site


@pytest.fixture
def site(settings: Settings, db: None, monkeypatch: pytest.MonkeyPatch) -> Site:
    """What it registers for workers is forgotten afterwards."""
    from jobqueue.worker import registry
    from tests import cast
    from tests.tasks_cast import Site

    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    cast.acme()
    return Site(settings)


@pytest.fixture(scope="module", autouse=True)
def _no_lane_stays(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A session beside the caller's opens lanes, and commits them; no rollback of a test takes them back."""
    yield
    from tests import cast

    with django_db_blocker.unblock(), cast.second_session(autocommit=True) as session:
        session.execute("DELETE FROM queue_lane")
        session.execute("DELETE FROM queue_dependencystate")
