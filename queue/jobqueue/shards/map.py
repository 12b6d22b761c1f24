"""The map of slots as a process remembers it: which shard takes a key, and under which epoch.

It may be old: the shard that is asked knows better, refuses what it does not own, and the map is read anew. While
control is away the remembered map stays good, for nothing can be moved then.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

from django.db import DatabaseError, InterfaceError

from jobqueue.policy.slots import NOBODY, SLOTS, balanced
from jobqueue.shard_models import Ring, Shard
from jobqueue.shards import telling
from jobsplatform import database
from jobsplatform.errors import JobsPlatformError, Unavailable

CACHE_SECONDS: Final = 5.0
AWAY_SECONDS: Final = 1.0  # until control is asked again after it could not be read


class Place(NamedTuple):
    """Where a job goes: a shard, and the slot that the shard must own (None: it has no slots)."""

    shard: int
    ring: int | None = None
    slot: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class RingView:
    """A ring as it was read."""

    id: int
    version: int
    owners: tuple[int, ...]
    epochs: tuple[int, ...]
    is_ready: bool
    by_shard: Mapping[int, tuple[int, ...]] = field(repr=False)  # the slots of each

    @classmethod
    def of(cls, ring: Ring) -> RingView:
        by_shard: dict[int, list[int]] = {}
        for slot, owner in enumerate(ring.owners):
            if owner != NOBODY:
                by_shard.setdefault(owner, []).append(slot)
        slots = {number: tuple(found) for number, found in by_shard.items()}
        return cls(ring.pk, ring.version, tuple(ring.owners), tuple(ring.epochs), ring.is_ready, slots)

    def at(self, slot: int) -> Place | None:
        """The place of a slot; None while it moves."""
        owner = self.owners[slot]
        return (
            None if owner == NOBODY or not self.is_ready else Place(owner, self.id, slot, self.epochs[slot])
        )

    def anywhere(self, among: Collection[int]) -> Place | None:
        """A random slot's place on one of these shards; None: they own none."""
        slots = [slot for number in among for slot in self.by_shard.get(number, ())]
        return self.at(random.choice(slots)) if slots else None


@dataclass(frozen=True, slots=True)
class ShardMap:
    """All rings. `alone` is the one shard of a platform that has no slots."""

    alone: int | None = None
    general: RingView | None = None
    by_queue: Mapping[int, RingView] = field(default_factory=dict)
    by_tenant: Mapping[int, RingView] = field(default_factory=dict)

    def ring_of(self, queue_id: int, tenant_id: int) -> RingView:
        """The ring that counts: the queue's, else the tenant's, else that of all work."""
        found = self.by_queue.get(queue_id) or self.by_tenant.get(tenant_id) or self.general
        assert found is not None
        return found

    def shards_of(self, queue_id: int, tenant_id: int | None) -> tuple[int, ...]:
        """Where new work of a queue may go (of one tenant, or of any)."""
        if self.alone is not None:
            return (self.alone,)
        if tenant_id is not None or queue_id in self.by_queue:
            return tuple(sorted(self.ring_of(queue_id, tenant_id or 0).by_shard))
        rings = [self.general, *self.by_tenant.values()]
        return tuple(sorted({number for ring in rings if ring is not None for number in ring.by_shard}))

    def key_place(self, queue_id: int, tenant_id: int, slot: int) -> Place | None:
        """The one place of a key; None while its slot moves."""
        if self.alone is not None:
            return Place(self.alone)
        return self.ring_of(queue_id, tenant_id).at(slot)

    def any_place(self, queue_id: int, tenant_id: int, among: Collection[int]) -> Place | None:
        """A place for work without a key on one of these shards."""
        if self.alone is not None:
            return Place(self.alone) if self.alone in among else None
        return self.ring_of(queue_id, tenant_id).anywhere(among)


_held: tuple[float, tuple[object, ...], ShardMap] | None = None  # good until, what it was read from, the map
_lock = threading.Lock()


def current() -> ShardMap:
    """The map, at most five seconds old while control can be read. Raises Unavailable when it never could."""
    held = _held
    if held is not None and time.monotonic() < held[0]:
        return held[2]
    if len(numbers := database.aliases()) == 1:
        return _alone(next(iter(numbers)))
    return _look()


@cache
def _alone(number: int) -> ShardMap:
    return ShardMap(alone=number)


def refreshed() -> ShardMap:
    """The map as control has it now. Raises Unavailable."""
    _look(must=True)
    return current()


def forget() -> None:
    """Drop what is remembered."""
    global _held
    _held = None


def _look(*, must: bool = False) -> ShardMap:
    global _held
    with _lock:
        held = _held
        if held is not None and not must and time.monotonic() < held[0]:
            return held[2]
        try:
            seen = _versions()
            known = held[2] if held is not None and held[1] == seen else _read(seen)
            _held = (time.monotonic() + CACHE_SECONDS, seen, known)
            return known
        except (DatabaseError, InterfaceError, JobsPlatformError) as error:
            if held is None or must:
                raise Unavailable("The map of the shards cannot be read.") from error
            _held = (time.monotonic() + AWAY_SECONDS, *held[1:])
            return held[2]


def _versions() -> tuple[object, ...]:
    rings = Ring.objects.order_by("pk").values_list("pk", "version")
    return (*Shard.objects.order_by("pk").values_list("pk", flat=True), *rings)


def _read(seen: Iterable[object]) -> ShardMap:
    numbers = [one for one in seen if isinstance(one, int)]
    if len(numbers) == 1:
        if not any(isinstance(one, tuple) for one in seen):
            return _alone(numbers[0])
    elif not numbers:
        raise Unavailable("No shard is registered; run `manage.py migrate`.")
    rings = list(Ring.objects.all()) or [_first_ring()]
    views = {ring.pk: RingView.of(ring) for ring in rings}
    general = next(views[ring.pk] for ring in rings if ring.queue_id is None and ring.tenant_id is None)
    return ShardMap(
        general=general,
        by_queue={ring.queue_id: views[ring.pk] for ring in rings if ring.queue_id is not None},
        by_tenant={ring.tenant_id: views[ring.pk] for ring in rings if ring.tenant_id is not None},
    )


def _first_ring() -> Ring:
    """The ring of all work of a platform that begins with several shards: nobody has accepted anything before.

    Those who cannot be told now are told by whoever meets their refusal, or by the dispatcher.
    """
    active = Shard.objects.filter(state=Shard.State.ACTIVE).order_by("number")  # some may be drained already
    numbers = list(active.values_list("number", flat=True))
    owners = balanced([numbers[slot % len(numbers)] for slot in range(SLOTS)], numbers)
    values = {"shards": numbers, "owners": owners, "epochs": [1] * SLOTS}
    ring, _ = Ring.objects.get_or_create(queue=None, tenant=None, defaults=values)
    telling.tell_all(ring)
    return ring
