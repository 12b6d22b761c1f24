"""Whether a payload satisfies the JSON Schema of its kind, in bounded time. No Django here.

Schemas are operators', payloads anybody's. So regular expressions run in linear time, nothing is ever fetched, and a
schema cannot refer to itself: checking costs at most (size of the schema, expanded) × (size of the payload). ADR 0016.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn

from jsonschema_rs import Draft202012Validator, ReferencingError, RegexOptions, ValidationError

from jobsplatform.errors import FieldError, Invalid

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_BYTES_MAX: Final = 64 * 1024
SCHEMA_DEPTH_MAX: Final = 64  # as of every JSON document here; references followed count as well
EXPANDED_MAX: Final = 10_000  # members and items of a schema with each reference replaced by what it names
TOO_DEEP: Final = f"It is more than {SCHEMA_DEPTH_MAX} deep, references followed."
FAULTS_MAX: Final = 20  # of one payload; who has more repairs these first
# (Parts of the schema) × (values of the payload) of which faults are named one by one. The library finds all before it
# tells the first, at 15 µs and 1.3 KB each: so at most a second and 65 MB; without a bound 128 KB took 12 s and 1.1 GB.
NAMED_MAX: Final = 50_000
UNNAMED: Final = "It does not satisfy the schema; it is too large for each fault to be named."
DETAIL_CHARS_MAX: Final = 300
HIDDEN: Final = "The value"  # stands for payload values in a fault's text: it may reach a log

# What names other schemas by address, or only as the payload is walked.
_REFUSED: Final = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
_DATA: Final = ("const", "enum", "default", "examples")  # keywords whose values are no schemas
_BY_NAME: Final = (
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
)  # name → schema


class BadSchema(ValueError):
    """The schema cannot be used; the text says why."""


class Checker:
    """A schema, made ready. Raises BadSchema."""

    def __init__(self, schema: object) -> None:
        bounded, self._parts = _bounded(schema)
        try:
            self._validator = Draft202012Validator(
                bounded,
                retriever=_refuse_to_fetch,
                pattern_options=RegexOptions(),
                mask=HIDDEN,
            )
        except (ValidationError, ReferencingError, ValueError) as error:
            message = getattr(error, "message", None) or str(error)
            raise BadSchema(f"It is no JSON Schema (2020-12): {_short(message)}") from error

    def refusal(self, payload: str) -> Invalid | None:
        """What is wrong with a payload (JSON text), with pointers under `/payload`; None: nothing."""
        value = json.loads(payload)
        if self._validator.is_valid(value):
            return None
        return Invalid(
            "The payload does not satisfy the schema of its kind.", errors=self._faults(payload, value)
        )

    def _faults(self, payload: str, value: object) -> list[FieldError]:
        if self._parts * _values_at_most(payload) > NAMED_MAX:
            return [FieldError("/payload", "schema", UNNAMED)]
        return [
            FieldError("/payload" + _pointer(error.instance_path), "schema", _short(error.message))
            for error in islice(self._validator.iter_errors(value), FAULTS_MAX)
        ]


def _values_at_most(payload: str) -> int:
    """A bound of the members and items in JSON text: each follows one of these signs, or is the root."""
    return 1 + sum(map(payload.count, ",[{"))


def _pointer(path: Iterable[str | int]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _short(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= DETAIL_CHARS_MAX else line[: DETAIL_CHARS_MAX - 1] + "…"


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise LookupError(f"{uri} is outside this schema, and nothing is fetched")


# What a schema may not be


def _bounded(schema: object) -> tuple[dict[str, Any], int]:
    """The schema, and its parts with references followed.

    Raises BadSchema for one that is too large, refers outside, or refers to itself.
    """
    if not isinstance(schema, dict):
        raise BadSchema("The schema of a kind is a JSON object.")
    try:
        size = len(json.dumps(schema, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema(f"It is no JSON document: {error}") from error
    if size > SCHEMA_BYTES_MAX:
        raise BadSchema(f"It has {size:,} bytes; at most {SCHEMA_BYTES_MAX:,} are allowed.")
    if schema.get("$schema", DIALECT) != DIALECT:
        raise BadSchema(f'Its "$schema" can only be {DIALECT}.')
    return schema, _Expansion(schema).measure(schema, ()).size


class _Expansion:
    """Measures a schema as if each reference were replaced by what it names."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[int, _Measure] = {}  # by identity: the root keeps all alive

    def measure(self, node: object, inside: tuple[int, ...]) -> _Measure:
        """How large and how deep `node` is, which is being measured within those of `inside`."""
        if not isinstance(node, (dict, list)):
            return _Measure(1, 0)
        if id(node) in inside:
            raise BadSchema("It refers to itself: how deep a payload is checked must be bounded.")
        if id(node) not in self._known:
            if len(inside) >= SCHEMA_DEPTH_MAX:
                raise BadSchema(TOO_DEEP)
            parts = [self.measure(child, (*inside, id(node))) for child in self._children(node)]
            height = 1 + max((part.height for part in parts), default=0)
            self._known[id(node)] = _Measure(1 + sum(part.size for part in parts), height)
        known = self._known[id(node)]
        if known.size > EXPANDED_MAX:
            raise BadSchema(f"Its references multiply: it has more than {EXPANDED_MAX:,} parts.")
        if len(inside) + known.height > SCHEMA_DEPTH_MAX:
            raise BadSchema(TOO_DEEP)
        return known

    def _children(self, node: dict[str, Any] | list[Any]) -> list[object]:
        if isinstance(node, list):
            return node
        children: list[object] = []
        for word, value in node.items():
            if word in _REFUSED:
                raise BadSchema(f'It uses "{word}"; only "$ref" to a part of the same schema is understood.')
            if word == "$ref" and isinstance(value, str):
                children.append(self._named(value))
            elif word in _BY_NAME and isinstance(value, dict):
                children += value.values()
            elif word not in _DATA:
                children.append(value)
        return children

    def _named(self, reference: str) -> object:
        if not reference.startswith("#"):
            raise BadSchema(f"{reference!r} is outside this schema, and nothing is fetched.")
        node: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(key)] if isinstance(node, list) else node[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise BadSchema(f"{reference!r} names no part of this schema.") from None
        return node


class _Measure(NamedTuple):
    size: int  # members and items
    height: int  # levels below
