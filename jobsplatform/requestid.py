"""The id of the request that this thread serves, for whatever records what was done under it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

current: Final[ContextVar[str]] = ContextVar("request_id", default="")
