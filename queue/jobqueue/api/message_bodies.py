"""What calls about messages may hold."""

from __future__ import annotations

from typing import Final

from jobqueue.api.bodies import BAND_MAX, HORIZON_SECONDS
from jobqueue.limits import (
    CLAIM_LIMIT_MAX,
    LEASE_SECONDS_MAX,
    MESSAGE_BODY_BYTES_MAX,
    RECEIPTS_MAX,
    WAIT_SECONDS_MAX,
)
from jobsplatform.fields import Base64, IndexOrName, Instant, Integer, Key, Text
from jobsplatform.shapes import ListOf, Shape, not_both

RECEIPT_CHARS_MAX: Final = 100

SEND: Final = Shape(
    "NewMessage",
    Base64(name="body", bytes_max=MESSAGE_BODY_BYTES_MAX, required=True, doc="Opaque."),
    IndexOrName(name="priority", high=BAND_MAX, doc="A band of the queue; 0 is the most urgent."),
    Instant(name="deliver_at", nullable=True),
    Integer(name="delay_s", nullable=True, low=0, high=HORIZON_SECONDS),
    Key(name="dedup_key", doc="Repeats within the queue's window give the first id."),
    Integer(
        name="expires_in_s",
        nullable=True,
        low=1,
        high=HORIZON_SECONDS,
        doc="Default: four days from when it can be delivered.",
    ),
    rules=(not_both("deliver_at", "delay_s"),),
)
RECEIVE: Final = Shape(
    "Receive",
    Integer(name="max", low=1, high=CLAIM_LIMIT_MAX, default=1),
    Integer(name="wait_s", low=0, high=WAIT_SECONDS_MAX, default=0),
    Integer(name="lease_s", low=1, high=LEASE_SECONDS_MAX, doc="Default: the queue's."),
    Integer(name="max_priority", low=0, high=BAND_MAX, doc="The largest band index delivered."),
)
_RECEIPT: Final = Text(name="receipt", chars_max=RECEIPT_CHARS_MAX, required=True)
_RECEIPTS: Final = Text(chars_max=RECEIPT_CHARS_MAX)
ACK: Final = Shape(
    "Acknowledge",
    ListOf(name="ack", item=_RECEIPTS, high=RECEIPTS_MAX, default=()),
    ListOf(
        name="extend",
        item=Shape(
            "Extend",
            _RECEIPT,
            Integer(name="lease_s", low=1, high=LEASE_SECONDS_MAX, doc="Default: as received."),
        ),
        high=RECEIPTS_MAX,
        default=(),
    ),
    ListOf(name="release", item=_RECEIPTS, high=RECEIPTS_MAX, default=()),
    ListOf(
        name="fail",
        item=Shape(
            "FailMessage", _RECEIPT, Text(name="message", default="", may_hold_nul=True, doc="Cut at 8 KiB.")
        ),
        high=RECEIPTS_MAX,
        default=(),
    ),
)
