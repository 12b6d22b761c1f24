"""The kinds of members that a body or query may have: each checks one value and describes it as JSON Schema."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobsplatform.instants import parse_instant
from jobsplatform.strictjson import Raw

NAME_PATTERN: Final = "[a-z0-9][a-z0-9._-]{0,63}"
KEY_CHARS_MAX: Final = 255
KEY_BYTES_MAX: Final = 1_024
INTEGER_MAX: Final = 2**63 - 1

Schema = dict[str, Any]
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,18})").fullmatch
_NAME = re.compile(NAME_PATTERN).fullmatch
_KEY_CATEGORIES_REFUSED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Fault(Exception):
    """A value breaks a rule of its field."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, kw_only=True)
class Field:
    """One member: its name, whether it must be there, whether null means absent, and what absence means."""

    name: str = ""
    required: bool = False
    nullable: bool = False
    default: Any = None
    doc: str = ""

    def check(self, value: Any) -> Any:
        """The value as the platform uses it. Raises Fault."""
        raise NotImplementedError

    def from_text(self, text: str) -> Any:
        """The value that a query parameter's text stands for. Raises Fault."""
        return text

    def schema(self) -> Schema:
        """JSON Schema of the value, without null and description."""
        raise NotImplementedError

    def described(self) -> Schema:
        """JSON Schema with null, default and description."""
        schema = self.schema()
        if self.nullable and "type" in schema:
            schema["type"] = [*_as_list(schema["type"]), "null"]
            if "enum" in schema:
                schema["enum"] = [*schema["enum"], None]
        if self.default is not None and isinstance(self.default, (bool, int, float, str)):
            schema["default"] = self.default
        if self.doc:
            schema["description"] = self.doc
        return schema


@dataclass(frozen=True, kw_only=True)
class Integer(Field):
    low: int = 0
    high: int = INTEGER_MAX

    def check(self, value: Any) -> int:
        if type(value) is not int:  # bool is an int to Python, not on the wire
            raise Fault("type", "Must be a JSON integer.")
        if not self.low <= value <= self.high:
            raise Fault("range", f"Must be between {self.low} and {self.high}.")
        return value

    def from_text(self, text: str) -> int:
        if _DECIMAL(text) is None or text == "-0":
            raise Fault("type", "Must be a decimal integer.")
        return int(text)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, kw_only=True)
class Number(Field):
    low: float
    high: float

    def check(self, value: Any) -> float:
        if type(value) not in (int, float):
            raise Fault("type", "Must be a JSON number.")
        if not self.low <= value <= self.high:
            raise Fault("range", f"Must be between {self.low:g} and {self.high:g}.")
        return float(value)

    def schema(self) -> Schema:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, kw_only=True)
class Boolean(Field):
    def check(self, value: Any) -> bool:
        if type(value) is not bool:
            raise Fault("type", "Must be true or false.")
        return value

    def from_text(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise Fault("type", "Must be true or false.")
        return text == "true"

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, kw_only=True)
class Text(Field):
    """A string; `not_blank` wants more than white space."""

    chars_min: int = 0
    chars_max: int | None = None
    not_blank: bool = False
    may_hold_nul: bool = False

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise Fault("type", "Must be a string.")
        if len(value) < self.chars_min or (self.chars_max is not None and len(value) > self.chars_max):
            raise Fault("length", f"Must have {self._lengths()} characters.")
        if self.not_blank and not value.strip():
            raise Fault("blank", "Must not be empty.")
        return value

    def _lengths(self) -> str:
        if self.chars_max is None:
            return f"at least {self.chars_min}"
        return f"{self.chars_min} to {self.chars_max}"

    def schema(self) -> Schema:
        schema: Schema = {"type": "string"}
        if self.chars_min or self.not_blank:
            schema["minLength"] = max(self.chars_min, 1)
        if self.chars_max is not None:
            schema["maxLength"] = self.chars_max
        return schema


