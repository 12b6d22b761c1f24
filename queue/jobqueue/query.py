"""The query bar's language: `state:dead queue:default error:"timed out" age:>10m`. Pure: no Django, no database.

A query is words of the form `field:value`, all of which must hold. A value with spaces or quotes stands in double
quotes, in which `\\"` and `\\\\` stand for themselves. What a query says is a `Query`; `text` writes it so that
parsing it again gives the same query. Who may see what is no matter of the query's: it can only narrow.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from jobsplatform.errors import Invalid

QUERY_CHARS_MAX: Final = 1_000
VALUE_CHARS_MAX: Final = 255
AGE_SECONDS_MAX: Final = 100 * 365 * 86_400  # a hundred years

FIELDS: Final = ("id", "state", "queue", "kind", "tenant", "priority", "key", "error", "age")
TENANT_FIELDS: Final = tuple(name for name in FIELDS if name != "tenant")
STATES: Final = ("scheduled", "ready", "running", "succeeded", "dead", "cancelled", "expired")

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"([0-9]{1,9})([smhdw])").match
_ID = re.compile(r"(0|[1-9][0-9]{0,4})-([1-9][0-9]{0,14})", re.ASCII).fullmatch
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII).fullmatch
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII).fullmatch
_BAND = re.compile(r"[0-9]{1,2}(\.\.[0-9]{1,2})?", re.ASCII).fullmatch
_PLAIN = re.compile(r'[^\s"\\]+').fullmatch


class BadQuery(Invalid):
    """A query that cannot be read; the text says what is wrong and `word` is what was written there."""

    def __init__(self, detail: str, word: str = "") -> None:
        self.word = word
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Term:
    """One condition, its value in the form in which it is written again."""

    field: str
    value: str

    @property
    def text(self) -> str:
        """As it is typed."""
        return f"{self.field}:{_written(self.value)}"


@dataclass(frozen=True, slots=True)
class Query:
    """What a query bar asks for: every term must hold."""

    terms: tuple[Term, ...] = ()

    @property
    def text(self) -> str:
        """The query as it is typed; parsing it gives this query."""
        return " ".join(term.text for term in self.terms)

    def value(self, field: str) -> str | None:
        """The value of a field that can be given once."""
        return next((term.value for term in self.terms if term.field == field), None)

    def values(self, field: str) -> list[str]:
        return [term.value for term in self.terms if term.field == field]

    def without(self, term: Term) -> Query:
        """The query less one condition."""
        return replace(self, terms=tuple(held for held in self.terms if held != term))

    def with_(self, field: str, value: str) -> Query:
        """The query with a field set, in place of what it said of that field."""
        kept = tuple(term for term in self.terms if term.field != field)
        return replace(self, terms=(*kept, Term(field, value)))

    def age_seconds(self) -> tuple[int | None, int | None]:
        """(older than, younger than), in seconds."""
        older = younger = None
        for value in self.values("age"):
            seconds = span_seconds(value[1:])
            assert seconds is not None, "it was checked"
            older, younger = (seconds, younger) if value[0] == ">" else (older, seconds)
        return older, younger

    def bands(self) -> tuple[int, int] | None:
        """The first and last index of the bands asked for; None for none, or for a band's name."""
        value = self.value("priority")
        if value is None or _BAND(value) is None:
            return None
        first, _, last = value.partition("..")
        return int(first), int(last or first)


def parse(text: str, *, fields: Collection[str] = FIELDS) -> Query:
    """Read a query; `fields` are those that the asker may use. Raises BadQuery."""
    if len(text) > QUERY_CHARS_MAX:
        raise BadQuery(f"A query has at most {QUERY_CHARS_MAX:,} characters.")
    if any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n\r" for char in text):
        raise BadQuery("A query has no control characters.")
    terms: list[Term] = []
    for word, field, value in _words(text):
        term = _term(word, field, value, fields)
        if term not in terms:
            _refuse_twice(term, terms)
            terms.append(term)
    query = Query(tuple(terms))
    older, younger = query.age_seconds()
    if older is not None and younger is not None and older >= younger:
        raise BadQuery("No job is older than the first age and younger than the second.", "age")
    return query


# Words


