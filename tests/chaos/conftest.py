"""`platform`: one running `manage.py up` a module, with the chaos runs' handlers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.chaos import prepared
from tests.chaos.harness import SETTINGS, Platform


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("chaos")
    platform = Platform(prepared.folder(folder / "data"), variables={"DJANGO_SETTINGS_MODULE": SETTINGS})
    try:
        platform.start().wait_ready()
        yield platform
    finally:
        platform.close()


@pytest.fixture
def seed() -> int:
    """Of everything random in one run; a failure prints it."""
    chosen = random.SystemRandom().randrange(2**32)
    print(f"seed {chosen}")
    return chosen