@dataclass(frozen=True, kw_only=True)
class Name(Field):
    """A kind, a dependency: `[a-z0-9][a-z0-9._-]{0,63}`."""

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise Fault("type", "Must be a string.")
        if _NAME(value) is None:
            raise Fault("pattern", f"Must match {NAME_PATTERN}.")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{NAME_PATTERN}$"}


@dataclass(frozen=True, kw_only=True)
class Key(Field):
    """A request key; the value is its NFC form."""

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise Fault("type", "Must be a string.")
        return normal_key(value)

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX}


@dataclass(frozen=True, kw_only=True)
class Instant(Field):
    def check(self, value: Any) -> datetime:
        if not isinstance(value, str):
            raise Fault("type", "Must be a string: RFC 3339 with an offset.")
        try:
            return parse_instant(value)
        except ValueError as error:
            raise Fault("instant", f"Not an instant: {error}.") from None

    def schema(self) -> Schema:
        return {"type": "string", "format": "date-time"}


@dataclass(frozen=True, kw_only=True)
class Choice(Field):
    """One of some words; `fault_code` is for a word that has its own code in the contract."""

    choices: Sequence[str]
    fault_code: str = "choice"

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise Fault("type", "Must be a string.")
        if value not in self.choices:
            raise Fault(self.fault_code, f"Must be one of {', '.join(self.choices)}.")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.choices)}


@dataclass(frozen=True, kw_only=True)
class IndexOrName(Field):
    """A band: its index, or its name. Whether the queue has it is not decided here."""

    high: int = 99

    def check(self, value: Any) -> int | str:
        if isinstance(value, str):
            return value
        if type(value) is not int:
            raise Fault("type", "Must be a band's index or its name.")
        if not 0 <= value <= self.high:
            raise Fault("range", "Must be a band of the queue.")
        return value

    def from_text(self, text: str) -> int | str:
        return int(text) if _DECIMAL(text) is not None and text != "-0" else text

    def schema(self) -> Schema:
        return {"type": ["integer", "string"], "minimum": 0, "maximum": self.high}


@dataclass(frozen=True, kw_only=True)
class Json(Field):
    """Any JSON value, kept as its source text; null is a value."""

    bytes_max: int

    def check(self, value: Any) -> str:
        assert isinstance(value, Raw), "the reader keeps this member as text"
        if value.size > self.bytes_max:
            raise Fault("too_large", f"Has {value.size:,} bytes; at most {self.bytes_max:,} are allowed.")
        return value.text

    def schema(self) -> Schema:
        return {}


@dataclass(frozen=True, kw_only=True)
class Base64(Field):
    """Bytes as standard base64 (RFC 4648, with padding); the value is the bytes."""

    bytes_max: int

    def check(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise Fault("type", "Must be a string.")
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Fault("base64", "Must be base64 with padding.") from None
        if len(decoded) > self.bytes_max:
            raise Fault("too_large", f"Has {len(decoded):,} bytes; at most {self.bytes_max:,} are allowed.")
        return decoded

    def schema(self) -> Schema:
        return {"type": "string", "contentEncoding": "base64", "maxLength": 4 * -(-self.bytes_max // 3)}


def normal_key(text: str) -> str:
    """The NFC form of a request key. Raises Fault when the text is none."""
    # Before NFC, because ordering a long run of combining marks takes quadratic time; NFC merges at most 4 to
    # 1.
    if len(text) > 4 * KEY_CHARS_MAX:
        raise Fault("length", f"Must have 1 to {KEY_CHARS_MAX} characters.")
    key = unicodedata.normalize("NFC", text)
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise Fault("length", f"Must have 1 to {KEY_CHARS_MAX} characters.")
    if not (key.isascii() and key.isprintable()):
        if any(unicodedata.category(character) in _KEY_CATEGORIES_REFUSED for character in key):
            raise Fault("characters", "Must not contain control, format or separator characters.")
        if len(key.encode()) > KEY_BYTES_MAX:
            raise Fault("length", f"Must have at most {KEY_BYTES_MAX:,} bytes in UTF-8.")
    if key != key.strip():
        raise Fault("blank", "Must not begin or end with white space.")
    return key


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
