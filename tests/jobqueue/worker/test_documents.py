"""JSON of results and checkpoints: `encode` gives what the API would take, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue.worker.documents import InvalidDocument, encode
from jobsplatform import strictjson

BYTES_MAX = 128 * 1024


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1.5, "", "\\u0000", "ä\U0001f600", [], {}, [1, {"a": (2, 3)}], 10**308 - 1, nested(64)],
)
def test_plain_values_keep_their_meaning(value: object) -> None:
    assert json.loads(encode(value, bytes_max=BYTES_MAX)) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\0b", "NUL"),
        ({"a\0": 1}, "NUL"),
        (["\\\0"], "NUL"),
        ("\ud83d", "surrogate"),
        ({"\udc00": 1}, "surrogate"),
        (float("nan"), "not JSON"),
        (float("inf"), "not JSON"),
        ({1: "a", "1": "b"}, "no string"),
        (10**308, "308 digits"),
        ([-(10**400)], "308 digits"),
        (datetime(2026, 1, 1, tzinfo=UTC), "not JSON"),
        (b"bytes", "not JSON"),
        ({1, 2}, "not JSON"),
        (nested(65), "deeper than 64"),
        ({str(n): 0 for n in range(10_001)}, "10000 members"),
        ("x" * BYTES_MAX, "bytes"),
        ("ä" * (BYTES_MAX // 2), "bytes"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(value: object, reason: str) -> None:
    with pytest.raises(InvalidDocument, match=reason):
        encode(value, bytes_max=BYTES_MAX)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidDocument):
        encode(value, bytes_max=BYTES_MAX)


def test_a_shared_list_that_unfolds_without_end_is_refused_quickly() -> None:
    value: list[object] = ["x"] * 1_000
    for _ in range(40):
        value = [value] * 1_000
    with pytest.raises(InvalidDocument, match="values"):
        encode(value, bytes_max=BYTES_MAX)


def test_the_limit_counts_bytes_as_sent() -> None:
    assert len(encode("x" * (BYTES_MAX - 2), bytes_max=BYTES_MAX)) == BYTES_MAX


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
@settings(max_examples=150, deadline=None)
def test_what_is_encoded_passes_the_rules_of_the_api(value: object) -> None:
    try:
        text = encode(value, bytes_max=BYTES_MAX)
    except InvalidDocument:
        with pytest.raises(Exception):  # noqa: B017  any refusal will do
            strictjson.raw(json.dumps(value))
    else:
        assert strictjson.raw(text).text == text
