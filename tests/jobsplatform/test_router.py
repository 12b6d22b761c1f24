"""Where tables are made."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jobsplatform import database

CONTROL, SHARD, BOTH = database.CONTROL, database.SHARD, database.BOTH


def made_in(monkeypatch: pytest.MonkeyPatch, places: Mapping[str, str]) -> dict[str, set[str]]:
    """The placements of the tables that each alias gets."""
    shards = [alias for alias in places if alias != "default"]
    monkeypatch.setattr(database, "aliases", lambda: dict(enumerate(shards)))
    monkeypatch.setattr(database, "_place", lambda alias: (places[alias], "", ""))
    router = database.Router()
    return {
        alias: {one for one in (CONTROL, SHARD, BOTH) if router.allow_migrate(alias, "queue", placement=one)}
        for alias in places
    }


def test_control_and_shards_have_their_own_tables_and_the_common_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = {"default": "a", "shard0": "b", "shard1": "c"}
    found = made_in(monkeypatch, places)
    assert found == {"default": {CONTROL, BOTH}, "shard0": {SHARD, BOTH}, "shard1": {SHARD, BOTH}}


def test_a_database_that_is_control_and_a_shard_gets_all_tables_under_either_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever is migrated first notes all as applied."""
    found = made_in(monkeypatch, {"default": "a", "shard0": "a", "shard1": "b"})
    assert found == {
        "default": {CONTROL, SHARD, BOTH},
        "shard0": {CONTROL, SHARD, BOTH},
        "shard1": {SHARD, BOTH},
    }
