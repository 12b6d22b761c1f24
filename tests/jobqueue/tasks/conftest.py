"""`site`: see `tests/tasks_cast.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pytest_django import Settings

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
