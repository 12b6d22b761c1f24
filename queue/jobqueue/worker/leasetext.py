"""A lease as text, for the way from one process of a worker to another."""

from __future__ import annotations

import base64
import json
from datetime import datetime

from jobqueue.claiming import Lease

_INSTANTS = ("claimed_at", "expires_at", "max_run_at", "deadline")


def dump(lease: Lease) -> str:
    values = lease._asdict()
    values["token"] = base64.b64encode(lease.token).decode()
    for name in _INSTANTS:
        values[name] = None if values[name] is None else values[name].isoformat()
    return json.dumps(values)


def load(text: str) -> Lease:
    values = json.loads(text)
    values["token"] = base64.b64decode(values["token"])
    for name in _INSTANTS:
        values[name] = None if values[name] is None else datetime.fromisoformat(values[name])
    return Lease(**values)
