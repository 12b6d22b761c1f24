"""Shapes: what they accept, every fault they report, and the schema that they write."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from jobsplatform import strictjson
from jobsplatform.errors import Invalid, JobsPlatformError, TooLarge, UnknownErrorClass
from jobsplatform.fields import (
    Boolean,
    Choice,
    Fault,
    Field,
    IndexOrName,
    Instant,
    Integer,
    Json,
    Key,
    Name,
    Number,
    Text,
    normal_key,
)
from jobsplatform.shapes import Checked, ListOf, Shape, exactly_one, not_both

JOB = Shape(
    "NewJob",
    Name(name="kind", required=True),
    Json(name="payload", bytes_max=20),
    Text(name="payload_ref", nullable=True, chars_min=1, chars_max=10),
    Key(name="request_key"),
    Instant(name="not_before", nullable=True),
    Integer(name="delay_s", nullable=True, high=100),
    Integer(name="max_attempts", low=1, high=100, default=5),
    rules=(exactly_one("payload", "payload_ref"), not_both("not_before", "delay_s")),
)
BATCH = Shape("Batch", ListOf(name="jobs", item=JOB, low=1, high=3, required=True))


def check(shape: Shape, members: object) -> Checked:
    return shape.check(strictjson.read(json.dumps(members).encode(), shape.template))


def faults(shape: Shape, members: object) -> list[tuple[str, str]]:
    return [(error.pointer, error.code) for error in check(shape, members).errors]


def one(field: Field, value: object) -> Any:
    """The checked value of one field, or the code of its fault."""
    shape = Shape("One", field)
    checked = check(shape, {field.name: value})
    return checked.errors[0].code if checked.errors else checked.values[field.name]


def test_a_valid_object_becomes_values_with_defaults() -> None:
    values = check(JOB, {"kind": "email.send", "payload": {"a": 1}, "not_before": None}).values
    assert values == {
        "kind": "email.send",
        "payload": '{"a": 1}',
        "payload_ref": None,
        "request_key": None,
        "not_before": None,
        "delay_s": None,
        "max_attempts": 5,
    }


def test_every_fault_is_reported_at_its_pointer() -> None:
    body = {
        "payload": 1,
        "payload_ref": "",
        "max_attempts": 0,
        "delay_s": 1.5,
        "a/b~c": 1,
        "request_key": None,
    }
    assert faults(JOB, body) == [
        ("/kind", "required"),
        ("/payload_ref", "length"),
        ("/request_key", "null"),
        ("/delay_s", "type"),
        ("/max_attempts", "range"),
        ("/a~1b~0c", "unknown"),
        ("/payload_ref", "conflict"),
    ]


@pytest.mark.parametrize("value", ["2", 2.0, True, 1.5, [1], {}, 2**63, -1, 101])
def test_integers_are_json_integers_within_bounds_only(value: object) -> None:
    assert one(Integer(name="limit", low=1, high=100), value) in ("type", "range")


def test_null_is_allowed_only_where_it_means_absent() -> None:
    assert one(Integer(name="limit", low=1), None) == "null"
    assert one(Integer(name="limit", low=1, nullable=True, default=3), None) == 3


@pytest.mark.parametrize("value", [0, 1, "true", None, []])
def test_booleans_are_true_or_false_only(value: object) -> None:
    assert one(Boolean(name="started"), value) in ("type", "null")


def test_numbers_may_be_integers_but_not_booleans() -> None:
    share = Number(name="share", low=0.01, high=1)
    assert one(share, 1) == 1.0
    assert one(share, True) == "type"
    assert one(share, 1.01) == "range"


@pytest.mark.parametrize("value", ["", "A", "-a", "a b", "é", "a" * 65, "a\n", ".a", 1])
def test_names_have_one_pattern(value: object) -> None:
    assert one(Name(name="kind"), value) in ("pattern", "type")


@pytest.mark.parametrize("value", ["a", "0", "email.send_2-x", "a" * 64])
def test_names_of_the_pattern_pass(value: str) -> None:
    assert one(Name(name="kind"), value) == value


def test_a_payload_of_null_is_a_payload() -> None:
    assert check(JOB, {"kind": "a", "payload": None}).values["payload"] == "null"
    assert faults(JOB, {"kind": "a", "payload": None, "payload_ref": "s3"}) == [("/payload_ref", "conflict")]
    assert faults(JOB, {"kind": "a", "payload_ref": None}) == [("/payload", "conflict")]


def test_a_value_over_its_bytes_is_too_large_whatever_else_is_wrong() -> None:
    refusal = check(JOB, {"kind": "A", "payload": "é" * 10}).refusal
    assert isinstance(refusal, TooLarge)
    assert [error.pointer for error in refusal.extra["errors"]] == ["/payload"]
    raw = b'{"kind":"a","payload":"' + "é".encode() * 9 + b'"}'
    assert JOB.check(strictjson.read(raw, JOB.template)).refusal is None


def test_a_word_with_its_own_code_is_refused_with_that_code() -> None:
    shape = Shape(
        "Failure", Choice(name="error_class", choices=("transient",), fault_code="unknown_error_class")
    )
    assert isinstance(check(shape, {"error_class": "zzz"}).refusal, UnknownErrorClass)
    both: JobsPlatformError | None = check(shape, {"error_class": "zzz", "x": 1}).refusal
    assert isinstance(both, Invalid)
    assert len(both.errors) == 2


def test_items_of_a_batch_stand_alone() -> None:
    good = {"kind": "a", "payload": 1}
    checked = check(BATCH, {"jobs": [good, {"kind": "A"}, 7]})
    assert checked.errors == []
    first, second, third = checked.values["jobs"]
    assert first.errors == []
    assert [(e.pointer, e.code) for e in second.errors] == [
        ("/jobs/1/kind", "pattern"),
        ("/jobs/1/payload", "conflict"),
    ]
    assert [(e.pointer, e.code) for e in third.errors] == [("/jobs/2", "type")]


def test_a_batch_has_a_size() -> None:
    assert faults(BATCH, {"jobs": []}) == [("/jobs", "length")]
    assert faults(BATCH, {"jobs": {}}) == [("/jobs", "type")]
    with pytest.raises(Invalid):
        check(BATCH, {"jobs": [{}] * 4})


def test_plain_lists_report_each_item() -> None:
    shape = Shape("Claim", ListOf(name="capabilities", item=Name(), high=3))
    assert check(shape, {"capabilities": ["a", "b"]}).values["capabilities"] == ["a", "b"]
    assert faults(shape, {"capabilities": ["a", "B", 1]}) == [
        ("/capabilities/1", "pattern"),
        ("/capabilities/2", "type"),
    ]


def test_a_band_is_named_by_index_or_name() -> None:
    band = IndexOrName(name="priority")
    assert one(band, 0) == 0
    assert one(band, "H") == "H"
    bad: list[object] = [True, 1.0, -1, 100, [], None]
    for value in bad:
        assert one(band, value) in ("type", "range", "null")


def test_instants_become_datetimes() -> None:
    due = Instant(name="not_before")
    assert one(due, "2026-01-01T00:00:00+14:00") == datetime(2025, 12, 31, 10, tzinfo=UTC)
    assert one(due, "2026-01-01T00:00:00") == "instant"
    assert one(due, 1767225600) == "type"


def test_a_note_needs_something_to_read() -> None:
    assert one(Text(name="note", not_blank=True), " \u00a0\t") == "blank"


@pytest.mark.parametrize(
    ("key", "normal"),
    [
        ("order-331:receipt", "order-331:receipt"),
        ("cafe\u0301", "café"),
        ("a" * 255, "a" * 255),
        ("😀" * 255, "😀" * 255),
        ("e\u0301" * 255, "é" * 255),
        ("two words", "two words"),
    ],
)
def test_request_keys_are_kept_in_nfc(key: str, normal: str) -> None:
    assert normal_key(key) == normal


@pytest.mark.parametrize(
    "key",
    [
        *(
            "",
            "a" * 256,
            " a",
            "a ",
            "\u00a0a",
            "a\tb",
            "a\x7f",
            "a\u200db",
            "a\u2028b",
            "a\u2029b",
            "\ufeffa",
            "\ud83d",
        ),
        *("a" * 100_000, "\u0301" * 50_000, "é" * 256, "\u00adx"),
    ],
)
def test_other_texts_are_no_request_key(key: str) -> None:
    with pytest.raises(Fault):
        normal_key(key)


def test_combining_marks_cannot_make_a_key_slow() -> None:
    began = time.thread_time()
    with pytest.raises(Fault):
        normal_key("a" + "\u0327\u0301" * 100_000)
    assert time.thread_time() - began < 0.05


QUERY = Shape(
    "Filter",
    Integer(name="limit", low=1, high=200, default=50),
    Choice(name="state", choices=("ready", "dead")),
    Boolean(name="flat", default=False),
    Text(name="cursor", chars_min=1, chars_max=10),
    IndexOrName(name="priority"),
)


def query(**texts: str | list[str]) -> Checked:
    return QUERY.check_query(
        {name: [text] if isinstance(text, str) else text for name, text in texts.items()}
    )


def test_query_parameters_are_read_from_their_text() -> None:
    values = query(limit="10", state="dead", flat="true", priority="1").values
    assert (values["limit"], values["state"], values["flat"], values["priority"]) == (10, "dead", True, 1)
    assert query().values["limit"] == 50
    assert query(priority="P1").values["priority"] == "P1"


@pytest.mark.parametrize(
    "texts",
    [
        *({"limit": text} for text in ("0", "201", "01", "+1", "1.0", "", " 1", "1e2", "-0", "１", "9" * 30)),
        *({"state": "gone"}, {"flat": "1"}, {"cursor": ""}, {"unknown": "1"}, {"limit": ["1", "1"]}),
    ],
)
def test_other_query_parameters_are_refused_once_each(texts: dict[str, Any]) -> None:
    assert [error.pointer for error in query(**texts).errors] == [f"/{next(iter(texts))}"]


@pytest.mark.parametrize(
    ("body", "is_valid"),
    [
        ({"kind": "a", "payload": 1}, True),
        ({"kind": "a", "payload": 1, "not_before": None, "delay_s": None, "max_attempts": 100}, True),
        ({"payload": 1}, False),
        ({"kind": "a", "payload": 1, "max_attempts": 101}, False),
        ({"kind": "a", "payload": 1, "max_attempts": None}, False),
        ({"kind": "a", "payload": 1, "unknown": 1}, False),
        ({"kind": "A", "payload": 1}, False),
    ],
)
def test_the_schema_says_what_the_check_does(body: dict[str, Any], is_valid: bool) -> None:
    assert (check(JOB, body).errors == []) is is_valid
    assert jsonschema.Draft202012Validator(JOB.schema()).is_valid(body) is is_valid


def test_a_thousand_jobs_are_checked_quickly() -> None:
    shape = Shape("Many", ListOf(name="jobs", item=JOB, high=1_000))
    body = {
        "jobs": [
            {"kind": "a", "payload": "x", "request_key": f"k-{n}", "max_attempts": 3} for n in range(1_000)
        ]
    }
    node = strictjson.read(json.dumps(body).encode(), shape.template)
    began = time.thread_time()
    checked = shape.check(node)
    assert time.thread_time() - began < 0.25  # 6 ms on an idle machine
    assert all(item.errors == [] for item in checked.values["jobs"])
