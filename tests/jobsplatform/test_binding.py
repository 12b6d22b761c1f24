"""Named parameters become numbered ones of the statement's own types, and arrive as they were."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsplatform import sql
from jobsplatform.binding import bind
from tests import cast

INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
ELEMENTS = {
    "bigint[]": st.integers(-(2**63), 2**63 - 1),
    "int[]": st.integers(-(2**31), 2**31 - 1),
    "smallint[]": st.integers(-(2**15), 2**15 - 1),
    "bool[]": st.booleans(),
    "text[]": TEXTS,
    "bytea[]": st.binary(),
    "float8[]": st.floats(allow_nan=False),
    "timestamptz[]": INSTANTS,
}
OID = {
    "bigint[]": 1016,
    "int[]": 1007,
    "smallint[]": 1005,
    "bool[]": 1000,
    "text[]": 1009,
    "bytea[]": 1001,
    "float8[]": 1022,
    "timestamptz[]": 1185,
}


def read(statement: str, **params: Any) -> Any:
    bound = bind(statement)
    with sql.translated(cast.SHARD, writes=False) as connection:
        row = psycopg.RawCursor(connection).execute(bound.text, bound.values(params), binary=True).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


@pytest.mark.parametrize("name", ELEMENTS)
def test_a_list_is_written_as_psycopg_reads_it(name: str) -> None:
    loader = psycopg.adapters.get_loader(OID[name], psycopg.pq.Format.BINARY)
    assert loader is not None
    load = loader(OID[name]).load
    wire = bind(f"SELECT %(value)s::{name}")

    @given(st.lists(ELEMENTS[name] | st.none(), max_size=40))
    def arrives(values: list[Any]) -> None:
        [body] = wire.bodies({"value": values})
        assert body is not None
        assert load(body) == values

    arrives()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bigint[]", []),
        ("bigint[]", [7, None, -(2**63)]),
        ("text[]", ["", "é\n\\\"'", None]),
        ("bytea[]", [b"\x00\xff", None]),
        ("bool[]", [True, None, False]),
        ("timestamptz[]", [datetime(1969, 7, 20, 20, 17, 40, 1, tzinfo=UTC), None]),
        ("smallint", 3),
        ("bigint", 3),
        ("float", 0.5),
        ("float8", 0.5),
        ("float8[]", [0.5, None]),
        ("bool", True),
        ("boolean", False),
        ("int", -3),
        ("text", "é\n\\"),
        ("json", {"a": [1.5]}),
        ("jsonb", {"a": [1.5]}),
        ("bytea", b"\x00"),
        ("timestamptz", datetime(2026, 12, 1, tzinfo=UTC)),
    ],
)
def test_the_server_reads_what_was_sent(name: str, value: Any) -> None:
    sent = json.dumps(value) if name.startswith("json") else value
    assert read(f"SELECT %(value)s::{name}", value=sent) == value


def test_a_parameter_that_stands_twice_is_sent_once() -> None:
    bound = bind("SELECT %(b)s::int, %(a)s::text, %(b)s::int")
    assert bound.text == b"SELECT $1::int, $2::text, $1::int"
    assert bound.bodies({"a": "x", "b": 5}) == [b"\0\0\0\5", b"x"]


def test_a_doubled_percent_sign_is_one() -> None:
    assert bind("SELECT 7 %% 2 LIKE '%%'").text == b"SELECT 7 % 2 LIKE '%'"


def test_a_missing_parameter_is_an_error() -> None:
    with pytest.raises(KeyError):
        bind("SELECT %(a)s::int").values({})


def test_a_type_that_is_none_of_the_platform_s_is_an_error() -> None:
    with pytest.raises(KeyError):
        bind("SELECT %(a)s::point")


@pytest.mark.django_db
def test_a_statement_is_prepared_once_whatever_is_null_or_small() -> None:
    bound = bind("SELECT %(ids)s::bigint[], %(at)s::timestamptz, %(n)s::bigint -- prepared once")
    values: list[dict[str, Any]] = [
        {"ids": None, "at": None, "n": None},
        {"ids": [1], "at": datetime(2026, 1, 1, tzinfo=UTC), "n": 2**40},
        {"ids": [], "at": None, "n": 1},
    ]
    with sql.translated(cast.SHARD, writes=False) as connection:
        for params in values * 8:
            psycopg.RawCursor(connection).execute(bound.text, bound.values(params))
        found = psycopg.Cursor(connection).execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%-- prepared once'"
        )
        assert found.fetchone() == (1,)
