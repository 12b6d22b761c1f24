"""One correction for many payloads: a JSON merge patch (RFC 7396). Pure.

What the patch does not name stays as it was: members keep their order, numbers their digits. A payload that is no
object is left alone, where the RFC would replace it whole.
"""

from __future__ import annotations

import json
from typing import Any, Final

from jobsplatform import strictjson
from jobsplatform.errors import Invalid

PATCH_CHARS_MAX: Final = 16 * 1024


class Digits(str):
    """A number as it was written."""

    __slots__ = ()


def parsed(text: str) -> Any:
    """A JSON value whose numbers keep their digits. Raises ValueError, RecursionError."""
    return json.loads(text, parse_int=Digits, parse_float=Digits, parse_constant=Digits)


def check(patch: str) -> str:
    """The patch without white space around it. Raises Invalid at /patch for one that is no JSON object."""
    text = patch.strip()
    if len(text) > PATCH_CHARS_MAX:
        raise Invalid.at("/patch", f"A patch has at most {PATCH_CHARS_MAX:,} characters.")
    try:
        strictjson.raw(text)
    except Invalid as error:
        raise Invalid.at("/patch", f"A patch must be JSON: {error.detail}") from None
    if not text.startswith("{") or not parsed(text):
        raise Invalid.at(
            "/patch", 'A patch is a JSON object with at least one member, such as {"to": "a@b"}.'
        )
    return text


def merged(payload: str, patch: str) -> str | None:
    """The payload with the patch merged into it; None for a payload that is no object. Both must be JSON.

    A patch that changes nothing answers the payload as it stands.
    """
    target = parsed(payload)
    if not isinstance(target, dict):
        return None
    changed = _merge(target, parsed(patch))
    return payload if _same(changed, target) else _text(changed)


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merge(found.get(name), value)
    return found


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same, number for number as it is written ("1" is not 1)."""
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(name)}:{_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return str(value) if isinstance(value, Digits) else _string(value)


def _string(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    lone = any("\ud800" <= char <= "\udfff" for char in text)  # half of a pair is no UTF-8
    return json.dumps(value) if lone else text
