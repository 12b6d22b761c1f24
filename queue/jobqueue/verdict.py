"""One line that says where a job stands: what an operator wants to know first. Pure."""

from __future__ import annotations

from datetime import datetime

from jobqueue.reads import JobView
from jobqueue.states import State
from jobqueue.why import Why
from jobsplatform.wording import span


def verdict(view: JobView, why: Why | None, *, worker: str | None, now: datetime) -> str:
    """`Running 12 s on w-3, lease 18 s left`; `Waiting: …` with the first gate that holds it; how it ended."""
    if view.state == State.RUNNING:
        return _running(view, worker, now)
    if view.state in (State.READY, State.SCHEDULED):
        return _waiting(view, why, now)
    if view.state == State.DEAD:
        return f"Dead ({view.dead_reason}) for {_since(view.finished_at, now)}, after {_tries(view)}"
    if view.state is None:
        return "Moving between two places; look again"
    return f"{view.state.capitalize()} {_since(view.finished_at, now)} ago, after {_tries(view)}"


def _running(view: JobView, worker: str | None, now: datetime) -> str:
    line = f"Running {_since(view.claimed_at, now)} on {worker or 'an unnamed worker'}"
    if view.expires_at is not None:
        left = (view.expires_at - now).total_seconds()
        line += f", lease {span(left)} left" if left > 0 else f", lease lapsed {span(-left)} ago"
    return line + (", asked to stop" if view.cancel_requested else "")


def _waiting(view: JobView, why: Why | None, now: datetime) -> str:
    if why is None or not why.gates:
        return "Waiting"
    gate = why.gates[0]
    if gate.gate == "none":
        return "Ready: it starts with the next claim"
    until = ""
    if gate.until is not None:
        left = (gate.until - now).total_seconds()
        until = f" ({span(left)} more)" if left > 0 else ""
    return f"Waiting: {gate.gate.replace('_', ' ')} – {gate.detail.rstrip('.')}{until}"


def _since(instant: datetime | None, now: datetime) -> str:
    return span(max((now - instant).total_seconds(), 0.0)) if instant is not None else "a while"


def _tries(view: JobView) -> str:
    used = view.attempts_used or 0
    lost = f" and {view.crashes} lost leases" if view.crashes else ""
    return f"{used} of {view.max_attempts} attempts{lost}"
