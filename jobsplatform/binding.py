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
from psycopg.types.numeric import Int2, Int4, Int8

_PARAMETER = re.compile(r"%(?:%|\((\w+)\)s(?:::(\w+(?:\[\])?))?)")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # from which PostgreSQL counts microseconds
_MICROSECOND = timedelta(microseconds=1)

Encoder = Callable[[Any], Any]


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

# Of each array type: its OID, and what makes its body.
_ARRAYS: Final[Mapping[str, tuple[int, Callable[[Any], bytes]]]] = {
    "bigint[]": (1016, _of_numbers(20, "q", 8)),
    "int[]": (1007, _of_numbers(23, "i", 4)),
    "smallint[]": (1005, _of_numbers(21, "h", 2)),
    "bool[]": (1000, _of_numbers(16, "?", 1)),
    "timestamptz[]": (1185, _of_instants),
    "text[]": (1009, _of_texts),
    "bytea[]": (1001, _of_bytes(17)),
}
# Of single values: the OID of a null, and what psycopg is to take a value for where it would choose by its size.
_SCALARS: Final[Mapping[str, tuple[int, Encoder]]] = {
    "bigint": (20, Int8),
    "int": (23, Int4),
    "smallint": (21, Int2),
    "timestamptz": (1184, lambda value: value),
    "float": (701, lambda value: value),
    "bool": (16, lambda value: value),
    "boolean": (16, lambda value: value),
    "bytea": (17, lambda value: value),
}


def _as_array(name: str, oid: int, body: Callable[[Any], bytes]) -> Encoder:
    wire = _wire(name, oid)
    null = wire(None)
    return lambda values: null if values is None else wire(body(values))


def _as_scalar(name: str, oid: int, taken_for: Encoder) -> Encoder:
    null = _wire(name, oid)(None)
    return lambda value: null if value is None else taken_for(value)


_ENCODERS: Final[Mapping[str, Encoder]] = {
    **{name: _as_array(name, *how) for name, how in _ARRAYS.items()},
    **{name: _as_scalar(name, *how) for name, how in _SCALARS.items()},
}


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement with numbered parameters, and how each is made of the named one."""

    text: bytes
    parameters: tuple[tuple[str, Encoder], ...]

    def values(self, params: Mapping[str, Any]) -> list[Any]:
        """What is sent for `params`, in the order of the numbers. Raises KeyError where one is missing."""
        return [encode(params[name]) for name, encode in self.parameters]


def bind(text: str) -> Bound:
    """Number the parameters of `text`. A parameter has the type to which the statement casts it first."""
    types: dict[str, str] = {}
    for name, cast in _PARAMETER.findall(text):
        if name:
            types[name] = types.get(name) or cast
    number = {name: index for index, name in enumerate(types, 1)}

    def numbered(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        return f"${number[match[1]]}" + (f"::{match[2]}" if match[2] else "")

    parameters = tuple((name, _ENCODERS.get(cast, _as_is)) for name, cast in types.items())
    return Bound(_PARAMETER.sub(numbered, text).encode(), parameters)
