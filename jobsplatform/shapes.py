"""What a request body or query may hold: one description that checks requests and writes the OpenAPI schema.

A shape never stops at the first fault: it reports each with its JSON pointer. Items of a list of objects are
checked one by one and keep their faults to themselves, so that a batch can answer for each item alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final

from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, TooLarge, UnknownErrorClass
from jobsplatform.instants import parse_instant
from jobsplatform.strictjson import DETAILS, Items, Node, Raw, Template, pointer

NAME_PATTERN: Final = "[a-z0-9][a-z0-9._-]{0,63}"
KEY_CHARS_MAX: Final = 255
KEY_BYTES_MAX: Final = 1_024
ERRORS_MAX: Final = 100  # that one answer lists
INTEGER_MAX: Final = 2**63 - 1

Schema = dict[str, Any]
_ABSENT: Final = object()
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,18})").fullmatch
_NAME = re.compile(NAME_PATTERN).fullmatch
_KEY_CATEGORIES_REFUSED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Fault(Exception):
    """A value breaks a rule of its field."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check: values, with defaults filled in, to be used only when there are no errors."""

    values: dict[str, Any]
    errors: list[FieldError] = field(default_factory=list)

    @property
    def refusal(self) -> JobsPlatformError | None:
        """The error that answers for the faults, or None."""
        if not self.errors:
            return None
        shown = self.errors[:ERRORS_MAX]
        codes = {error.code for error in self.errors}
        if "too_large" in codes:
            large = next(error for error in self.errors if error.code == "too_large")
            return TooLarge(large.detail, errors=[large])
        if codes == {UnknownErrorClass.code}:
            return UnknownErrorClass(errors=shown)
        return Invalid(errors=shown)


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
class ListOf(Field):
    """A list of values of one field, or of objects of one shape (then its value is a list of `Checked`)."""

    item: Field | Shape
    low: int = 0
    high: int

    def check(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Fault("type", "Must be a list.")
        if not self.low <= len(value) <= self.high:
            raise Fault("length", f"Must have {self.low} to {self.high} items.")
        return value

    def check_items(self, values: list[Any], parent: str) -> Checked:
        """Each item; faults of plain values are the list's own, faults of objects stay with the object."""
        here = pointer(parent, self.name)
        if isinstance(self.item, Shape):
            shape = self.item
            return Checked({self.name: [shape.check(value, f"{here}/{n}") for n, value in enumerate(values)]})
        errors: list[FieldError] = []
        checked: list[Any] = []
        for n, value in enumerate(values):
            try:
                checked.append(self.item.check(value))
            except Fault as fault:
                errors.append(FieldError(f"{here}/{n}", fault.code, fault.detail))
        return Checked({self.name: checked}, errors)

    def schema(self) -> Schema:
        item = self.item.schema() if isinstance(self.item, Shape) else self.item.described()
        return {"type": "array", "items": item, "minItems": self.low, "maxItems": self.high}


@dataclass(frozen=True)
class Rule:
    """A rule over several members: told which of `names` are given, it answers whether that is allowed."""

    names: tuple[str, ...]
    allows: Callable[[int], bool]
    detail: str
    code: ClassVar[str] = "conflict"

    def fault(self, given: frozenset[str], parent: str) -> FieldError | None:
        named = [name for name in self.names if name in given]
        if self.allows(len(named)):
            return None
        return FieldError(pointer(parent, named[-1] if named else self.names[0]), self.code, self.detail)


def exactly_one(*names: str) -> Rule:
    return Rule(names, lambda count: count == 1, f"Exactly one of {' and '.join(names)} must be given.")


def not_both(*names: str) -> Rule:
    return Rule(names, lambda count: count <= 1, f"Only one of {' and '.join(names)} may be given.")


class Shape:
    """The members of one object. `name` names it in the OpenAPI document."""

    def __init__(self, name: str, *fields: Field, rules: Sequence[Rule] = ()) -> None:
        self.name = name
        self.fields = {one.name: one for one in fields}
        self.rules = tuple(rules)
        self.is_optional = not any(one.required for one in fields)
        self.template = self._template()

    def check(self, members: Any, parent: str = "") -> Checked:
        """Check an object that the strict reader made; anything else is a fault of type."""
        if not isinstance(members, Node):
            return Checked({}, [FieldError(parent, "type", "Must be an object.")])
        errors = list(members.faults)
        values: dict[str, Any] = {}
        for name, one in self.fields.items():
            value = members.get(name, _ABSENT)
            if value is _ABSENT or (value is None and one.nullable):
                values[name] = one.default
                if one.required:
                    errors.append(FieldError(pointer(parent, name), "required", "Must be given."))
                continue
            try:
                values[name] = self._checked(one, value, parent, errors)
            except Fault as fault:
                errors.append(FieldError(pointer(parent, name), fault.code, fault.detail))
        if members.keys() - self.fields.keys():
            errors.extend(self._unknown(members, parent))
        if self.rules:
            given = frozenset(name for name, value in members.items() if value is not None)
            errors.extend(found for rule in self.rules if (found := rule.fault(given, parent)) is not None)
        return Checked(values, errors)

    def check_query(self, parameters: Mapping[str, Sequence[str]]) -> Checked:
        """Check query parameters: each name with the texts given for it."""
        members = Node()
        for name, texts in parameters.items():
            try:
                members[name] = self._from_texts(name, texts)
            except Fault as fault:
                members.faults.append(FieldError(pointer("", name), fault.code, fault.detail))
        refused = {error.pointer for error in members.faults}
        checked = self.check(members)
        errors = [e for e in checked.errors if e.code != "required" or e.pointer not in refused]
        return Checked(checked.values, errors)

    def schema(self) -> Schema:
        """JSON Schema of the object."""
        schema: Schema = {
            "type": "object",
            "properties": {name: one.described() for name, one in self.fields.items()},
            "additionalProperties": False,
        }
        required = [name for name, one in self.fields.items() if one.required]
        if required:
            schema["required"] = required
        if self.rules:
            schema["description"] = " ".join(rule.detail for rule in self.rules)
        return schema

    # steps

    def _template(self) -> Template:
        fields = self.fields.values()
        return Template(
            raw=frozenset(one.name for one in fields if isinstance(one, Json)),
            nul=frozenset(one.name for one in fields if isinstance(one, Text) and one.may_hold_nul),
            items={
                one.name: Items(one.item.template, one.high)
                for one in fields
                if isinstance(one, ListOf) and isinstance(one.item, Shape)
            },
        )

    def _checked(self, one: Field, value: Any, parent: str, errors: list[FieldError]) -> Any:
        if value is None:
            raise Fault("null", "Must not be null.")
        checked = one.check(value)
        if isinstance(one, ListOf):
            items = one.check_items(checked, parent)
            errors.extend(items.errors)
            return items.values[one.name]
        return checked

    def _unknown(self, members: Mapping[str, Any], parent: str) -> list[FieldError]:
        names = [name for name in members if name not in self.fields][:ERRORS_MAX]
        return [FieldError(pointer(parent, name), "unknown", "Is not known here.") for name in names]

    def _from_texts(self, name: str, texts: Sequence[str]) -> Any:
        one = self.fields.get(name)
        if one is None:
            return texts[0]
        if len(texts) > 1:
            raise Fault("duplicate", "Must be given once.")
        if "\0" in texts[0]:
            raise Fault("nul", DETAILS["nul"])
        return one.from_text(texts[0])


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
