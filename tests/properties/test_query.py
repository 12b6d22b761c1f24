"""The query bar's language: what is written is read again, what cannot be read is said in a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import query, states
from jobqueue.query import BadQuery, Query, Term, parse, span_seconds

TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40).map(str.strip)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
VALUES = {
    "id": st.from_regex(r"[0-9]-[1-9][0-9]{0,8}", fullmatch=True).filter(lambda text: text.isascii()),
    "state": st.sampled_from(query.STATES),
    "queue": NAMES,
    "kind": NAMES,
    "tenant": st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True),
    "priority": st.integers(0, 98).map(str)
    | st.tuples(st.integers(0, 9), st.integers(10, 99)).map(lambda pair: f"{pair[0]}..{pair[1]}"),
    "key": TEXTS.filter(bool),
    "error": TEXTS.filter(bool),
    "age": st.tuples(st.sampled_from("<>"), st.integers(1, 999), st.sampled_from("smhdw")).map(
        lambda parts: f"{parts[0]}{parts[1]}{parts[2]}"
    ),
}


def _terms(field: str) -> st.SearchStrategy[Term]:
    return VALUES[field].map(lambda value: Term(field, value))


QUERIES = st.lists(st.sampled_from(sorted(VALUES)), unique=True).flatmap(
    lambda fields: st.tuples(*(_terms(field) for field in fields))
)


@given(QUERIES)
def test_what_is_written_is_read_again(terms: tuple[Term, ...]) -> None:
    parsed = parse(Query(terms).text)
    assert parse(parsed.text) == parsed
    assert [term.field for term in parsed.terms] == [term.field for term in terms]
    for before, after in zip(terms, parsed.terms, strict=True):
        assert after.value == before.value or before.field in ("key", "error", "priority")


@given(QUERIES)
def test_a_query_less_a_term_holds_all_others(terms: tuple[Term, ...]) -> None:
    parsed = parse(Query(terms).text)
    for term in parsed.terms:
        left = parsed.without(term)
        assert set(left.terms) == set(parsed.terms) - {term}
        assert parse(left.text) == left


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        parsed = parse(text)
    except BadQuery as error:
        said = error.detail
    else:
        assert parse(parsed.text) == parsed
        return
    assert said
    assert "\n" not in said


@given(st.text(max_size=60))
def test_a_tenants_query_never_names_a_tenant(text: str) -> None:
    try:
        parsed = parse(text, fields=query.TENANT_FIELDS)
    except BadQuery:
        return
    assert parsed.value("tenant") is None


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("  \t ", []),
        ("0-42", [("id", "0-42")]),
        ("state:DEAD queue:default", [("state", "dead"), ("queue", "default")]),
        ('key:"a \\"b\\" \\\\"', [("key", 'a "b" \\')]),
        ("prio:0..1", [("priority", "0..1")]),
        ("priority:1..1", [("priority", "1")]),
        ("priority:P0", [("priority", "P0")]),
        ("age:>10m age:<2h", [("age", ">10m"), ("age", "<2h")]),
        ("key:a:b", [("key", "a:b")]),
        ("STATE:ready state:ready", [("state", "ready")]),
        ("error:timed", [("error", "timed")]),
    ],
)
def test_queries_are_read(text: str, terms: list[tuple[str, str]]) -> None:
    assert [(term.field, term.value) for term in parse(text).terms] == terms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "neither a job's id nor field:value"),
        ("colour:red", "There is no field “colour”"),
        ("state:busy", "state: is one of scheduled"),
        ("state:", "state: needs a value"),
        ("id:7", "no job's id"),
        ("age:10m", "age: is such as >10m"),
        ("age:>10y", "age: is such as >10m"),
        ("age:>9999999w", "more than a hundred years"),
        ("age:>2h age:<1h", "No job is older"),
        ("priority:3..1", "begins with the more urgent"),
        ("state:ready state:dead", "given twice"),
        ('key:"open', "not closed"),
        ('key:a"b', "stands in quotes"),
        ('key:"a"b', "closing quote"),
        ('key:"a\\n"', "backslash"),
        ("key:\x00", "control characters"),
        ("key:" + "a" * 256, "more than 255"),
        ("key:" + "a" * 1_000, "at most 1,000"),
        ("tenant:Acme", "can be no tenant's name"),
        ("kind:%27", "can be no kind's name"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadQuery) as caught:
        parse(text)
    assert says in caught.value.detail


@given(st.integers(1, 99), st.integers(1, 59))
def test_spans_add_up(hours: int, minutes: int) -> None:
    assert span_seconds(f"{hours}h{minutes}m") == hours * 3_600 + minutes * 60
    assert span_seconds(f"{hours}") is None


def test_the_language_knows_every_state() -> None:
    assert tuple(states.State.values) == query.STATES
