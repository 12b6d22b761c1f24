"""`platform`: one running `manage.py up` a module, as an operator starts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos import prepared
from tests.chaos.harness import Platform


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    platform = Platform(prepared.folder(tmp_path_factory.mktemp("e2e") / "data"))
    try:
        platform.start().wait_ready()
        yield platform
    finally:
        platform.close()
