"""The strict reader: what it refuses, and that it keeps every byte of what it accepts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobsplatform import strictjson
from jobsplatform.errors import FieldError, Invalid
from jobsplatform.strictjson import Items, Node, Raw, Template

JOB = Template(raw=frozenset({"payload"}), nul=frozenset({"message"}))
BATCH = Template(items={"jobs": Items(JOB, 3)})
HOSTILE_SECONDS_MAX = 0.25  # of CPU; the contract says 50 ms, on a machine that is not busy


def faults(body: bytes | str, template: Template = JOB) -> list[tuple[str, str]]:
    """(pointer, code) of every fault, also of one that spoils the whole body."""
    try:
        node = strictjson.read(body.encode() if isinstance(body, str) else body, template)
    except Invalid as error:
        return [(fault.pointer, fault.code) for fault in error.errors]
    return [(fault.pointer, fault.code) for fault in _all_faults(node)]


def _all_faults(node: Node) -> Iterator[FieldError]:
    yield from node.faults
    for value in node.values():
        for item in value if isinstance(value, list) else []:
            if isinstance(item, Node):
                yield from _all_faults(item)


def payload(text: str) -> Raw:
    node = strictjson.read(f'{{"payload":{text}}}'.encode(), JOB)
    assert node.faults == []
    kept = node["payload"]
    assert isinstance(kept, Raw)
    return kept


@pytest.mark.parametrize(
    "text",
    ["null", "0", "-0.0", "1e2", "1.0", '"a"', "[ 1 , 2 ]", '{"b": 1, "a" : [ ] }', "9223372036854775808"],
)
def test_a_payload_comes_back_digit_for_digit(text: str) -> None:
    assert payload(text).text == text


def test_white_space_around_a_payload_is_not_part_of_it() -> None:
    node = strictjson.read(b' {\n"payload" : \t[1] \r\n, "kind":"a" } \n', JOB)
    assert node["payload"].text == "[1]"
    assert node["kind"] == "a"


def test_the_size_of_a_payload_counts_bytes_not_characters() -> None:
    assert payload('"é"').size == 4
    assert payload('"\\u00e9"').size == 8


def test_payloads_of_a_list_are_kept_too() -> None:
    node = strictjson.read(b'{"jobs":[{"payload":1.0},{"payload":[ ]},7]}', BATCH)
    assert [one["payload"].text for one in node["jobs"][:2]] == ["1.0", "[ ]"]
    assert node["jobs"][2] == 7


def test_a_fault_stays_with_its_item() -> None:
    node = strictjson.read(b'{"jobs":[{"payload":{"a":1,"a":2}},{"payload":2}]}', BATCH)
    assert node.faults == []
    assert [(f.pointer, f.code) for f in node["jobs"][0].faults] == [("/jobs/0/payload", "duplicate")]
    assert node["jobs"][1].faults == []


def test_a_list_that_is_too_long_is_refused_before_it_is_read() -> None:
    assert faults('{"jobs":[{},{},{},{}', BATCH) == [("/jobs", "length")]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"a":1,"a":2}', [("/a", "duplicate")]),
        ('{"payload":{"a":{"b":1,"b":1}}}', [("/payload", "duplicate")]),
        ('{"payload":{"a":1,"\\u0061":1}}', [("/payload", "duplicate")]),
        ('{"a":1,"\\u0061":2}', [("/a", "duplicate")]),
        ('{"payload":NaN}', [("/payload", "number")]),
        ('{"payload":[-Infinity]}', [("/payload", "number")]),
        ('{"payload":1e999}', [("/payload", "number")]),
        ('{"payload":' + "9" * 308 + "}", []),
        ('{"payload":-' + "9" * 308 + "}", []),
        ('{"payload":' + "9" * 309 + "}", [("/payload", "number")]),
        ('{"payload":' + "9" * 250 + "e99}", [("/payload", "number")]),
        ('{"limit":1e999}', [("/limit", "number")]),
        ('{"payload":"\\u0000"}', [("/payload", "nul")]),
        ('{"payload":{"\\u0000":1}}', [("/payload", "nul")]),
        ('{"payload":"\\\\u0000"}', []),
        ('{"payload":"\\\\\\u0000"}', [("/payload", "nul")]),
        ('{"payload":[[["\\ud83d"]]]}', [("/payload", "surrogate")]),
        ('{"payload":{"\\ud83d":1}}', [("/payload", "surrogate")]),
        ('{"payload":"\\uDE00\\uD83D"}', [("/payload", "surrogate")]),
        ('{"payload":"\\ud83d\\ud83d\\ude00"}', [("/payload", "surrogate")]),
        ('{"payload":"\\ud83d\\ude00"}', []),
        ('{"kind":"\\udfff"}', [("/kind", "surrogate")]),
        ('{"\\ud83d":1}', [("", "surrogate")]),
        ('{"\\u0000":1}', [("", "nul")]),
        ('{"message":"a\\u0000b"}', []),
        ('{"message":["\\u0000"]}', [("/message", "nul")]),
        ('{"message":"\\ud83d"}', [("/message", "surrogate")]),
    ],
)
def test_each_rule_names_the_member_that_breaks_it(body: str, found: list[tuple[str, str]]) -> None:
    assert faults(body) == found


@pytest.mark.parametrize(
    "body",
    [
        *(
            "",
            " ",
            "{",
            "}",
            '{"a"',
            '{"a":',
            '{"a":1',
            '{"a":1,',
            '{"a":1,}',
            '{,"a":1}',
            '{"a" 1}',
            '{"a":1 "b":2}',
        ),
        *(
            "{a:1}",
            "{'a':1}",
            '{"a":1}x',
            '{"a":01}',
            '{"a":+1}',
            '{"a":.5}',
            '{"a":"\n"}',
            '{"a":"\\x"}',
            '{"a\n":1}',
        ),
        *(
            '{"payload":"',
            '{"payload":["\\"',
            '{"payload":[1 2]}',
            '{"payload":tru}',
            '{"payload":"\\u12"}',
            "\u00a0{}",
        ),
    ],
)
def test_broken_syntax_spoils_the_whole_body(body: str) -> None:
    assert faults(body) == [("", "syntax")]


@pytest.mark.parametrize("body", ["[]", "1", '"a"', "null", "[{}]"])
def test_the_root_must_be_an_object(body: str) -> None:
    assert faults(body) == [("", "type")]


@pytest.mark.parametrize(
    "body", [b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b'{"a":"\xed\xa0\xbd"}', '{"a":1}'.encode("utf-16")]
)
def test_a_body_must_be_utf8_without_a_mark(body: bytes) -> None:
    assert faults(body) == [("", "encoding")]


def test_a_nul_in_a_failure_message_becomes_a_replacement_character() -> None:
    assert strictjson.read(b'{"message":"a\\u0000b"}', JOB)["message"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("opening", "core", "closing"), [("[", "", "]"), ('{"a":', "1", "}"), ('{"]":[', '"["', "]}")]
)
@pytest.mark.parametrize("depth", [64, 65, 66, 1_000, 20_000])
def test_depth_is_counted_from_the_root_of_a_payload(
    opening: str, core: str, closing: str, depth: int
) -> None:
    levels = len(opening.replace('"]"', "").replace('"a"', "").replace(":", ""))
    count = depth // levels
    body = '{"payload":' + opening * count + core + closing * count + "}"
    expected = [] if count * levels <= 64 else [("/payload", "depth")]
    assert faults(body) == expected


def test_brackets_in_texts_do_not_count_as_depth() -> None:
    assert payload('"' + "[" * 10_000 + '"').size == 10_002


def test_ten_thousand_members_are_the_most_of_one_object() -> None:
    def body(count: int) -> str:
        return '{"payload":[{' + ",".join(f'"{n}":1' for n in range(count)) + "}]}"

    assert faults(body(10_000)) == []
    assert faults(body(10_001)) == [("/payload", "members")]


HOSTILE = {
    "deep list": b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep object": b'{"payload":' + b'{"a":' * 40_000 + b"1" + b"}" * 40_000 + b"}",
    "never closed": b'{"payload":' + b"[" * 250_000,
    "deep unknown member": b'{"x":' + b"[" * 250_000,
    "deep root": b"[" * 250_000,
    "unterminated text of quotes": b'{"payload":["' + b'\\"' * 120_000,
    "deep, then unterminated": b'{"payload":' + b"[" * 2_000 + b'"' + b'\\"' * 120_000,
    "long integer": b'{"payload":' + b"9" * 250_000 + b"}",
    "long exponent": b'{"payload":1e' + b"9" * 250_000 + b"}",
    "many lists": b'{"payload":[' + b"[]," * 60_000 + b"[]]}",
    "many escapes": b'{"payload":"' + b"\\u0041" * 40_000 + b'\\u0000"}',
    "many members": b"{" + b",".join(b'"%d":1' % n for n in range(20_000)) + b"}",
    "many backslashes": b'{"payload":"' + b"\\\\" * 120_000 + b'u0000"}',
    "white space": b'{"payload":1' + b" " * 250_000 + b"x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_answered_quickly(name: str) -> None:
    assert min(_cpu_seconds(HOSTILE[name]) for _ in range(5)) < HOSTILE_SECONDS_MAX


def _cpu_seconds(body: bytes) -> float:
    """Of one reading; the least of several is what the bytes cost, the rest is what else the machine did."""
    began = time.thread_time()
    faults(body)
    return time.thread_time() - began


def test_a_raw_value_can_be_checked_without_a_request() -> None:
    assert strictjson.raw(' {"a": 1.0} ').text == '{"a": 1.0}'
    for text in ("", "{} {}", '{"a":1,"a":1}', "[" * 100 + "]" * 100, "NaN"):
        with pytest.raises(Invalid):
            strictjson.raw(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":[2,3]}', ' { "b" : [ 2 , 3 ] , "a" : 1 } '),
        ('"é"', '"\\u00e9"'),
        ('{"x":{"b":1,"a":2}}', '{"x":{"a":2,"b":1}}'),
    ],
)
def test_order_and_white_space_do_not_count_as_content(one: str, other: str) -> None:
    assert strictjson.canonical(one) == strictjson.canonical(other.strip())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("1e2", "100"),
        ("1", '"1"'),
        ("[1,2]", "[2,1]"),
        ("0", "-0"),
        ("null", '"null"'),
        ("{}", "[]"),
    ],
)
def test_digits_types_and_list_order_count_as_content(one: str, other: str) -> None:
    assert strictjson.canonical(one) != strictjson.canonical(other)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda children: (
        st.lists(children, max_size=5)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), children, max_size=5
        )
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(value=JSON_VALUES, ascii_only=st.booleans(), indent=st.sampled_from([None, 0, 2]))
def test_every_json_value_is_kept_as_it_was_written(
    value: object, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    kept = payload(text)
    assert kept.text == text
    assert kept.size == len(text.encode())
    assert json.loads(kept.text) == value


@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=200) | st.text(alphabet='{}[]",:\\u0d8e1.- \n', max_size=60).map(str.encode))
def test_no_bytes_raise_anything_but_invalid(body: bytes) -> None:
    try:
        node = strictjson.read(body, BATCH)
    except Invalid:
        return
    assert json.loads(body).keys() == node.keys()


@settings(max_examples=300, deadline=None)
@given(inner=st.text(alphabet='{}[]",:\\u0d8e1.- \n', max_size=40))
def test_the_reader_accepts_no_payload_that_the_standard_library_refuses(inner: str) -> None:
    body = f'{{"payload":{inner}}}'
    try:
        strictjson.read(body.encode(), JOB)
    except Invalid:
        return
    json.loads(body)
