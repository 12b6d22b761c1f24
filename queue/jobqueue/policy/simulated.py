"""What a simulation is given and what comes out of it. Times in seconds from the run's beginning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jobqueue.policy.types import Chosen, Policy

# What is simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A tenant's work of one kind in one band: a backlog at `from_s`, arrivals until `until_s`, or both.

    Endless work is never short while it lasts, and what is left of it is withdrawn at its end. `weight` and
    `max_running` hold for the tenant in this band.
    """

    tenant: str
    band: int
    kind: str = "job"
    service_s: float = 0.1
    is_exponential: bool = False
    backlog: int = 0
    is_endless: bool = False
    rate_per_s: float = 0.0
    is_random: bool = False
    from_s: float = 0.0
    until_s: float = math.inf
    weight: int | None = None
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class TenantRules:
    """What holds for a tenant in all bands."""

    weight: int = 1
    max_running: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Workers that ask for the same. `claim_every_s`: a claim takes that long, and there is one at a time."""

    slots: int
    name: str = "workers"
    max_priority: int | None = None
    kinds: frozenset[str] | None = None
    batch: int = 100
    claim_every_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that a run depends on. `passed_over`: the share of planned jobs that another statement holds just then."""

    policy: Policy
    sources: Sequence[Source]
    pools: Sequence[Pool]
    tenants: Mapping[str, TenantRules] = field(default_factory=dict)
    seconds: float = 60.0
    seed: int = 1
    passed_over: float = 0.0


# What comes out


class Start(NamedTuple):
    """A job that was started. `band` is its own, `turn` the one whose opportunity it used."""

    at_s: float
    band: int
    turn: int
    tenant: str
    pool: str
    waited_s: float
    service_s: float
    chosen: Chosen


class Left(NamedTuple):
    """A job that still waits at the end."""

    band: int
    tenant: str
    waited_s: float


class Sample(NamedTuple):
    """How many jobs wait at an instant, by band and tenant; instants are evenly apart, the last is the end."""

    at_s: float
    waiting: Mapping[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class Run:
    """What happened. A gap is the longest time without a start while one was possible but for a free slot."""

    setup: Setup
    starts: Sequence[Start]
    left: Sequence[Left]
    samples: Sequence[Sample]
    offered: Mapping[tuple[int, str], int]
    gap_of_band: Mapping[int, float]
    gap_of: Mapping[tuple[int, str], float]
    emptied_s: Mapping[int, float]  # when a band had no waiting job for the first time
    most_running: Mapping[str, int]
