"""Opaque places in a list. A cursor counts only for the caller, route and filter that it was made for."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Any, Final

from django.utils.crypto import salted_hmac

from jobsplatform.errors import Invalid
from jobsplatform.fields import Field, Integer, Text
from jobsplatform.http import Call
from jobsplatform.shapes import Shape

Place = tuple[int, ...]

SEAL_BYTES: Final = 12
NUMBER_BYTES: Final = 8  # of each number of a place
PAGE_MAX: Final = 200
PAGE_DEFAULT: Final = 50
CURSOR_CHARS_MAX: Final = 1_000  # a number for each of 64 shards
NOT_IN_FILTER: Final = ("cursor", "limit")


def listing_query(name: str, *fields: Field) -> Shape:
    """The query of a list: its filter, `cursor` and `limit`."""
    cursor = Text(name="cursor", chars_min=1, chars_max=CURSOR_CHARS_MAX, doc="`next` of the page before.")
    limit = Integer(name="limit", low=1, high=PAGE_MAX, default=PAGE_DEFAULT)
    return Shape(name, *fields, cursor, limit)


def write(call: Call, place: Place | None) -> str | None:
    """The cursor that goes on at `place`; None at the end of the list."""
    if place is None:
        return None
    encoded = b"".join(number.to_bytes(NUMBER_BYTES, "big", signed=True) for number in place)
    return base64.urlsafe_b64encode(_seal(call, encoded) + encoded).rstrip(b"=").decode()


def read(call: Call) -> Place | None:
    """The place that the call's cursor names; None without one. Raises Invalid for another list's cursor."""
    text = call.query["cursor"]
    if text is None:
        return None
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        sealed = b""
    seal, encoded = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
    if not hmac.compare_digest(seal, _seal(call, encoded)):
        raise Invalid.at("/cursor", "The cursor is of another list, filter or caller.", "cursor")
    parts = (encoded[at : at + NUMBER_BYTES] for at in range(0, len(encoded), NUMBER_BYTES))
    return tuple(int.from_bytes(part, "big", signed=True) for part in parts)


def _seal(call: Call, encoded: bytes) -> bytes:
    wanted = sorted((name, str(value)) for name, value in call.query.items() if name not in NOT_IN_FILTER)
    tenant_id = None if call.tenant is None else call.tenant.id
    bound: tuple[Any, ...] = (call.request.path, call.known.token_id, tenant_id, wanted, encoded)
    return salted_hmac("jobsplatform.cursors", repr(bound), algorithm="sha256").digest()[:SEAL_BYTES]
