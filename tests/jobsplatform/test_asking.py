"""All shards are asked at once; who does not answer in time is unknown, and is left alone for a while."""

from __future__ import annotations

import time

import pytest
from django.db import OperationalError

from jobsplatform import asking
from tests import cast

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _forget() -> None:
    asking.forget()


def test_a_shard_that_answers_is_known() -> None:
    assert asking.all_shards(lambda alias: alias) == {0: cast.SHARD}


def test_a_shard_that_is_away_is_unknown_and_not_asked_again_at_once() -> None:
    asked = []

    def away(alias: str) -> str:
        asked.append(alias)
        raise OperationalError("gone")

    assert asking.all_shards(away) == {0: None}
    assert asking.all_shards(away) == {0: None}
    assert asked == [cast.SHARD]
    asking.forget()
    assert asking.all_shards(lambda alias: 1) == {0: 1}


def test_a_slow_shard_does_not_hold_up_a_page() -> None:
    began = time.monotonic()

    def slow(alias: str) -> int:
        time.sleep(1.5)
        return 1

    assert asking.all_shards(slow, wait_s=0.1) == {0: None}
    assert time.monotonic() - began < 1


def test_a_fault_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        asking.all_shards(lambda alias: 1 // 0)
