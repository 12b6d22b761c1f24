"""JSON text of what handlers return or checkpoint, by the rules of the HTTP API's request bodies."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from jobqueue.limits import PAYLOAD_BYTES_MAX
from jobsplatform.strictjson import DEPTH_MAX, INTEGER_DIGITS_MAX, MEMBERS_MAX

NODES_MAX = (
    PAYLOAD_BYTES_MAX  # a value takes at least a byte of text; stops shared lists that unfold without end
)
INTEGER_BOUND = 10**INTEGER_DIGITS_MAX

# An even number of backslashes, then the escape of NUL: `\\u0000` alone is a backslash and five characters.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class InvalidDocument(ValueError):
    """The value has no JSON text that the API would take."""


def encode(value: object, *, bytes_max: int) -> str:
    """The JSON text of `value`, at most `bytes_max` bytes in UTF-8. Raises InvalidDocument, saying why."""
    if value is None:
        return "null"
    _check_shape(value)
    try:
        text = _encode(value)
        size_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidDocument("it contains a lone surrogate") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDocument(f"it is not JSON: {error}") from error
    if size_bytes > bytes_max:
        raise InvalidDocument(f"it takes {size_bytes} bytes, at most {bytes_max} are stored")
    if "\\u0000" in text and _NUL.search(text):
        raise InvalidDocument("it contains a NUL character")
    return text


def _check_shape(value: object) -> None:
    """Depth, size, names and integers, without recursion: the encoder takes what the API refuses."""
    level: list[object] = [value]
    nodes = depth = 0
    while level:
        below: list[object] = []
        for item in level:
            inside = _members(item)
            nodes += len(inside)
            if nodes > NODES_MAX:
                raise InvalidDocument(f"it has more than {NODES_MAX} values")
            below.extend(inside)
            if depth == DEPTH_MAX and isinstance(item, dict | list | tuple):
                raise InvalidDocument(f"it is nested deeper than {DEPTH_MAX}")
        level = below
        depth += 1


def _members(item: object) -> Collection[object]:
    """What a container holds; scalars hold nothing."""
    if isinstance(item, dict):
        _check_names(item)
        return item.values()
    if isinstance(item, list | tuple):
        return item
    if isinstance(item, int) and not -INTEGER_BOUND < item < INTEGER_BOUND:
        raise InvalidDocument(f"it contains an integer of more than {INTEGER_DIGITS_MAX} digits")
    return ()


def _check_names(members: dict[object, object]) -> None:
    if len(members) > MEMBERS_MAX:
        raise InvalidDocument(f"it has an object of more than {MEMBERS_MAX} members")
    for name in members:
        if not isinstance(name, str):
            raise InvalidDocument(f"it has a member name that is no string: {name!r:.60}")
