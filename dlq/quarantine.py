"""Takes in jobs that left the schedule, with a fingerprint that groups like errors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jobqueue.types import DeadTicket
from jobsplatform import sql

# What differs between two occurrences of one fault: ids, addresses, numbers, quoted values.
_VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27,}|\d+|\"[^\"]*\"|'[^']*'", re.IGNORECASE)


def quarantine(tickets: Sequence[DeadTicket], *, alias: str) -> None:
    """Insert the dead letters of `tickets` in the caller's transaction on `alias`."""
    rows = [_row(ticket) for ticket in tickets]
    sql.rows("dlq/quarantine", {"tickets": json.dumps(rows, default=str)}, alias=alias)


def _row(ticket: DeadTicket) -> dict[str, Any]:
    values = asdict(ticket)
    message = ticket.message or ""
    values |= {"failed_at": values.pop("at"), "message": message}
    return values | {"fingerprint": fingerprint(ticket.error_class, message)}


def fingerprint(error_class: str | None, message: str) -> str:
    """16 hex digits, equal for errors of one class whose first and last lines differ in variable parts alone."""
    lines = [line for line in message.splitlines() if line.strip()]
    shape = "\n".join(_VARIABLE.sub("?", line.strip()) for line in (lines[:1] + lines[-1:]))
    return hashlib.sha256(f"{error_class}\n{shape}".encode("utf-8", "replace")).hexdigest()[:16]
