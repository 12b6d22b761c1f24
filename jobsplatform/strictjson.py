"""Reads request bodies by the strict rules of the wire contract and keeps the exact text of chosen members.

The outer levels (body, list, item) are scanned here, member by member; every value in them goes to the C
scanner of `json`, so that a payload costs no Python per character and its source text is known to the byte.
What is wrong with one value is recorded as a fault of the object that holds it: only broken syntax spoils the
whole body. Depth is never counted by recursion, and no input raises RecursionError out of here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NoReturn

from jobsplatform.errors import FieldError, Invalid

DEPTH_MAX: Final = 64  # of one value, counted from its root
MEMBERS_MAX: Final = 10_000  # of one object
INTEGER_DIGITS_MAX: Final = 308
NAME_SHOWN_CHARS: Final = 100  # of a member's name that an error repeats

DETAILS: Final[Mapping[str, str]] = {
    "duplicate": "A member name occurs twice in one object.",
    "members": f"An object has more than {MEMBERS_MAX:,} members.",
    "depth": f"Values are nested more than {DEPTH_MAX} deep.",
    "number": f"A number is beyond double range, or an integer of over {INTEGER_DIGITS_MAX} digits.",
    "nul": "The NUL character cannot be stored.",
    "surrogate": "A lone surrogate is not a character.",
}

_WS = r"[ \t\n\r]*"
_OPEN_OBJECT = re.compile(rf"{_WS}\{{{_WS}(\}}{_WS})?").match
_OPEN_LIST = re.compile(rf"\[{_WS}(\]{_WS})?").match
_PLAIN_NAME = re.compile(rf'"([^"\\\x00-\x1f]*)"{_WS}:{_WS}').match
_COLON = re.compile(rf"{_WS}:{_WS}").match
_NEXT_MEMBER = re.compile(rf"{_WS}([,}}]){_WS}").match
_NEXT_ITEM = re.compile(rf"{_WS}([,\]]){_WS}").match
# An unterminated string matches up to the end: without that, each of its quotes would start another full
# scan.
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\Z)'
_STRING_OR_BRACKET = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_NO_BRACKET = re.compile(rf'{_STRING}|[^"\[\]{{}}]+', re.DOTALL)
_SUSPICIOUS_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])").search
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u(?P<nul>0000)|u(?P<surrogate>[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Template:
    """What the reader must know of an object: members kept as text, texts that may hold NUL, object lists."""

    raw: frozenset[str] = frozenset()
    nul: frozenset[str] = frozenset()
    items: Mapping[str, Items] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Items:
    """A list of objects: their template, and how many there may be."""

    template: Template
    limit: int


class Raw:
    """A JSON value as its exact source text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def size(self) -> int:
        """Bytes in UTF-8, from the value's first to its last."""
        return len(self.text) if self.text.isascii() else len(self.text.encode())

    def __repr__(self) -> str:
        return f"Raw({self.text[:80]!r})"


class Node(dict[str, Any]):
    """The members of one object, and what is wrong with them."""

    __slots__ = ("faults",)

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[FieldError] = []


def read(body: bytes, template: Template) -> Node:
    """Parse a request body. Raises Invalid when it is no UTF-8, no JSON, no object, or has too long a list.

    Other faults are in `Node.faults` of the object they stand in.
    """
    return _Reader(_decoded(body)).document(template)


def raw(text: str) -> Raw:
    """Check one JSON value given as text, for callers that have no request. Raises Invalid."""
    reader = _Reader(text.strip(" \t\n\r"))
    node = Node()
    _, end = reader.leaf(0, "", node)
    if end != len(reader.text):
        reader.broken(end)
    if node.faults:
        raise Invalid(errors=node.faults)
    return Raw(reader.text)


def canonical(text: str) -> bytes:
    """Bytes that two JSON texts share exactly when they differ in white space and member order alone.

    Numbers keep their digits (1.0 is not 1). `text` must have passed `read` or `raw`.
    """
    return _CANONICAL_ENCODER.encode(_CANONICAL_DECODER.decode(text)).encode("ascii")


def pointer(parent: str, name: str) -> str:
    """The JSON pointer of a member, safe to print whatever its name is."""
    shown = name[:NAME_SHOWN_CHARS].encode("utf-8", "replace").decode()
    return f"{parent}/{shown.replace('~', '~0').replace('/', '~1')}"


def _decoded(body: bytes) -> str:
    if body.startswith(b"\xef\xbb\xbf"):
        raise Invalid.at("", "The body begins with a byte order mark.", "encoding")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid.at("", f"The body is not UTF-8 at byte {error.start}.", "encoding") from None


