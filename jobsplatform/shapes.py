"""What a request body or query may hold: one description that checks requests and writes the OpenAPI schema.

A shape never stops at the first fault: it reports each with its JSON pointer. Items of a list of objects are
checked one by one and keep their faults to themselves, so that a batch can answer for each item alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, TooLarge, UnknownErrorClass
from jobsplatform.fields import Fault, Field, Json, Schema, Text
from jobsplatform.strictjson import DETAILS, Items, Node, Template, pointer

ERRORS_MAX: Final = 100  # that one answer lists

_ABSENT: Final = object()


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


@dataclass(frozen=True, kw_only=True)
class ObjectOf(Field):
    """An object whose members a shape describes; the value is those members, checked."""

    shape: Shape

    def check(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise Fault("type", "Must be an object.")
        return value

    def check_members(self, value: dict[str, Any], parent: str) -> Checked:
        """The object's own members; their faults point below it."""
        node = Node()
        node.update(value)
        return self.shape.check(node, pointer(parent, self.name))

    def schema(self) -> Schema:
        return self.shape.schema()


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


def at_least_one(*names: str) -> Rule:
    return Rule(names, lambda count: count >= 1, f"At least one of {', '.join(names)} must be given.")


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
        if isinstance(one, ObjectOf):
            members = one.check_members(checked, parent)
            errors.extend(members.errors)
            return members.values
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
