"""The ways from the queue into the apps above it: the dead-letter desk, called inside the transaction of the move,
and the passes that such an app adds to the dispatcher's loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from jobqueue.types import DeadTicket
from jobsplatform.loop import Pass


class Quarantine(Protocol):
    """Gives the tickets their place among the dead letters of database `alias`, in the caller's transaction."""

    def __call__(self, tickets: Sequence[DeadTicket], *, alias: str) -> None: ...


_quarantine: Quarantine | None = None


def set_quarantine(hook: Quarantine) -> None:
    """Registered once, by the app that owns the dead letters."""
    global _quarantine
    _quarantine = hook


def quarantine(tickets: Sequence[DeadTicket], *, alias: str) -> None:
    """Hand dead tickets over. Raises RuntimeError when no app took the part: a job must never fall out."""
    if not tickets:
        return
    if _quarantine is None:
        raise RuntimeError("No app keeps dead letters; install `dlq`.")
    _quarantine(tickets, alias=alias)


def has_quarantine() -> bool:
    """Whether an app took the part."""
    return _quarantine is not None


_passes: list[Callable[[], Pass]] = []


def add_pass(make: Callable[[], Pass]) -> None:
    """Let every dispatcher run a pass of a higher app; `make` is called once a dispatcher."""
    _passes.append(make)


def passes() -> list[Pass]:
    """New passes for a dispatcher that starts."""
    return [make() for make in _passes]
