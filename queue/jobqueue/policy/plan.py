"""What a claim takes, given what the index says is there. Pure: the claim transaction is its only caller.

Today's policy is the simplest honest one: the most urgent band first; inside a band work that came back before work
that is fresh, then first in, first out over all lanes. Fair turns replace the body of `plan`, not its shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Head:
    """One job that a claim may take: its lane, and where it stands there. `room`: starts its tenant has left."""

    lane_id: int
    priority: int
    tenant_id: int
    kind: str
    room: int | None
    job_id: int
    position: datetime
    fresh: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs to take, most deserving first, and the scheduler state to store (None: it did not change)."""

    takes: list[Head]
    state: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class BandPolicy:
    """What the policy knows of a band."""

    name: str
    weight: int = 1
    strict: bool = False
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """A queue's scheduling policy and its version, to which each start is attributed."""

    version: int
    bands: Sequence[BandPolicy] = field(default_factory=tuple)


def plan(policy: Policy, state: Mapping[str, object] | None, heads: Sequence[Head], limit: int) -> Plan:
    """At most `limit` of `heads`, never more of a tenant than its room. Deterministic in its arguments."""
    takes: list[Head] = []
    used: dict[int, int] = {}
    for head in sorted(heads, key=_urgency):
        if len(takes) == limit:
            break
        if head.room is not None:
            if used.get(head.tenant_id, 0) >= head.room:
                continue
            used[head.tenant_id] = used.get(head.tenant_id, 0) + 1
        takes.append(head)
    return Plan(takes)


def _urgency(head: Head) -> tuple[int, bool, datetime, int]:
    return (head.priority, head.fresh, head.position, head.job_id)
