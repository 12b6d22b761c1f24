"""Binds named parameters: `%(name)s::type` in a statement is sent as `$n::type`, in the binary form of the type.

A statement is read once a process. psycopg would read it again at each call (it keeps what it has read only below
4 KiB), look at each element of a list three times, and take a statement anew for each new mixture of types and nulls;
here the types are the statement's own, so that a connection prepares it once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_PARAMETER = re.compile(r"%(?:%|\((\w+)\)s(?:::(\w+(?:\[\])?))?)")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # from which PostgreSQL counts microseconds
_MICROSECOND = timedelta(microseconds=1)

Pack = Callable[[Any], bytes]


class _Wire:
    """A value in its binary form, `body`, or a null of a known type. Each type has a class of its own."""

    __slots__ = ("body",)

    def __init__(self, body: bytes | None) -> None:
        self.body = body


class _WireDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: _Wire) -> bytes | None:
        return obj.body


def _wire(name: str, oid: int) -> type[_Wire]:
    """The class of values of the type with this OID, known to psycopg."""
    wire = type(f"_Wire_{name}", (_Wire,), {"__slots__": ()})
    dumper = type(f"_Dumper_{name}", (_WireDumper,), {"oid": oid})
    psycopg.adapters.register_dumper(wire, dumper)
    return wire


def _array(element_oid: int, elements: bytes, count: int, has_nulls: bool) -> bytes:
    """PostgreSQL's binary form of an array: dimensions, flags, element type; length and first index; the elements."""
    if not count:
        return struct.pack(">iiI", 0, 0, element_oid)
    return struct.pack(">iiIii", 1, has_nulls, element_oid, count, 1) + elements


_NULL = struct.pack(">i", -1)


def _of_numbers(element_oid: int, code: str, size: int) -> Callable[[Sequence[Any]], bytes]:
    one = struct.Struct(f">i{code}")

    def encode(values: Sequence[Any]) -> bytes:
        count = len(values)
        if None in values:
            parts = [_NULL if value is None else one.pack(size, value) for value in values]
            return _array(element_oid, b"".join(parts), count, True)
        pairs = chain.from_iterable(zip(repeat(size), values, strict=False))
        return _array(element_oid, struct.pack(">" + f"i{code}" * count, *pairs), count, False)

    return encode


def _of_bytes(element_oid: int) -> Callable[[Iterable[Any]], bytes]:
    length = struct.Struct(">i").pack

    def encode(values: Iterable[bytes | None]) -> bytes:
        parts: list[bytes] = []
        has_nulls, count = False, 0
        for value in values:
            count += 1
            if value is None:
                has_nulls = True
                parts.append(_NULL)
            else:
                parts += (length(len(value)), value)
        return _array(element_oid, b"".join(parts), count, has_nulls)

    return encode


def _of_texts(values: Sequence[str | None]) -> bytes:
    return _TEXTS([None if value is None else value.encode() for value in values])


def _of_instants(values: Sequence[datetime | None]) -> bytes:
    return _INSTANTS([None if value is None else (value - _EPOCH) // _MICROSECOND for value in values])


_TEXTS: Final = _of_bytes(25)
_INSTANTS: Final = _of_numbers(1184, "q", 8)


def _instant(value: datetime) -> bytes:
    return _BIGINT((value - _EPOCH) // _MICROSECOND)


_BIGINT: Final = struct.Struct(">q").pack

# Of each type: its OID, and what makes its body. A JSON document is given as its text.
_TYPES: Final[Mapping[str, tuple[int, Pack]]] = {
    "bigint": (20, _BIGINT),
    "int": (23, struct.Struct(">i").pack),
    "smallint": (21, struct.Struct(">h").pack),
    "bool": (16, struct.Struct(">?").pack),
    "boolean": (16, struct.Struct(">?").pack),
    "float": (701, struct.Struct(">d").pack),
    "float8": (701, struct.Struct(">d").pack),
    "text": (25, str.encode),
    "bytea": (17, bytes),
    "timestamptz": (1184, _instant),
    "json": (114, str.encode),
    "jsonb": (3802, lambda text: b"\1" + text.encode()),
    "bigint[]": (1016, _of_numbers(20, "q", 8)),
    "int[]": (1007, _of_numbers(23, "i", 4)),
    "smallint[]": (1005, _of_numbers(21, "h", 2)),
    "bool[]": (1000, _of_numbers(16, "?", 1)),
    "float8[]": (1022, _of_numbers(701, "d", 8)),
    "text[]": (1009, _of_texts),
    "bytea[]": (1001, _of_bytes(17)),
    "timestamptz[]": (1185, _of_instants),
}
_WIRES: Final[Mapping[str, type[_Wire]]] = {name: _wire(name, oid) for name, (oid, _) in _TYPES.items()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One numbered parameter, and how what is sent for it is made."""

    name: str
    oid: int
    pack: Pack
    wire: type[_Wire]


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement with numbered parameters."""

    text: bytes
    parameters: tuple[Parameter, ...]
    types: tuple[int, ...]  # of the parameters

    def bodies(self, params: Mapping[str, Any]) -> list[bytes | None]:
        """What is sent for `params`, in the order of the numbers. Raises KeyError where one is missing."""
        return [None if (value := params[one.name]) is None else one.pack(value) for one in self.parameters]

    def values(self, params: Mapping[str, Any]) -> list[_Wire]:
        """The same, for psycopg."""
        return [one.wire(body) for one, body in zip(self.parameters, self.bodies(params), strict=True)]


def bind(text: str) -> Bound:
    """Number the parameters of `text`. A parameter has the type to which the statement casts it first.

    Raises KeyError for a type that is not one of the platform's.
    """
    casts: dict[str, str] = {}
    for name, cast in _PARAMETER.findall(text):
        if name:
            casts[name] = casts.get(name) or cast
    number = {name: index for index, name in enumerate(casts, 1)}

    def numbered(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        return f"${number[match[1]]}" + (f"::{match[2]}" if match[2] else "")

    parameters = tuple(Parameter(name, *_TYPES[cast], _WIRES[cast]) for name, cast in casts.items())
    types = tuple(one.oid for one in parameters)
    return Bound(_PARAMETER.sub(numbered, text).encode(), parameters, types)
