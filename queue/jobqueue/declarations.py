"""What a handler's code declares of its kind of job. No Django here: a decorator says it at import.

A kind's settings have one precedence everywhere: the request, then an operator's setting of the kind, then what the
code declares, then the queue.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from jobqueue.payloads import BadSchema, Checker

KIND: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MESSAGE: Final = "message"  # the kind of the messages face: its consumers are no handlers

# Bounds as in `models.JobKind`; a test compares them.
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "max_attempts": (1, 100),
    "backoff_base_s": (0.1, 86_400),
    "backoff_cap_s": (0.1, 86_400),
    "cost_hint_s": (0.001, 604_800),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Settings of a kind as its code has them; None: the queue's. Times in seconds."""

    payload_schema: Mapping[str, Any] | None = None
    external_effects: bool = False
    max_attempts: int | None = None
    backoff_base_s: float | None = None
    backoff_cap_s: float | None = None
    queue: str | None = None
    dependency: str | None = None
    cost_hint_s: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError naming what cannot be."""
        for name, bounds in BOUNDS.items():
            _refuse_unless(
                _is_within(getattr(self, name), *bounds, whole=name == "max_attempts"), name, bounds
            )
        for name in ("queue", "dependency"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or KIND.fullmatch(value) is None):
                raise ValueError(f"{name}: {value!r} is no name: up to 64 of a-z 0-9 . _ -")
        if self.payload_schema is not None:
            try:
                Checker(self.payload_schema)
            except BadSchema as error:
                raise ValueError(f"schema: {error}") from error

    def members(self) -> dict[str, Any]:
        """What is declared, without what is not."""
        values = asdict(self)
        return {name: value for name, value in values.items() if value is not None and value is not False}


@dataclass(frozen=True, slots=True)
class Declared:
    """A handler as the registry knows it: the name of its function, and what it declares."""

    by: str
    declaration: Declaration
    reconcile: Callable[..., object] | None = None


def _is_within(value: Any, low: float, high: float, *, whole: bool) -> bool:
    if value is None:
        return True
    wanted = int if whole else (int, float)
    return (
        isinstance(value, wanted)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
    )


def _refuse_unless(holds: bool, name: str, bounds: tuple[float, float]) -> None:
    if not holds:
        raise ValueError(f"{name} is a number from {bounds[0]:g} to {bounds[1]:g}")
