"""Slows down who guesses passwords: a few attempts a quarter of an hour, counted in the database by all processes.

An attempt is counted before the password is looked at, so that many at once are no way around. A success forgets those
of this name at this address. Names and addresses are stored as keyed hashes alone.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.conf import settings

from jobsplatform import events, sql

WINDOW_SECONDS: Final = 15 * 60
ATTEMPTS_MAX: Final = 5  # of a name from an address
OF_ADDRESS_MAX: Final = 30  # whatever the names: many people may share one
OF_NAME_MAX: Final = 100  # from anywhere: high, so that a stranger does not easily lock a person out
# Codes are asked of who knows the password: no stranger can lock a person out. Three of a million are right at a time,
# so a guesser who knows it gets in with 10 * 4 * 24 * 3e-6, three in a thousand a day.
CODES_OF_NAME_MAX: Final = 10


def attempt(name: str, address: str, now: datetime | None = None) -> float:
    """Count an attempt to log in. Returns 0 when it may be tried, else the seconds to wait."""
    limits = [
        (_key("address", address), OF_ADDRESS_MAX),
        (_key("both", name, address), ATTEMPTS_MAX),
        (_key("name", name), OF_NAME_MAX),
    ]
    return _counted(limits, now)


def attempt_code(name: str, address: str, now: datetime | None = None) -> float:
    """As `attempt`, for the code that follows a right password."""
    limits = [
        (_key("code", name, address), ATTEMPTS_MAX),
        (_key("code of name", name), CODES_OF_NAME_MAX),
    ]
    return _counted(limits, now)


def _counted(limits: Sequence[tuple[bytes, int]], now: datetime | None) -> float:
    for key, most in limits:
        params = {"key": key, "window_s": WINDOW_SECONDS, "now": now}
        ((count, left_s),) = sql.rows("tenants/login_attempt", params, alias="default", writes=True)
        if count > most:
            events.emit("login_refused", attempts=count)
            return max(1.0, float(left_s))
    return 0.0


def succeeded(name: str, address: str) -> None:
    """Forget the attempts of this name at this address; those of the others stay."""
    _forget(_key("both", name, address), 1, None)


def code_succeeded(name: str, address: str) -> None:
    """Forget this account's codes at this address, and all of its name: it was its owner who erred."""
    _forget(_key("code", name, address), 1, None)
    _forget(_key("code of name", name), 1, None)


def waiting(wait_s: float) -> str:
    """What somebody who has to wait is told."""
    minutes = math.ceil(wait_s / 60)
    return f"Too many attempts. Try again in {minutes} minute{'s' if minutes > 1 else ''}."


def purge(limit: int, now: datetime | None = None) -> int:
    """Forget what no window holds any more. Returns how many."""
    return _forget(None, limit, now)


def _forget(key: bytes | None, limit: int, now: datetime | None) -> int:
    params = {"key": key, "window_s": WINDOW_SECONDS, "limit": limit, "now": now}
    return int(sql.rows("tenants/login_forget", params, alias="default", writes=True)[0][0])


def _key(*parts: str) -> bytes:
    said = "\0".join(part.strip().casefold() for part in parts)
    return hmac.digest(
        settings.SECRET_KEY.encode(), b"login:" + said.encode("utf-8", "replace"), hashlib.sha256
    )
