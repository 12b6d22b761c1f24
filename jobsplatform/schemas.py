"""Words for the JSON schemas of replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from jobsplatform.fields import Schema

TEXT: Final[Schema] = {"type": "string"}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
NUMBER: Final[Schema] = {"type": "integer"}
NUMBER_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
TRUTH: Final[Schema] = {"type": "boolean"}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
INSTANT_OR_NULL: Final[Schema] = {"type": ["string", "null"], "format": "date-time"}
ANY: Final[Schema] = {}


def described(name: str, members: Mapping[str, Schema]) -> Schema:
    """The schema of a reply; every member is there, unless it is named with a question mark."""
    return {
        "title": name,
        "type": "object",
        "required": [member for member in members if not member.endswith("?")],
        "properties": {member.rstrip("?"): schema for member, schema in members.items()},
    }


PARTIAL: Final[dict[str, Schema]] = {  # while shards cannot be reached
    "partial?": TRUTH,
    "unknown_shards?": {"type": "array", "items": NUMBER},
}


def page_of(item: Schema) -> Schema:
    """The schema of a page of a list."""
    items = {"type": "array", "items": item}
    return described(f"{item['title']}Page", {"items": items, "next": TEXT_OR_NULL, **PARTIAL})


def words(choices: Iterable[str], *, or_null: bool = False) -> Schema:
    """The schema of one of some words."""
    if or_null:
        return {"type": ["string", "null"], "enum": [*choices, None]}
    return {"type": "string", "enum": list(choices)}


PROBLEM: Final[Schema] = {
    "type": "object",
    "description": "RFC 9457.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "The X-Request-ID; absent in the items of a batch."},
        "code": {"type": "string"},
        "reason": {
            "type": "string",
            "description": "Of a 503: what holds back this call alone, as `intake_paused`.",
        },
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer."},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}
PROBLEM_REFERENCE: Final[Schema] = {"$ref": "#/components/schemas/Problem"}