class _Reader:
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.has_escapes = "\\u" in text
        self.marks: set[str] = set()  # rules that the value being scanned breaks
        self.decode = json.JSONDecoder(
            object_pairs_hook=self._pairs,
            parse_int=self._integer,
            parse_float=self._float,
            parse_constant=self._constant,
        ).raw_decode

    def document(self, template: Template) -> Node:
        opening = _OPEN_OBJECT(self.text)
        if opening is None:
            self._refuse_root()
        node, end = self.object(opening.start(), template, "")
        if end != len(self.text):
            self.broken(end)
        return node

    def object(self, at: int, template: Template, parent: str) -> tuple[Node, int]:
        """The object that opens at `at`, and where the text goes on."""
        text = self.text
        node = Node()
        opening = _OPEN_OBJECT(text, at)
        if opening is None:
            self.broken(at)
        at = opening.end()
        if opening[1] is not None:
            return node, at
        while True:
            plain = _PLAIN_NAME(text, at)
            if plain is not None:
                name, at = plain[1], plain.end()
            else:
                name, at = self._escaped_name(at, parent, node)
            if name in node:
                node.faults.append(FieldError(pointer(parent, name), "duplicate", DETAILS["duplicate"]))
            if name in template.items and text.startswith("[", at):
                node[name], at = self._list(at, template.items[name], pointer(parent, name))
            else:
                value, end = self.leaf(at, parent, node, name, allow_nul=name in template.nul)
                node[name] = Raw(text[at:end]) if name in template.raw else value
                at = end
            following = _NEXT_MEMBER(text, at)
            if following is None:
                self.broken(at)
            at = following.end()
            if following[1] == "}":
                return self._counted(node, parent), at

    def _list(self, at: int, items: Items, parent: str) -> tuple[list[Any], int]:
        """A list of objects: each gets its own node; anything else is kept as a plain value."""
        text = self.text
        values: list[Any] = []
        opening = _OPEN_LIST(text, at)
        if opening is None:
            self.broken(at)
        at = opening.end()
        if opening[1] is not None:
            return values, at
        while True:
            if len(values) == items.limit:
                raise Invalid.at(parent, f"More than {items.limit:,} items.", "length")
            here = f"{parent}/{len(values)}"
            if text.startswith("{", at):
                value, at = self.object(at, items.template, here)
            else:
                other = Node()
                value, at = self.leaf(at, here, other)
            values.append(value)
            following = _NEXT_ITEM(text, at)
            if following is None:
                self.broken(at)
            at = following.end()
            if following[1] == "]":
                return values, at

    def leaf(
        self, at: int, parent: str, node: Node, name: str | None = None, *, allow_nul: bool = False
    ) -> tuple[Any, int]:
        """Any value, by the C scanner; what is wrong with it goes to the node."""
        try:
            value, end = self.decode(self.text, at)
        except RecursionError:
            value, end = None, self._skip(at)
            self.marks.add("depth")
        except json.JSONDecodeError as error:
            self.broken(error.pos)
        if isinstance(value, (dict, list)) and self._is_too_deep(at, end):
            self.marks.add("depth")
        if self.has_escapes:
            self.marks |= _escape_faults(self.text, at, end)
        if self.marks:
            if allow_nul and isinstance(value, str):
                value = value.replace("\0", "�")
                self.marks.discard("nul")
            where = parent if name is None else pointer(parent, name)
            node.faults.extend(FieldError(where, code, DETAILS[code]) for code in sorted(self.marks))
            self.marks.clear()
        return value, end

    def broken(self, at: int) -> NoReturn:
        raise Invalid.at("", f"The body is not JSON at character {at}.", "syntax") from None

    # steps

    def _refuse_root(self) -> NoReturn:
        try:
            self.decode(self.text.strip(" \t\n\r"))
        except RecursionError:
            pass
        except json.JSONDecodeError as error:
            self.broken(error.pos)
        raise Invalid.at("", "The body must be one JSON object.", "type")

    @staticmethod
    def _counted(node: Node, parent: str) -> Node:
        if len(node) > MEMBERS_MAX:
            node.faults.append(FieldError(parent, "members", DETAILS["members"]))
        return node

    def _escaped_name(self, at: int, parent: str, node: Node) -> tuple[str, int]:
        if not self.text.startswith('"', at):
            self.broken(at)
        name, end = self.leaf(at, parent, node)
        colon = _COLON(self.text, end)
        if colon is None:
            self.broken(end)
        return name, colon.end()

    def _is_too_deep(self, at: int, end: int) -> bool:
        text = self.text
        if text.count("[", at, end) + text.count("{", at, end) <= DEPTH_MAX:
            return False  # too few brackets to be deep: nearly every value ends here
        brackets = _NO_BRACKET.sub("", text[at:end])
        return max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets)) > DEPTH_MAX

    def _skip(self, at: int) -> int:
        """The end of a value that is too deep to be scanned."""
        depth = 0
        for token in _STRING_OR_BRACKET.finditer(self.text, at):
            if token[0] in "[{":
                depth += 1
            elif token[0] in "]}":
                depth -= 1
                if depth == 0:
                    return token.end()
        self.broken(len(self.text))

    # what the C scanner calls back; a fault is noted and scanning goes on, so that the value's end is found

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            self.marks.add("duplicate")
        if len(members) > MEMBERS_MAX:
            self.marks.add("members")
        return members

    def _integer(self, digits: str) -> int:
        if len(digits) > INTEGER_DIGITS_MAX and len(digits.lstrip("-")) > INTEGER_DIGITS_MAX:
            self.marks.add("number")
            return 0
        return int(digits)

    def _float(self, digits: str) -> float:
        value = float(digits)
        if value - value != 0.0:
            self.marks.add("number")
        return value

    def _constant(self, word: str) -> float:
        self.marks.add("number")
        return 0.0


def _escape_faults(text: str, start: int, end: int) -> set[str]:
    """Which of `nul` and `surrogate` the escapes between two places stand for."""
    if _SUSPICIOUS_ESCAPE(text, start, end) is None:
        return set()
    return {match.lastgroup for match in _ESCAPE.finditer(text, start, end) if match.lastgroup is not None}


# A number becomes a text that begins with NUL, which no text of a checked value does: so its digits survive.
_CANONICAL_DECODER = json.JSONDecoder(parse_int="\0".__add__, parse_float="\0".__add__)
_CANONICAL_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)
