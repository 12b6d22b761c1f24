"""Payloads against schemas: what is refused, where, and that hostile ones cost no time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.payloads import FAULTS_MAX, BadSchema, Checker


def faults(schema: dict[str, Any], payload: str) -> list[str]:
    refusal = Checker(schema).refusal(payload)
    return [] if refusal is None else [fault.pointer for fault in refusal.errors]


def test_pointers_are_escaped_as_the_rfc_says() -> None:
    schema = {"properties": {"a/b": {"items": {"properties": {"m~n": {"type": "integer"}}}}}}
    assert faults(schema, '{"a/b": [{}, {"m~n": "x"}]}') == ["/payload/a~1b/1/m~0n"]


def test_a_payload_with_many_faults_names_the_first_of_them() -> None:
    assert len(faults({"items": {"type": "integer"}}, json.dumps(["x"] * 1_000))) == FAULTS_MAX


def test_faults_without_number_cost_no_memory() -> None:
    """Twenty faults in each of 43,000 items: named one by one they took 1.1 GB and 12 s."""
    schema = {"items": {"type": "object", "required": [f"f{n}" for n in range(20)]}}
    began = time.monotonic()
    assert faults(schema, f"[{','.join(['{}'] * 43_000)}]") == ["/payload"]
    assert time.monotonic() - began < 5


def test_numbers_are_judged_exactly_also_beyond_64_bits() -> None:
    schema = {"type": "integer", "maximum": 10**30}
    assert faults(schema, str(10**30)) == []
    assert faults(schema, str(10**30 + 1)) == ["/payload"]


def test_a_reference_inside_the_schema_is_followed() -> None:
    schema = {"$defs": {"id": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/id"}}}
    assert faults(schema, '{"a": "x"}') == ["/payload/a"]


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = {"properties": {"$id": {"type": "integer"}, "const": {"type": "integer"}}}
    assert faults(schema, '{"$id": "x", "const": "y"}') == ["/payload/$id", "/payload/const"]


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"$ref": "http://127.0.0.1:1/schema"}, "fetched"),
        ({"$ref": "file:///etc/passwd"}, "fetched"),
        ({"$id": "http://example.org/s"}, r"\$id"),
        ({"$dynamicRef": "#x"}, "dynamicRef"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "2020-12"),
        ({"$ref": "#/$defs/absent"}, "names no part"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, "refers to itself"),
        ({"properties": {"default": {"items": {"$ref": "#"}}}}, "refers to itself"),
        ({"pattern": "(?=lookahead)"}, "regex"),
        ({"pattern": "("}, "regex"),
        ({"type": "nope"}, "JSON Schema"),
        (True, "object"),
        ([], "object"),
        ({"title": "x" * 70_000}, "bytes"),
    ],
)
def test_a_schema_that_could_cost_without_bound_or_fetch_is_refused(schema: Any, word: str) -> None:
    with pytest.raises(BadSchema, match=word):
        Checker(schema)


def test_references_that_multiply_are_refused() -> None:
    """Twelve levels of four references each would be 16 million parts."""
    levels = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 4} for n in range(12)}
    with pytest.raises(BadSchema, match="multiply"):
        Checker({"$defs": levels | {"l12": {}}})


def test_a_chain_of_references_cannot_be_deeper_than_a_document() -> None:
    """Also when its links are measured from the far end."""
    links = {f"l{n}": {"items": {"$ref": f"#/$defs/l{n + 1}"}} for n in range(99, -1, -1)}
    with pytest.raises(BadSchema, match="deep"):
        Checker({"$defs": links | {"l100": {}}})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(.*a){12}$"])
def test_a_pattern_that_would_explode_elsewhere_takes_linear_time(pattern: str) -> None:
    """Backtracking engines need ages for 40 characters of this; here are 100,000."""
    began = time.monotonic()
    assert faults({"pattern": pattern}, json.dumps("a" * 100_000 + "!")) == ["/payload"]
    assert time.monotonic() - began < 30


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_any_payload_gets_an_answer_and_a_constant_is_satisfied_by_itself_alone(value: Any) -> None:
    text = json.dumps(value)
    assert faults({"const": value}, text) == []
    assert faults({"not": {"const": value}}, text) == ["/payload"]
