"""What the policy is told and what it answers. Immutable, comparable, no Django; tuples where a claim makes many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

UNIT = "unit"
SERVICE_TIME = "service_time"


class Chosen(StrEnum):
    """Why a start was chosen."""

    STRICT = "strict"
    SHARE = "share"
    FLOOR = "floor"
    LENT = "lent"


@dataclass(frozen=True, slots=True)
class BandPolicy:
    """A priority class. Weight: opportunities a cycle; a strict band is served first, a bulk band has the floor."""

    name: str
    weight: int = 1
    strict: bool = False
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """A version of a queue's scheduling policy. `ageing_s` None: off; `cost_model`: unit or service_time."""

    version: int
    bands: Sequence[BandPolicy]
    reserved_share: float = 0.05
    ageing_s: float | None = None
    cost_model: str = UNIT

    @property
    def strict_bands(self) -> frozenset[int]:
        return frozenset(index for index, band in enumerate(self.bands) if band.strict)

    @property
    def bulk_bands(self) -> frozenset[int]:
        return frozenset(index for index, band in enumerate(self.bands) if band.bulk)

    @property
    def is_costed(self) -> bool:
        """Whether starts are charged by service time."""
        return self.cost_model == SERVICE_TIME

    def effective_band(self, band: int, waited_s: float) -> int:
        """One band more urgent for each full period waited, never into a strict band."""
        if self.ageing_s is None or band >= len(self.bands) or self.bands[band].strict:
            return band
        lowest = max((index for index in self.strict_bands if index < band), default=-1) + 1
        return max(lowest, band - int(max(0.0, waited_s) // self.ageing_s))


class Head(NamedTuple):
    """One job that a claim may take, with what its tenant may still have.

    `rooms`: the starts that each of its tenant's limits leaves, by the limit's id; a negative id is a limit that
    tenants share (a dependency's). `cost_s`: what a start is charged (running mean of its lane). `served_s`: the
    tenant's service in this queue so far, divided by its weight.
    """

    lane_id: int
    priority: int
    tenant_id: int
    kind: str
    rooms: tuple[tuple[int, int], ...]
    job_id: int
    position: datetime
    fresh: bool
    weight: int = 1
    cost_s: float = 1.0
    served_s: float = 0.0


class Turn(NamedTuple):
    """Whose turn it is in a rotation, and how many opportunities of it are left."""

    key: int
    left: int


@dataclass(frozen=True, slots=True)
class State:
    """The memory of a scheduler between claims: the bands' turn, each band's tenant's turn, and virtual time.

    Starts by the floor have a turn of their own (`floor`), so that they share the floor by the bulk bands' weights.
    """

    band: Turn | None = None
    tenants: Mapping[int, Turn] = field(default_factory=dict)
    virtual_s: float = 0.0
    floor: Turn | None = None

    def to_json(self) -> dict[str, object]:
        band = None if self.band is None else list(self.band)
        floor = None if self.floor is None else list(self.floor)
        tenants = {str(key): list(turn) for key, turn in self.tenants.items()}
        return {"band": band, "tenants": tenants, "virtual_s": self.virtual_s, "floor": floor}

    @classmethod
    def from_json(cls, stored: Mapping[str, object] | None, virtual_s: float | None = None) -> State:
        """What `to_json` gave. `virtual_s`: the queue's, to which the other classes of claims have moved it."""
        if not stored:
            return cls(virtual_s=virtual_s or 0.0)
        band, tenants, floor = stored.get("band"), stored.get("tenants") or {}, stored.get("floor")
        assert isinstance(tenants, Mapping)
        return cls(
            band=Turn(*band) if isinstance(band, list) else None,
            tenants={int(key): Turn(*turn) for key, turn in tenants.items()},
            virtual_s=max(virtual_s or 0.0, float(str(stored.get("virtual_s", 0.0)))),
            floor=Turn(*floor) if isinstance(floor, list) else None,
        )


class Take(NamedTuple):
    """A job to start: the band whose opportunity it uses, why, and what it is charged in seconds."""

    head: Head
    band: int
    chosen: Chosen
    charged_s: float = 0.0
    moved_s: float = 0.0  # by how much the tenant's served_s moves


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs to take, in order, and the state after all of them were taken."""

    takes: Sequence[Take]
    state: State