def _words(text: str) -> Iterator[tuple[str, str, str]]:
    """Each word with its field and its value, quotes taken off."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        begin = at
        while at < len(text) and not text[at].isspace() and text[at] not in ':"':
            at += 1
        field = text[begin:at]
        if at == len(text) or text[at] != ":":
            yield _bare(_rest(text, begin))
            at = begin + len(_rest(text, begin))
            continue
        value, at = _value(text, at + 1)
        yield text[begin:at], field.lower(), value


def _rest(text: str, begin: int) -> str:
    return text[begin:].split(maxsplit=1)[0]


def _bare(word: str) -> tuple[str, str, str]:
    if _ID(word) is not None:
        return word, "id", word
    raise BadQuery(f"{_shown(word)} is neither a job's id nor field:value, such as key:{word[:40]}", word)


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that begins at a place, and where it ends."""
    if at < len(text) and text[at] == '"':
        return _quoted(text, at + 1)
    end = at
    while end < len(text) and not text[end].isspace():
        end += 1
    value = text[at:end]
    if '"' in value or "\\" in value:
        raise BadQuery(f'A value with quotes or backslashes stands in quotes: "{_escaped(value)}"', value)
    return value, end


def _quoted(text: str, at: int) -> tuple[str, int]:
    found: list[str] = []
    while at < len(text):
        char = text[at]
        if char == '"':
            if at + 1 < len(text) and not text[at + 1].isspace():
                raise BadQuery("After a closing quote comes a space.", text[at : at + 20])
            return "".join(found), at + 1
        if char == "\\" and at + 1 < len(text) and text[at + 1] in '"\\':
            at += 1
            char = text[at]
        elif char == "\\":
            raise BadQuery(r"In quotes a backslash stands before \" or \\.", text[at : at + 2])
        found.append(" " if char in "\t\n\r" else char)
        at += 1
    raise BadQuery("A quote is not closed.", "".join(found)[:40])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _written(value: str) -> str:
    return value if _PLAIN(value) is not None else f'"{_escaped(value)}"'


def _shown(word: str) -> str:
    return f"“{word[:40]}{'…' if len(word) > 40 else ''}”"


# Terms


def _term(word: str, field: str, value: str, fields: Collection[str]) -> Term:
    if field == "prio":
        field = "priority"
    if field not in fields:
        raise BadQuery(f"There is no field {_shown(field)}; there are {', '.join(fields)}.", word)
    value = value.strip()
    if not value:
        raise BadQuery(f"{field}: needs a value.", word)
    if len(value) > VALUE_CHARS_MAX:
        raise BadQuery(f"{field}: has a value of more than {VALUE_CHARS_MAX} characters.", field)
    checked = _CHECKS[field](value) if field in _CHECKS else value
    return Term(field, checked)


def _refuse_twice(term: Term, terms: list[Term]) -> None:
    same = [held for held in terms if held.field == term.field]
    if term.field == "age":
        same = [held for held in same if held.value[0] == term.value[0]]
    if same:
        raise BadQuery(f"{term.field}: is given twice; all conditions must hold.", term.text)


def _id(value: str) -> str:
    if _ID(value) is None:
        raise BadQuery(f"id: {_shown(value)} is no job's id, such as 0-42.", value)
    return value


def _state(value: str) -> str:
    if value.lower() not in STATES:
        raise BadQuery(f"state: is one of {', '.join(STATES)}.", value)
    return value.lower()


def _tenant(value: str) -> str:
    if _SLUG(value) is None:
        raise BadQuery(f"tenant: {_shown(value)} can be no tenant's name.", value)
    return value


def _named(field: str, value: str) -> str:
    if _NAME(value) is None:
        raise BadQuery(f"{field}: {_shown(value)} can be no {field}'s name.", value)
    return value


def _priority(value: str) -> str:
    if value.isdecimal() and value.isascii() and len(value) <= 2:
        return str(int(value))
    if _BAND(value) is None:
        return value  # a band's name: which there are, the queue knows
    first, last = (int(part) for part in value.split(".."))
    if first > last:
        raise BadQuery("priority: a range begins with the more urgent, such as 0..1.", value)
    return str(first) if first == last else f"{first}..{last}"


def _age(value: str) -> str:
    seconds = span_seconds(value[1:].strip()) if value[0] in "<>" else None
    if seconds is None:
        raise BadQuery("age: is such as >10m or <2h (units s, m, h, d, w).", value)
    if seconds > AGE_SECONDS_MAX:
        raise BadQuery("age: is more than a hundred years.", value)
    return value[0] + value[1:].strip()


def span_seconds(text: str) -> int | None:
    """Seconds of such a text as `90s`, `1h30m`; None for any other."""
    total, at = 0, 0
    while at < len(text):
        part = _SPAN(text, at)
        if part is None:
            return None
        total += int(part[1]) * _UNITS[part[2]]
        at = part.end()
    return total if text else None


_CHECKS: Final = {
    "id": _id,
    "key": lambda value: unicodedata.normalize("NFC", value),
    "state": _state,
    "tenant": _tenant,
    "queue": lambda value: _named("queue", value),
    "kind": lambda value: _named("kind", value),
    "priority": _priority,
    "age": _age,
}
