"""Job ids, receipts and lease tokens as the outside world sees them: opaque strings."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from jobsplatform.database import SEQUENCE_BITS, SEQUENCE_MASK
from jobsplatform.errors import NotFound

TOKEN_BYTES: Final = 16
_ID = re.compile(r"(0|[1-9][0-9]{0,4})-([1-9][0-9]{0,14})\Z", re.ASCII)
_SPACE_MAX = (1 << 15) - 1  # keeps ids within a signed 64-bit number


def format_id(job_id: int) -> str:
    """`<space>-<sequence>`."""
    return f"{job_id >> SEQUENCE_BITS}-{job_id & SEQUENCE_MASK}"


def parse_id(text: str) -> int:
    """The number behind an external id. Raises NotFound for anything that no job could have."""
    match = _ID.match(text)
    if match is None:
        raise NotFound
    space, sequence = int(match[1]), int(match[2])
    if space > _SPACE_MAX or sequence > SEQUENCE_MASK:
        raise NotFound
    return space << SEQUENCE_BITS | sequence


def format_token(token: bytes) -> str:
    """URL-safe text of a lease token."""
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def parse_token(text: str) -> bytes:
    """The bytes of a lease token; text that no token has gives bytes that match no lease."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
