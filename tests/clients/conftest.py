"""`platform`: one running `manage.py up` for all of the client's tests, and how they reach it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from jobsplatform_client import Client, Retry
from tests.chaos import prepared
from tests.chaos.harness import Platform
from tests.clients.cutter import ReplyCutter

QUICK = Retry(give_up_after_s=60, first_s=0.02, cap_s=1)  # so that many cuts take seconds
_names = itertools.count(1)


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    data = prepared.folder(tmp_path_factory.mktemp("clients") / "data")
    platform = Platform(data, flags=("--no-demo", "--no-workers"))
    try:
        platform.start().wait_ready()
        yield platform
    finally:
        platform.close()


@pytest.fixture(scope="session")
def token(platform: Platform) -> str:
    return platform.tenant("acme")


@dataclass(frozen=True)
class Place:
    """Where one test works: a kind of its own keeps it apart from the others."""

    url: str
    token: str
    kind: str

    def client(self, *, retry: Retry = QUICK, url: str = "", timeout_s: float = 30) -> Client:
        return Client(url or self.url, self.token, retry=retry, timeout_s=timeout_s)


@pytest.fixture
def place(platform: Platform, token: str) -> Place:
    return Place(f"http://127.0.0.1:{platform.port}", token, f"kind-{next(_names)}")


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    with place.client() as client:
        yield client


@pytest.fixture
def cutter(platform: Platform) -> Iterator[ReplyCutter]:
    with ReplyCutter(platform.port) as cutter:
        yield cutter


@pytest.fixture
def count(platform: Platform) -> Callable[[str, str], int]:
    """How many rows of the database a condition on a job's kind and more finds."""

    def counted(statement: str, kind: str) -> int:
        return int(platform.rows(statement, kind)[0][0])

    return counted
